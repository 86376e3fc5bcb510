//! The seccomp filter that `RuntimeDefault` means: an allow list in the manner of containerd's and Docker's, which
//! application authors test against. Pure; knows nothing of profiles in files.

mod names;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use oci_spec::runtime::{
    Arch, Capability, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator,
    LinuxSyscall,
};

use crate::sys::sort::sort;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// All `CLONE_NEW*` flags of `clone`, whose first argument they are on every architecture here.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
/// `AF_VSOCK`: reaches the hypervisor around every network rule.
const VSOCK: u64 = 40;
/// Linux, Linux on 32-bit, `UNAME26` with both, and the question which one it is.
const PERSONALITIES: [u64; 5] = [0x0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The filter for a process with these capabilities in its bounding set, on this build's architecture.
pub(super) fn runtime_default(capabilities: &HashSet<Capability>) -> LinuxSeccomp {
    filter(capabilities, std::env::consts::ARCH)
}

/// Other system calls fail with `EPERM`. For system calls newer than all named ones the OCI runtime returns `ENOSYS`.
fn filter(capabilities: &HashSet<Capability>, arch: &str) -> LinuxSeccomp {
    let has = |capability| capabilities.contains(&capability);
    let mut allowed = split(names::ALWAYS);
    for (capability, list) in names::WITH {
        if has(*capability) {
            allowed.extend(split(list));
        }
    }
    allowed.extend(split(names::of_architecture(arch)));
    sort(&mut allowed);
    allowed.dedup();

    let mut rules = vec![allow(allowed, None), allow(split("socket"), Some(argument(0, VSOCK, Compare::ScmpCmpNe)))];
    rules.extend(PERSONALITIES.map(|value| allow(split("personality"), Some(argument(0, value, Compare::ScmpCmpEq)))));
    if !has(Capability::SysAdmin) {
        // Masked by the value, the argument has to equal the second value, which is zero when it is left out.
        rules.push(allow(split("clone"), Some(argument(0, NAMESPACE_FLAGS, Compare::ScmpCmpMaskedEq))));
        // Its flags lie in memory, where no filter can look: a C library that gets ENOSYS takes clone instead.
        let mut refused = allow(split("clone3"), None);
        refused.set_action(LinuxSeccompAction::ScmpActErrno);
        refused.set_errno_ret(Some(ENOSYS));
        rules.push(refused);
    }
    let mut filter = LinuxSeccomp::default();
    filter.set_default_action(LinuxSeccompAction::ScmpActErrno);
    filter.set_default_errno_ret(Some(EPERM));
    filter.set_architectures(Some(architectures(arch)));
    filter.set_syscalls(Some(rules));
    filter
}

use LinuxSeccompOperator as Compare;

fn split(list: &str) -> Vec<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

fn allow(names: Vec<String>, argument: Option<LinuxSeccompArg>) -> LinuxSyscall {
    let mut rule = LinuxSyscall::default();
    rule.set_names(names);
    rule.set_action(LinuxSeccompAction::ScmpActAllow);
    rule.set_args(argument.map(|argument| vec![argument]));
    rule
}

fn argument(index: usize, value: u64, op: LinuxSeccompOperator) -> LinuxSeccompArg {
    // Cannot fail: every field has a default.
    LinuxSeccompArgBuilder::default().index(index).value(value).op(op).build().unwrap_or_default()
}

/// Calls by another ABI of the same kernel would pass a filter that knows one only.
fn architectures(arch: &str) -> Vec<Arch> {
    match arch {
        "x86_64" => vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32],
        "aarch64" => vec![Arch::ScmpArchAarch64, Arch::ScmpArchArm],
        "arm" => vec![Arch::ScmpArchArm],
        "x86" => vec![Arch::ScmpArchX86],
        _ => vec![Arch::ScmpArchNative],
    }
}
