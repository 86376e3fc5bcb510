//! What the default filter lets through.

use serde_json::{Value, json};

use super::*;

fn built(capabilities: &[Capability], arch: &str) -> Value {
    serde_json::to_value(filter(&capabilities.iter().copied().collect(), arch)).unwrap()
}

/// The rule for `name` that has no condition.
fn plain<'a>(filter: &'a Value, name: &str) -> Option<&'a Value> {
    let rules = filter["syscalls"].as_array().unwrap();
    let named = |rule: &&Value| rule["names"].as_array().unwrap().contains(&json!(name));
    rules.iter().filter(named).find(|rule| rule.get("args").is_none())
}

#[test]
fn golden_without_capabilities() {
    let filter = built(&[], "x86_64");
    assert_eq!(filter["defaultAction"], "SCMP_ACT_ERRNO");
    assert_eq!(filter["defaultErrnoRet"], 1);
    assert_eq!(filter["architectures"], json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]));
    let rules = filter["syscalls"].as_array().unwrap();
    assert_eq!(
        rules[1],
        json!({"names": ["socket"], "action": "SCMP_ACT_ALLOW",
               "args": [{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]})
    );
    assert_eq!(rules[2]["args"], json!([{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]));
    assert_eq!(
        rules[7..],
        [
            json!({"names": ["clone"], "action": "SCMP_ACT_ALLOW",
                   "args": [{"index": 0, "value": 0x7e02_0000, "op": "SCMP_CMP_MASKED_EQ"}]}),
            json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}),
        ]
    );
    for denied in [
        "mount",
        "unshare",
        "setns",
        "bpf",
        "keyctl",
        "add_key",
        "io_uring_setup",
        "userfaultfd",
        "kexec_load",
        "swapon",
        "reboot",
        "chroot",
        "ptrace_foo",
        "clone",
    ] {
        assert_eq!(plain(&filter, denied), None, "{denied}");
    }
    for allowed in ["read", "execve", "openat2", "futex", "statx", "arch_prctl", "landlock_create_ruleset"] {
        assert_eq!(plain(&filter, allowed).unwrap()["action"], "SCMP_ACT_ALLOW", "{allowed}");
    }
}

#[test]
fn capabilities_permit_their_system_calls() {
    let filter = built(&[Capability::SysAdmin, Capability::SysTime], "aarch64");
    for allowed in ["mount", "unshare", "clone", "clone3", "settimeofday", "set_tls"] {
        assert_eq!(plain(&filter, allowed).unwrap()["action"], "SCMP_ACT_ALLOW", "{allowed}");
    }
    assert_eq!(plain(&filter, "reboot"), None);
    assert_eq!(plain(&filter, "arch_prctl"), None);
    assert_eq!(filter["architectures"], json!(["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]));
    assert_eq!(built(&[], "arm")["architectures"], json!(["SCMP_ARCH_ARM"]));
}

#[test]
fn no_call_is_named_twice() {
    let names = split(names::ALWAYS);
    let distinct: HashSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    for (_, list) in names::WITH {
        assert!(split(list).iter().all(|name| !distinct.contains(name)), "{list}");
    }
}
