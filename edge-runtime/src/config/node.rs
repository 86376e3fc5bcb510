//! The top-level keys of the file: the node's name, its number of pods, its reservations.

use std::collections::BTreeMap;
use std::path::Path;

use edge_protocol::node_labels;
use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use super::number::Number;
use super::resources::CpuManager;
use crate::pod::cpus::CpuSet;
use crate::pod::dns;
use crate::pod::id::sha256_hex;
use crate::sys::cgroup::{Driver, check_slice_parent};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Reserved {
    pub cpu_millis: Number<u64, 0>,
    pub memory_bytes: Number<u64, 0>,
    pub storage_bytes: Number<u64, 0>,
    /// CPUs that no container has for itself. A list as typed: a single number is one of YAML, too.
    pub cpus: Option<serde_json::Value>,
}

impl Reserved {
    /// Reads `cpus`, and reserves that many CPUs at least: otherwise the scheduler would count on them for exclusive use
    /// (K8s cmd/kubelet/app/server.go, `ReservedSystemCPUs`).
    pub(super) fn checked(mut self, cpu_manager: CpuManager) -> Result<(Self, Option<CpuSet>), Wrong> {
        let typed = self.cpus.as_ref().map(|typed| typed.as_str().map_or_else(|| typed.to_string(), str::to_owned));
        let cpus = match typed {
            None => None,
            Some(typed) => match CpuSet::parse(&typed).filter(|cpus| !cpus.is_empty()) {
                None => {
                    return Err(wrong("reserved.cpus", format!("'{typed}' is not a list of CPUs, such as 0 or 0-1,4")));
                }
                listed => listed,
            },
        };
        let whole = cpus.map_or(0, |cpus| u64::try_from(cpus.len()).unwrap_or(0) * 1000);
        self.cpu_millis = whole.max(*self.cpu_millis).into();
        if cpu_manager == CpuManager::Static && *self.cpu_millis == 0 {
            // K8s pkg/kubelet/cm/cpumanager/cpu_manager.go, `NewManager`.
            let why = "static needs CPUs for the system: set reserved.cpus, for example to 0, or reserved.cpu-millis";
            return Err(wrong("resources.cpu-manager", why));
        }
        Ok((self, cpus))
    }
}

/// Distinguishes nodes that share a host: nothing for `/`, otherwise 8 hex digits of the root's path.
#[must_use]
pub fn instance_suffix(root: &Path) -> Option<String> {
    if root == Path::new("/") {
        return None;
    }
    Some(sha256_hex(root.as_os_str().as_encoded_bytes()).chars().take(8).collect())
}

/// Parent of all pods' cgroups, as `driver` can have it.
pub(super) fn cgroup_parent(typed: Option<String>, driver: Driver, root: &Path) -> Result<String, Wrong> {
    let own = || instance_suffix(root).map_or_else(|| "/sampan".into(), |suffix| format!("/sampan-{suffix}"));
    let parent = typed.unwrap_or_else(own);
    if !parent.starts_with('/') || parent.contains("..") {
        return Err(wrong("cgroup-parent", format!("'{parent}' is not an absolute cgroup path")));
    }
    if driver == Driver::Systemd {
        check_slice_parent(&parent).map_err(|why| wrong("cgroup-parent", why))?;
    }
    Ok(parent)
}

pub(super) fn max_pods(typed: Option<u32>) -> Result<u32, Wrong> {
    match typed.unwrap_or(110) {
        0 => Err(wrong("max-pods", "must be at least 1")),
        pods => Ok(pods),
    }
}

/// A node name is a DNS-1123 subdomain (Kubernetes: `ValidateNodeName`).
pub(super) fn name(typed: Option<String>) -> Result<String, Wrong> {
    let name = typed.unwrap_or_else(host_name);
    if dns::is_subdomain(&name) {
        return Ok(name);
    }
    Err(wrong("node-name", format!("'{name}' is not a lower-case DNS name; set node-name or use --node")))
}

fn host_name() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default().to_lowercase()
}

/// The bridge gives each node this role, so the file may name it.
const ROLE: &str = "node-role.kubernetes.io/edge";

/// Why the bridge would not write this label, or a cluster's API not take it.
pub(super) fn label_problem(key: &str, value: &str) -> Option<String> {
    if key == ROLE { None } else { node_labels::problem(key, value) }
}

pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Wrong> {
    let problem = labels.iter().find_map(|(key, value)| label_problem(key, value));
    problem.map_or(Ok(()), |why| Err(wrong("labels", why)))
}

pub(super) fn check_taints(taints: Vec<String>) -> Result<Vec<String>, Wrong> {
    let (taints, problems) = sort_out_taints(taints);
    problems.into_iter().next().map_or(Ok(taints), |why| Err(wrong("taints", why)))
}

/// The taints that a Node can have, and why it cannot have the others (K8s validation.go, `validateNodeTaints`): the API
/// would refuse the whole Node.
pub(super) fn sort_out_taints(taints: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut good, mut problems) = (Vec::new(), Vec::new());
    for taint in taints {
        match taint_problem(&taint, &good) {
            Some(why) => problems.push(why),
            None => good.push(taint),
        }
    }
    (good, problems)
}

fn taint_problem(taint: &str, before: &[String]) -> Option<String> {
    let known = |effect: &str| matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    let Some((key, value, effect)) = taint_parts(taint).filter(|(.., effect)| known(effect)) else {
        return Some(format!(
            "'{taint}' is not KEY=VALUE:EFFECT with effect NoSchedule, PreferNoSchedule or NoExecute"
        ));
    };
    let same = |other: &String| taint_parts(other).is_some_and(|(k, _, e)| (k, e) == (key, effect));
    let is_second = before.iter().any(same);
    node_labels::form_problem(key, value)
        .or_else(|| is_second.then(|| format!("{key} has two taints with effect {effect}: remove one")))
}

fn taint_parts(taint: &str) -> Option<(&str, &str, &str)> {
    let (pair, effect) = taint.rsplit_once(':')?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    Some((key, value, effect))
}
