//! What `oci_spec` promises, case by case.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::launch::user::User;
use crate::net::namespaces::PodNamespaces;
use crate::pod::cpus::{CpuSet, Given};
use crate::volume::mounts::{Mount, Propagation};

fn host(cgroup_v2: bool) -> HostFacts {
    HostFacts {
        cgroup_v2,
        memory_controller: true,
        cpu_controller: true,
        swap_accounting: true,
        min_oom_score_adj: 0,
        capabilities: ["CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"].map(str::to_owned).to_vec(),
        devices: vec![HostDevice {
            path: "/dev/null".into(),
            block: false,
            major: 1,
            minor: 3,
            mode: 0o20666,
            uid: 0,
            gid: 0,
        }],
        thermal_throttle: vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".into()],
    }
}

/// The spec of a container whose fields are `container`, as JSON.
fn built(container: Value, host: &HostFacts, change: impl FnOnce(&mut Input)) -> Value {
    let mut own = json!({"name": "c"});
    own.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [own]}})).unwrap();
    let mut input = Input {
        pod: &pod,
        container: &pod.spec.as_ref().unwrap().containers[0],
        argv: vec!["sleep".into(), "1".into()],
        env: vec![("A".into(), "b=c".into())],
        cwd: String::new(),
        rootfs: "/r".into(),
        mounts: Vec::new(),
        namespaces: PodNamespaces {
            net: Some("/ns/net".into()),
            ipc: Some("/ns/ipc".into()),
            uts: Some("/ns/uts".into()),
            user: None,
        },
        pid: PidNamespace::Private,
        cgroup_path: "/kubepods/podx/c".into(),
        systemd: false,
        user: User { uid: 1000, gid: 2000, groups: vec![5] },
        oom_score_adj: -997,
        devices: Vec::new(),
        cpus: None,
        swap_limit: Some(0),
        seccomp: Seccomp::Unconfined,
        annotations: Vec::new(),
        apparmor: None,
        host,
    };
    change(&mut input);
    let spec = build(&input).unwrap();
    let typed: ::oci_spec::runtime::Spec = serde_json::from_value(spec.clone()).expect("of the OCI's types");
    let known = serde_json::to_value(typed).unwrap();
    assert_eq!(in_order(known), in_order(spec.clone()), "a name that the OCI's types do not know");
    spec
}

/// The OCI's types hold capabilities as sets.
fn in_order(mut spec: Value) -> Value {
    let sets = spec.pointer_mut("/process/capabilities").and_then(Value::as_object_mut);
    for set in sets.into_iter().flatten().filter_map(|(_, set)| set.as_array_mut()) {
        set.sort_by_key(ToString::to_string);
    }
    spec
}

fn sorted(list: &Value) -> Vec<String> {
    let mut names: Vec<String> = serde_json::from_value(list.clone()).unwrap();
    names.sort();
    names
}

#[test]
fn a_plain_container() {
    let spec = built(json!({}), &host(false), |_| {});
    let process = &spec["process"];
    assert_eq!(process["args"], json!(["sleep", "1"]));
    assert_eq!(process["env"], json!(["A=b=c"]));
    assert_eq!(process["cwd"], "/");
    assert_eq!(process["user"], json!({"uid": 1000, "gid": 2000, "additionalGids": [2000, 5]}));
    assert_eq!(process["oomScoreAdj"], 0, "clamped");
    assert_eq!(process["noNewPrivileges"], false);
    assert_eq!(process.get("rlimits"), None);
    assert_eq!(sorted(&process["capabilities"]["effective"]), ["CAP_CHOWN", "CAP_KILL"]);
    assert_eq!(process["capabilities"].get("ambient"), None);
    assert_eq!(spec["root"], json!({"path": "/r", "readonly": false}));
    assert_eq!(spec.get("hostname"), None);
    let linux = &spec["linux"];
    assert_eq!(
        linux["namespaces"],
        json!([
            {"type": "mount"}, {"type": "pid"}, {"type": "network", "path": "/ns/net"},
            {"type": "ipc", "path": "/ns/ipc"}, {"type": "uts", "path": "/ns/uts"},
        ])
    );
    assert_eq!(linux["maskedPaths"].as_array().unwrap().len(), 13);
    assert_eq!(linux["resources"]["devices"], json!([{"allow": false, "access": "rwm"}]));
    assert_eq!(linux["resources"]["cpu"], json!({"shares": 2}));
    assert_eq!(linux.get("seccomp"), None);
    assert_eq!(linux.get("devices"), None);
}

#[test]
fn resources_on_both_cgroup_versions() {
    let container = json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "64Mi"}}});
    let v1 = built(container.clone(), &host(false), |_| {});
    let r = &v1["linux"]["resources"];
    assert_eq!(r["cpu"], json!({"shares": 1024, "quota": 200_000, "period": 100_000}));
    assert_eq!(r["memory"], json!({"limit": 64 << 20, "swap": 64 << 20}));
    assert_eq!(r.get("unified"), None);
    let v2 = built(container.clone(), &host(true), |_| {});
    let r = &v2["linux"]["resources"];
    assert_eq!(r["cpu"], json!({"quota": 200_000, "period": 100_000}));
    assert_eq!(r["unified"], json!({"cpu.weight": "100", "memory.oom.group": "1", "memory.swap.max": "0"}));
    assert!(v2["linux"]["namespaces"].as_array().unwrap().contains(&json!({"type": "cgroup"})));
    let mut bare = host(true);
    (bare.memory_controller, bare.cpu_controller) = (false, false);
    let none = built(container, &bare, |_| {});
    assert_eq!(none["linux"]["resources"].get("memory"), None);
    assert_eq!(none["linux"]["resources"].get("unified"), None);
}

#[test]
fn granted_devices_and_profiles() {
    let gpio = HostDevice { path: "/dev/gpiochip0".into(), major: 254, minor: 7, ..host(false).devices[0].clone() };
    let spec = built(json!({}), &host(false), |input| {
        input.devices = vec![GrantedDevice { device: gpio, access: "rw".into() }];
        input.apparmor = Some("p".into());
        input.seccomp = Seccomp::RuntimeDefault;
        input.swap_limit = None;
    });
    let linux = &spec["linux"];
    assert_eq!(
        linux["resources"]["devices"],
        json!([{"allow": false, "access": "rwm"},
               {"allow": true, "type": "c", "major": 254, "minor": 7, "access": "rw"}])
    );
    assert_eq!(linux["devices"][0]["path"], "/dev/gpiochip0");
    assert_eq!((&linux["seccomp"]["defaultErrnoRet"], &spec["process"]["apparmorProfile"]), (&json!(1), &json!("p")));
}

#[test]
fn security_contexts() {
    let caps = |wish: Value| {
        let spec = built(json!({"securityContext": {"capabilities": wish}}), &host(false), |_| {});
        sorted(&spec["process"]["capabilities"]["bounding"])
    };
    assert_eq!(caps(json!({"add": ["NET_ADMIN"]})), ["CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN"]);
    assert_eq!(caps(json!({"drop": ["ALL"]})), [""; 0]);
    assert_eq!(caps(json!({"drop": ["all"], "add": ["CAP_KILL"]})), ["CAP_KILL"]);
    assert_eq!(caps(json!({"add": ["ALL"], "drop": ["KILL"]})), ["CAP_CHOWN", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);

    let locked = json!({"securityContext": {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false}});
    let spec = built(locked, &host(false), |_| {});
    assert_eq!((&spec["root"]["readonly"], &spec["process"]["noNewPrivileges"]), (&json!(true), &json!(true)));

    let spec = built(json!({"securityContext": {"privileged": true}}), &host(true), |_| {});
    let linux = &spec["linux"];
    assert_eq!(sorted(&spec["process"]["capabilities"]["bounding"]).len(), 4);
    assert_eq!((linux.get("maskedPaths"), linux.get("readonlyPaths")), (None, None));
    assert_eq!(linux["resources"]["devices"], json!([{"allow": true, "access": "rwm"}]));
    assert_eq!(linux["devices"][0]["path"], "/dev/null");
    let sys = spec["mounts"].as_array().unwrap().iter().find(|m| m["destination"] == "/sys").unwrap();
    assert!(sys["options"].as_array().unwrap().contains(&json!("rw")));
}

#[test]
fn volumes_come_after_the_defaults_and_replace_them() {
    let bind = |source: &str, target: &str| Mount { source: source.into(), target: target.into(), ..Mount::default() };
    let spec = built(json!({}), &host(false), |input| {
        let slave = Mount { propagation: Propagation::HostToContainer, ..bind("/b", "/data/deep") };
        let memory = Mount { read_only: true, ..bind("/c", "/m") };
        input.mounts = vec![slave, bind("/a", "/data"), bind("/shm", "/dev/shm"), memory];
    });
    let mounts = spec["mounts"].as_array().unwrap();
    let targets: Vec<&str> = mounts.iter().map(|m| m["destination"].as_str().unwrap()).collect();
    assert_eq!(
        targets,
        ["/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/data", "/m", "/data/deep", "/dev/shm"]
    );
    let options = |target: &str| &mounts[targets.iter().position(|t| *t == target).unwrap()]["options"];
    assert_eq!(options("/data"), &json!(["rbind", "rprivate", "rw"]));
    assert_eq!(options("/data/deep"), &json!(["rbind", "rslave", "rw"]));
    assert_eq!(options("/m"), &json!(["rbind", "rprivate", "ro"]));
    assert_eq!(spec["linux"]["rootfsPropagation"], "rslave");
}

#[test]
fn the_hosts_namespaces() {
    let spec = built(json!({}), &host(false), |input| {
        (input.namespaces, input.pid) = (PodNamespaces::default(), PidNamespace::Host);
    });
    assert_eq!(spec["linux"]["namespaces"], json!([{"type": "mount"}]));
    assert_eq!(spec.get("hostname"), None);
    let shm = spec["mounts"].as_array().unwrap().iter().find(|m| m["destination"] == "/dev/shm").unwrap();
    assert_eq!(shm["type"], "bind");
}

#[test]
fn unsupported_field_is_named() {
    let facts = host(false);
    let wrong = json!({"metadata": {}, "spec": {"containers": [
        {"name": "c", "securityContext": {"capabilities": {"add": ["MAGIC"]}}}]}});
    let pod: Pod = serde_json::from_value(wrong).unwrap();
    let mut input = Input {
        pod: &pod,
        container: &pod.spec.as_ref().unwrap().containers[0],
        argv: vec!["x".into()],
        env: Vec::new(),
        cwd: "/".into(),
        rootfs: Path::new("/r").into(),
        mounts: Vec::new(),
        namespaces: PodNamespaces::default(),
        pid: PidNamespace::Private,
        cgroup_path: "/x".into(),
        systemd: false,
        user: User::default(),
        oom_score_adj: 0,
        devices: Vec::new(),
        cpus: None,
        swap_limit: Some(0),
        seccomp: Seccomp::Unconfined,
        annotations: Vec::new(),
        apparmor: None,
        host: &facts,
    };
    assert_eq!(build(&input).unwrap_err(), SpecError::UnknownCapability("MAGIC".into()));
    input.argv.clear();
    assert_eq!(build(&input).unwrap_err(), SpecError::NoCommand);
}

#[test]
fn exclusive_cpus_have_no_quota() {
    let limits = json!({"cpu": "2", "memory": "32Mi"});
    let cpu = |cgroup_v2, exclusive| {
        let spec = built(json!({"resources": {"limits": limits}}), &host(cgroup_v2), |input| {
            let cpus = CpuSet::parse("1-2").unwrap();
            (input.cpus, input.systemd) = (Some(Given { cpus, exclusive }), true);
        });
        let quota = spec["annotations"].get("org.systemd.property.CPUQuotaPerSecUSec").is_some();
        (spec["linux"]["resources"]["cpu"].clone(), quota)
    };
    assert_eq!(cpu(true, true), (json!({"cpus": "1-2"}), false));
    assert_eq!(cpu(false, true), (json!({"shares": 2048, "cpus": "1-2"}), false));
    assert_eq!(cpu(true, false), (json!({"quota": 200_000, "period": 100_000, "cpus": "1-2"}), true));
    let everywhere = built(json!({"resources": {"limits": limits}}), &host(true), |_| {});
    assert_eq!(everywhere["linux"]["resources"]["cpu"], json!({"quota": 200_000, "period": 100_000}));
    let mut bare = host(true);
    bare.cpu_controller = false;
    let given = Given { cpus: CpuSet::of(3), exclusive: false };
    let spec = built(json!({}), &bare, |input| input.cpus = Some(given));
    assert_eq!(spec["linux"]["resources"]["cpu"], json!({"cpus": "3"}));
}

#[test]
fn a_scope_has_its_values_from_systemd() {
    let resources = json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "32Mi"}});
    let annotations = |systemd| {
        let spec = built(json!({"resources": resources}), &host(true), |input| input.systemd = systemd);
        spec["annotations"].clone()
    };
    assert_eq!(annotations(false), Value::Null);
    assert_eq!(
        annotations(true),
        json!({
            "org.systemd.property.CPUWeight": "uint64 35",
            "org.systemd.property.CPUQuotaPerSecUSec": "uint64 500000",
            "org.systemd.property.MemoryMax": "uint64 33554432",
            "org.systemd.property.MemorySwapMax": "uint64 0",
            "org.systemd.property.TasksMax": "uint64 18446744073709551615",
            "org.systemd.property.CollectMode": "'inactive-or-failed'",
            "run.oci.systemd.subgroup": "",
        })
    );
}
