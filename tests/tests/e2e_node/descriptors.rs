//! Few file descriptors and many containers: `TEST_PODS=110` is the maximum of a node, on the 1024 descriptors that
//! most systems allow a program; fewer pods get a proportional number.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell};
use sampan_tests::process::{signal, start_time};
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, until};
use serde_json::{Value, json};

use crate::configure;

const CONTAINERS: usize = 5;

fn pods() -> usize {
    std::env::var("TEST_PODS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// Runs a node with this soft limit and, if `hard`, also this hard limit; nothing can raise it then.
fn limited(limit: usize, hard: bool) -> Vec<String> {
    let which = if hard { "-n" } else { "-Sn" };
    let script = format!("ulimit {which} {limit} && exec setpriv --bounding-set -sys_resource \"$0\" \"$@\"");
    ["sh", "-c", &script].map(str::to_owned).into()
}

fn five(name: &str, node: &str) -> Value {
    let containers: Vec<Value> = (0..CONTAINERS).map(|n| shell(&format!("c{n}"), "exec sleep 100000")).collect();
    pod(name, node, json!(containers))
}

/// Pid and start time by container, from the OCI runtime's files in each bundle: asking it needs a process each.
fn processes(node: &EdgeNode) -> BTreeMap<String, (u32, u64)> {
    let bundles = std::fs::read_dir(node.root().join("run/edge-runtime/containers")).into_iter().flatten().flatten();
    let one = |bundle: std::fs::DirEntry| {
        let pid = std::fs::read_to_string(bundle.path().join("pid")).ok()?.trim().parse().ok()?;
        Some((bundle.file_name().into_string().ok()?, (pid, start_time(pid)?)))
    };
    bundles.filter_map(one).collect()
}

/// Waits until this many pods are Ready, without any restart.
fn wait_all_ready(kubectl: &Kubectl, count: usize) {
    let limit = Duration::from_secs(60 + 4 * u64::try_from(count).expect("few"));
    until(limit, &format!("{count} pods are Ready"), || {
        let list: Value =
            serde_json::from_str(&kubectl.run(&["get", "pods", "-o", "json"])?).map_err(|e| e.to_string())?;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let restarts = |pod: &Value| -> u64 {
            let all = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
            all.filter_map(|one| one["restartCount"].as_u64()).sum()
        };
        assert_eq!(pods.iter().map(restarts).sum::<u64>(), 0, "a container was started again");
        let ready = pods.iter().filter(|pod| sampan_tests::kubectl::is_ready(pod)).count();
        if ready >= count { Ok(()) } else { Err(format!("{ready} of {}", pods.len())) }
    });
}

/// Number of descriptors and memory in KiB of a process.
fn cost(pid: u32) -> (usize, u64) {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    (open, pss.unwrap_or_default())
}

fn tell(what: &str, node: &EdgeNode) {
    let daemon = node.daemon.as_ref().map(|daemon| cost(daemon.pid()));
    let monitor = node.monitor_pid().map(cost);
    // There is nothing to do if stderr is closed.
    let _ = writeln!(
        std::io::stderr(),
        "measured: {what}: daemon {daemon:?}, monitor {monitor:?} (descriptors, KiB of PSS)"
    );
}

fn kill_both(node: &mut EdgeNode) {
    node.kill();
    if let Some(monitor) = node.monitor_pid() {
        signal(monitor, "KILL");
    }
    until(Duration::from_secs(10), "the monitor has gone", || match node.monitor_pid() {
        None => Ok(()),
        Some(pid) => Err(pid.to_string()),
    });
}

#[test]
fn many_containers_need_few_descriptors_and_none_ends_for_want_of_one() {
    if !can_run() {
        return;
    }
    let pods = pods();
    let limit = (1024 * pods / 110).max(96);
    let cluster = Cluster::start("files");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    configure(&node, &format!("max-pods: {}\n", pods + 5));
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    // The common default of the soft limit, which the node raises.
    node.wrapper = limited(limit, false);
    node.start();
    node.wait_ready();
    let began = Instant::now();
    kubectl.apply_all(&(0..pods).map(|n| five(&format!("p{n}"), &on)).collect::<Vec<_>>());
    wait_all_ready(kubectl, pods);
    let all = processes(&node);
    assert_eq!(all.len(), pods * CONTAINERS);
    tell(&format!("{pods} pods of {CONTAINERS}, soft limit {limit}, ready in {:?}", began.elapsed()), &node);

    // As a hard limit it is too low for all of them: the next monitor must not end any.
    kill_both(&mut node);
    node.wrapper = limited(limit, true);
    node.start();
    node.wait_connected(&cluster);
    wait_all_ready(kubectl, pods);
    assert_eq!(processes(&node), all);
    tell(&format!("taken over with no more than {limit}"), &node);
    // Another pod finds no descriptors, reports it, and takes none from others.
    kubectl.apply_all(&[five("late", &on)]);
    // (Its events may be delayed: the number of events per minute is limited.)
    kubectl.wait_pod("late", 60, "says so", |pod| pod["status"].to_string().contains("too many open files"));
    // The end of a container is detected, whether or not there was a descriptor to watch it.
    let victims: Vec<u32> = all.values().step_by(CONTAINERS).map(|(pid, _)| *pid).collect();
    let restarts = || -> Result<u64, String> {
        let path = "-o=jsonpath={.items[*].status.containerStatuses[*].restartCount}";
        let counts = kubectl.run(&["get", "pods", path])?;
        Ok(counts.split_whitespace().filter_map(|count| count.parse::<u64>().ok()).sum())
    };
    let _ = kubectl.ok(&["delete", "pod", "late", "--wait=false"]);
    kubectl.wait_gone("pod", "late", 60);
    victims.iter().for_each(|pid| signal(*pid, "KILL"));
    until(Duration::from_secs(60), "each that was killed is seen to have ended", || {
        let now = processes(&node);
        let same = all.iter().filter(|(id, process)| now.get(*id) == Some(process)).count();
        assert!(same >= all.len() - victims.len(), "others have ended, too: {same} of {} are left", all.len());
        let list: Value =
            serde_json::from_str(&kubectl.run(&["get", "pods", "-o", "json"])?).map_err(|e| e.to_string())?;
        let pods = list["items"].as_array().into_iter().flatten();
        let all = pods.flat_map(|pod| pod["status"]["containerStatuses"].as_array().into_iter().flatten());
        let ended = all.filter(|one| one["restartCount"] != 0 || one["state"]["running"].is_null()).count();
        if ended >= victims.len() { Ok(()) } else { Err(format!("{ended} of {}", victims.len())) }
    });

    // With a higher limit everything runs.
    kill_both(&mut node);
    node.wrapper = Vec::new();
    node.start();
    node.wait_connected(&cluster);
    let wanted = u64::try_from(victims.len()).expect("few");
    until(Duration::from_secs(400), "all are started again, and once", || {
        let restarts = restarts()?;
        let running = processes(&node).len();
        if running == all.len() && restarts >= wanted {
            Ok(())
        } else {
            Err(format!("{running} run, {restarts} restarts"))
        }
    });
    let now = processes(&node);
    let same = all.iter().filter(|(id, process)| now.get(*id) == Some(process)).count();
    assert_eq!(same, all.len() - victims.len(), "nobody else was touched");
    tell("with room again", &node);
}
