//! Real cgroups of this host, under a parent of the test's own that is removed at its end.
#![allow(clippy::print_stderr)]

use std::time::{Duration, Instant};

use super::weight::weight_of_shares;
use super::*;

struct Tree(Cgroups);

impl Tree {
    /// Returns `None` where cgroups cannot be created, and prints the reason.
    fn new(name: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root to make cgroups");
            return None;
        }
        let tree = Cgroups::detect(Driver::Cgroupfs, &format!("/net-test-{name}-{}", std::process::id())).ok()?;
        if let Err(error) = tree.prepare() {
            eprintln!("skipped: cgroups cannot be made here: {error}");
            return None;
        }
        Some(Self(tree))
    }

    fn read(&self, controller: &str, path: &str, file: &str) -> String {
        let mount = self.0.hierarchies.of(controller).unwrap();
        std::fs::read_to_string(self.0.below(mount, path).join(file)).unwrap().trim().to_string()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.0.teardown().unwrap();
        let left =
            self.0.hierarchies.all().filter(|mount| self.0.below(mount, &self.0.names.parent()).exists()).count();
        assert_eq!(left, 0, "cgroups are left behind");
    }
}

const VALUES: CgroupValues = CgroupValues {
    cpu_shares: Some(512),
    cpu_quota_us: Some(50_000),
    memory_limit_bytes: Some(64 << 20),
    pids_limit: Some(100),
};

#[test]
fn a_pods_values_reach_the_kernel_and_can_be_set_again() {
    let Some(tree) = Tree::new("values") else { return };
    tree.0.create_pod(PodCgroupClass::Burstable, "u1", &VALUES).unwrap();
    tree.0.create_pod(PodCgroupClass::Burstable, "u1", &VALUES).unwrap();
    let path = tree.0.pod_path(PodCgroupClass::Burstable, "u1");
    assert!(path.ends_with("/burstable/podu1"));
    if tree.0.controllers().memory {
        let file = if tree.0.hierarchies.version == CgroupVersion::V1 { "memory.limit_in_bytes" } else { "memory.max" };
        assert_eq!(tree.read("memory", &path, file), (64 << 20).to_string());
        assert!(tree.0.reader().usage(&path).memory_bytes.is_some());
    }
    if tree.0.controllers().cpu && tree.0.hierarchies.version == CgroupVersion::V1 {
        assert_eq!(tree.read("cpu", &path, "cpu.shares"), "512");
        assert_eq!(tree.read("cpu", &path, "cpu.cfs_quota_us"), "50000");
    }
    if tree.0.controllers().cpu && tree.0.hierarchies.version == CgroupVersion::V2 {
        assert_eq!(tree.read("cpu", &path, "cpu.weight"), weight_of_shares(512).to_string());
        assert_eq!(tree.read("cpu", &path, "cpu.max"), "50000 100000");
        assert_eq!(tree.read("pids", &path, "pids.max"), "100");
    }
    assert_eq!(tree.0.pods(), vec![(PodCgroupClass::Burstable, "u1".to_string())]);
    tree.0.remove_pod(PodCgroupClass::Burstable, "u1").unwrap();
    tree.0.remove_pod(PodCgroupClass::Burstable, "u1").unwrap();
    assert!(tree.0.pods().is_empty());
}

#[test]
fn burstable_pods_weigh_their_sum_also_after_a_restart() {
    let Some(tree) = Tree::new("sum") else { return };
    if !tree.0.controllers().cpu {
        return;
    }
    let class = format!("{}/burstable", tree.0.names.parent());
    let weight = || match tree.0.hierarchies.version {
        CgroupVersion::V1 => tree.read("cpu", &class, "cpu.shares").parse::<u64>().unwrap(),
        CgroupVersion::V2 => weight::shares_of_weight(tree.read("cpu", &class, "cpu.weight").parse().unwrap()),
    };
    let values = |shares| CgroupValues { cpu_shares: Some(shares), ..CgroupValues::default() };
    let near = |shares: u64| assert!(weight().abs_diff(shares) <= shares / 20, "{} is not about {shares}", weight());
    tree.0.create_pod(PodCgroupClass::Burstable, "u1", &values(2048)).unwrap();
    tree.0.create_pod(PodCgroupClass::Burstable, "u2", &values(512)).unwrap();
    near(2560);
    let again = Cgroups::detect(Driver::Cgroupfs, &tree.0.names.parent()).unwrap();
    again.prepare().unwrap();
    again.create_pod(PodCgroupClass::Burstable, "u3", &values(1024)).unwrap();
    near(3584);
    again.remove_pod(PodCgroupClass::Burstable, "u1").unwrap();
    near(1536);
}

#[test]
fn cpus_of_a_container_reach_the_kernel() {
    let Some(tree) = Tree::new("cpus") else { return };
    if tree.0.hierarchies.version == CgroupVersion::V1 || !tree.0.has_cpuset() {
        eprintln!("skipped: needs cgroup v2 with the cpuset controller; on v1 the OCI runtime sets the parents");
        return;
    }
    tree.0.create_pod(PodCgroupClass::Guaranteed, "u1", &VALUES).unwrap();
    let mount = Path::new(MOUNT_POINT);
    let pod = tree.0.below(mount, &tree.0.pod_path(PodCgroupClass::Guaranteed, "u1"));
    tree::delegate(mount, &pod, &["cpuset"]).unwrap();
    let path = tree.0.container_path(PodCgroupClass::Guaranteed, "u1", "c1");
    tree.0.set_cpus(&path, "0", Vec::new).unwrap();
    assert!(!tree.0.below(mount, &path).exists(), "there is no container yet");
    tree::make(&tree.0.below(mount, &path)).unwrap();
    tree.0.set_cpus(&path, "0", Vec::new).unwrap();
    assert_eq!(tree.read("cpuset", &path, "cpuset.cpus"), "0");
    assert!(tree.0.set_cpus(&path, "9999", Vec::new).is_err());
}

#[test]
fn processes_come_back_to_a_cpuset_that_has_cpus_again() {
    let Some(tree) = Tree::new("back") else { return };
    if tree.0.hierarchies.version == CgroupVersion::V2 || !tree.0.has_cpuset() {
        eprintln!("skipped: only cgroup v1 moves processes out of a cpuset that has no CPU");
        return;
    }
    let path = tree.0.container_path(PodCgroupClass::Guaranteed, "u1", "c1");
    let mounts = [tree.0.hierarchies.of("cpuset"), tree.0.hierarchies.for_processes()].map(Option::unwrap);
    let [own, other] = mounts.map(|mount| tree.0.below(mount, &path));
    tree::make(&own).unwrap();
    tree::make(&other).unwrap();
    // As the OCI runtime does it, from the top.
    let groups: Vec<&Path> = own.ancestors().take_while(|group| *group != mounts[0]).collect();
    for group in groups.into_iter().rev() {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let all = std::fs::read_to_string(mounts[0].join(file)).unwrap();
            tree::write(&group.join(file), all.trim()).unwrap();
        }
    }
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    tree::write(&other.join("cgroup.procs"), &child.id().to_string()).unwrap();
    // The set differs from the present one on any machine: it is empty as after the kernel took its last CPU.
    tree::write(&own.join("cpuset.cpus"), "\n").unwrap();
    tree.0.set_cpus(&path, "0", Vec::new).unwrap();
    assert_eq!(tree.read("cpuset", &path, "cgroup.procs"), child.id().to_string());
    assert_eq!(tree.read("cpuset", &path, "cpuset.cpus"), "0");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn cpus_of_the_nodes_cgroup_are_shown() {
    assert!(Cgroups::absent().files_of_cpus().is_empty());
    let Some(tree) = Tree::new("shown") else { return };
    if !tree.0.has_cpuset() {
        eprintln!("skipped: needs the cpuset controller");
        return;
    }
    let files = tree.0.files_of_cpus();
    let [own, all] = files.as_slice() else { panic!("{files:?}") };
    let shown = |file: &Path| std::fs::read_to_string(file).unwrap().trim().to_owned();
    assert_ne!(shown(all), "");
    let parent = own.parent().unwrap();
    // On v1 the OCI runtime makes it.
    tree::make(parent).unwrap();
    tree::write(&parent.join("cpuset.cpus"), "0").unwrap();
    assert_eq!(shown(own), "0");
}

#[test]
fn busy_cgroup_is_removed_after_the_kill() {
    let Some(tree) = Tree::new("busy") else { return };
    tree.0.create_pod(PodCgroupClass::BestEffort, "u1", &VALUES).unwrap();
    let path = tree.0.pod_path(PodCgroupClass::BestEffort, "u1");
    let mount = tree.0.hierarchies.for_processes().unwrap();
    let container = tree.0.below(mount, &path).join("c1");
    tree::make(&container).unwrap();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    tree::write(&container.join("cgroup.procs"), &child.id().to_string()).unwrap();
    assert!(matches!(tree.0.remove_pod(PodCgroupClass::BestEffort, "u1"), Err(CgroupError::Busy(_))));
    tree.0.kill_pod(PodCgroupClass::BestEffort, "u1").unwrap();
    assert!(!child.wait().unwrap().success());
    let until = Instant::now() + Duration::from_secs(5);
    while let Err(error) = tree.0.remove_pod(PodCgroupClass::BestEffort, "u1") {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn processes_in_the_way_of_controllers_move_into_a_leaf() {
    let Some(tree) = Tree::new("leaf") else { return };
    if tree.0.hierarchies.version == CgroupVersion::V1 {
        eprintln!("skipped: only cgroup v2 forbids processes beside controllers");
        return;
    }
    let group = tree.0.below(Path::new(MOUNT_POINT), &tree.0.names.parent()).join("unit");
    tree::make(&group).unwrap();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    tree::write(&group.join("cgroup.procs"), &child.id().to_string()).unwrap();
    let inner = Cgroups::detect(Driver::Cgroupfs, &format!("{}/unit/node", tree.0.names.parent())).unwrap();
    inner.prepare().unwrap();
    inner.create_pod(PodCgroupClass::Guaranteed, "u1", &VALUES).unwrap();
    let moved = std::fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
    assert!(moved.trim().ends_with("/unit/edge-runtime"), "{moved}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn parents_that_could_leave_the_tree_are_refused() {
    for parent in ["", "/", "relative", "/a/../b", "/a//b"] {
        assert!(matches!(Cgroups::detect(Driver::Cgroupfs, parent), Err(CgroupError::Parent(_))), "{parent}");
    }
}

#[test]
#[ignore = "a measurement"]
fn fifty_pods_cost() {
    let Some(tree) = Tree::new("cost") else { return };
    let uids: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let start = Instant::now();
    for uid in &uids {
        tree.0.create_pod(PodCgroupClass::Burstable, uid, &VALUES).unwrap();
    }
    let made = Instant::now();
    for uid in &uids {
        tree.0.remove_pod(PodCgroupClass::Burstable, uid).unwrap();
    }
    eprintln!("create {:?}, remove {:?} per pod", (made - start) / 50, made.elapsed() / 50);
}

#[test]
fn systemds_driver_needs_systemd() {
    match Cgroups::detect(Driver::Systemd, "/net-test-driver") {
        Err(CgroupError::NoSystemd) => {
            assert!(!crate::systemd::is_init());
            let told = CgroupError::NoSystemd.to_string();
            assert!(
                told.contains("not started by systemd") && told.contains("set cgroup-driver to cgroupfs"),
                "{told}"
            );
        }
        Err(CgroupError::SystemdOnV1) => assert!(CgroupError::SystemdOnV1.to_string().contains("v1")),
        Err(error) => panic!("{error}"),
        Ok(tree) => assert_eq!(tree.names.parent(), "/net_test_driver.slice"),
    }
}
