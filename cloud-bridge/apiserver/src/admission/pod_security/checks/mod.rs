//! The checks of the Pod Security Standards: which pod violates what (K8s pod-security-admission policy/registry.go and
//! check_*.go). Pure.

mod capabilities;
mod containers;
mod host;
mod profiles;
mod root;
mod selinux;
mod volumes;
mod words;

use super::policy::{Level, Standard, Version};
use words::Pod;
pub(super) use words::Violation;

type Rule = fn(Pod<'_>) -> Option<Violation>;

/// One check, in the versions that it has had, oldest first.
struct Check {
    id: &'static str,
    versions: &'static [(u32, Rule)],
    /// The check of `baseline` that it contains.
    instead_of: &'static str,
}

const fn check(id: &'static str, versions: &'static [(u32, Rule)]) -> Check {
    Check { id, versions, instead_of: "" }
}

const fn stricter(id: &'static str, instead_of: &'static str, versions: &'static [(u32, Rule)]) -> Check {
    Check { id, versions, instead_of }
}

/// Checks of the baseline level, sorted by id like Kubernetes' messages.
static BASELINE: &[Check] = &[
    check("appArmorProfile", &[(0, profiles::app_armor)]),
    check("capabilities_baseline", &[(0, capabilities::baseline)]),
    check("hostNamespaces", &[(0, host::namespaces)]),
    check("hostPathVolumes", &[(0, volumes::host_path)]),
    check("hostPorts", &[(0, host::ports)]),
    check("hostProbesAndHostLifecycle", &[(34, host::probes)]),
    check("privileged", &[(0, containers::privileged)]),
    check("procMount", &[(0, containers::proc_mount), (35, |pod| in_own_users(pod, containers::proc_mount))]),
    check("seLinuxOptions", &[(0, selinux::v0), (31, selinux::v31)]),
    check("seccompProfile_baseline", &[(0, profiles::seccomp_annotations), (19, profiles::seccomp)]),
    check(
        "sysctls",
        &[(0, host::sysctls_v0), (27, host::sysctls_v27), (29, host::sysctls_v29), (32, host::sysctls_v32)],
    ),
    check("windowsHostProcess", &[(0, containers::host_process)]),
];

static RESTRICTED: &[Check] = &[
    check(
        "allowPrivilegeEscalation",
        &[(8, containers::escalation), (25, |pod| not_windows(pod, containers::escalation))],
    ),
    stricter(
        "capabilities_restricted",
        "capabilities_baseline",
        &[(22, capabilities::restricted), (25, |pod| not_windows(pod, capabilities::restricted))],
    ),
    stricter("procMount_restricted", "procMount", &[(35, containers::proc_mount)]),
    stricter("restrictedVolumes", "hostPathVolumes", &[(0, volumes::restricted)]),
    check("runAsNonRoot", &[(0, root::non_root), (35, |pod| in_own_users(pod, root::non_root))]),
    check("runAsUser", &[(23, root::user), (35, |pod| in_own_users(pod, root::user))]),
    stricter(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[(19, profiles::seccomp_required), (25, |pod| not_windows(pod, profiles::seccomp_required))],
    ),
];

/// Violations of a standard by a pod, in the order of Kubernetes' messages.
pub(super) fn violations(standard: Standard, pod: Pod<'_>) -> Vec<Violation> {
    let restricted: &[Check] = match standard.level {
        Level::Privileged => return Vec::new(),
        Level::Baseline => &[],
        Level::Restricted => RESTRICTED,
    };
    let stricter: Vec<(&Check, Rule)> =
        restricted.iter().filter_map(|check| Some((check, at(check, standard.version)?))).collect();
    let replaced = |check: &Check| stricter.iter().any(|(stricter, _)| stricter.instead_of == check.id);
    let baseline = BASELINE.iter().filter(|check| !replaced(check));
    let rules = baseline.filter_map(|check| at(check, standard.version));
    rules.chain(stricter.iter().map(|(_, rule)| *rule)).filter_map(|rule| rule(pod)).collect()
}

/// The check in a version, if the version has it.
fn at(check: &Check, version: Version) -> Option<Rule> {
    check.versions.iter().rev().find(|(since, _)| *since <= version.0).map(|(_, rule)| *rule)
}

/// Text of violations in refusals and warnings.
pub(super) fn details(violations: &[Violation]) -> String {
    let shown = violations.iter().map(|one| match one.detail.as_str() {
        "" => one.reason.clone(),
        detail => format!("{} ({detail})", one.reason),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// A rule that does not apply to a pod with its own user namespace (`relaxPolicyForUserNamespacePod`).
fn in_own_users(pod: Pod<'_>, rule: Rule) -> Option<Violation> {
    if pod["spec"]["hostUsers"] == false { None } else { rule(pod) }
}

/// A rule about fields that a pod of Windows may not have.
fn not_windows(pod: Pod<'_>, rule: Rule) -> Option<Violation> {
    if pod["spec"]["os"]["name"] == "windows" { None } else { rule(pod) }
}

#[cfg(test)]
mod tests;
