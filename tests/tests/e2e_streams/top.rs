//! `kubectl top` shows the values of the cgroups.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{container_id, pod, shell, with, with_spec};
use sampan_tests::{Cluster, Kubectl, can_run, until};
use serde_json::{Value, json};

use crate::kubectls;

/// The counters of a process's cgroup: nanoseconds of CPU, and bytes of the working set.
fn counters(pid: u32) -> (f64, f64) {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process is there");
    let folder = |controller: &str| {
        let of = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let named = parts.next()?.split(',').any(|name| name == controller);
            Some(parts.next()?.trim_start_matches('/').to_owned()).filter(|_| named)
        };
        groups.lines().find_map(of)
    };
    let number = |path: PathBuf, key: Option<&str>| -> f64 {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let words = match key {
            Some(key) => text.lines().find_map(|line| line.strip_prefix(key)).expect("the key").trim(),
            None => text.trim(),
        };
        words.parse().expect("a number")
    };
    let root = PathBuf::from("/sys/fs/cgroup");
    match (folder("cpuacct"), folder("memory")) {
        (Some(cpu), Some(memory)) => {
            let memory = root.join("memory").join(memory);
            let used = number(memory.join("memory.usage_in_bytes"), None);
            let idle = number(memory.join("memory.stat"), Some("total_inactive_file "));
            (number(root.join("cpuacct").join(cpu).join("cpuacct.usage"), None), used - idle)
        }
        _ => {
            let group = root.join(folder("").expect("a v2 cgroup"));
            let idle = number(group.join("memory.stat"), Some("inactive_file "));
            let used = number(group.join("memory.current"), None);
            (number(group.join("cpu.stat"), Some("usage_usec ")) * 1e3, used - idle)
        }
    }
}

/// Whether two numbers differ by at most a tenth.
fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 0.1 * one.max(other)
}

/// `200m` as billionths of a core, `20Mi` as bytes.
fn quantity(text: &str) -> f64 {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "m" => 1e6,
        "" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        other => panic!("unit {other:?}"),
    };
    number.parse::<f64>().expect("a number") * unit
}

#[test]
fn top_is_what_the_cgroups_say() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("top");
    if !cluster.proxies_to_nodes() {
        return;
    }
    let node = cluster.node("edge");
    let work = "dd if=/dev/zero of=/memory/file bs=1M count=64; while :; do :; done";
    let limits = json!({"volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
        "resources": {"limits": {"cpu": "300m", "memory": "128Mi"}}});
    let volumes = json!({"volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}]});
    let busy = with_spec(pod("busy", &node.name, json!([with(shell("c", work), &limits)])), &volumes);
    cluster.kubectl.apply_all(&[busy]);
    let ready = cluster.kubectl.wait_ready("busy");
    let pid = node.container_pids()[&container_id(&ready["status"]["containerStatuses"][0])];
    for kubectl in kubectls(&cluster) {
        until(Duration::from_secs(60), "the numbers agree", || {
            let (began, (before, _)) = (Instant::now(), counters(pid));
            let (cpu, memory) = shown(&kubectl, &node.name)?;
            let (after, working_set) = counters(pid);
            let rate = (after - before) / began.elapsed().as_secs_f64();
            let said = format!("shown {cpu} {memory}, cgroup {rate} {working_set}");
            if near(cpu, rate) && near(memory, working_set) && memory > 64e6 { Ok(()) } else { Err(said) }
        });
        let path = format!("/api/v1/nodes/{}/proxy/metrics/resource", node.name);
        let metrics = kubectl.ok(&["get", "--raw", &path]);
        let of_pod = format!("{{container=\"c\",namespace=\"{}\",pod=\"busy\"}}", kubectl.namespace);
        for name in ["container_cpu_usage_seconds_total", "container_memory_working_set_bytes"] {
            assert!(metrics.contains(&format!("{name}{of_pod} ")), "{name} is missing in {metrics}");
        }
        assert!(metrics.contains("\nresource_scrape_error 0\n"), "{metrics}");
    }
}

/// CPU and memory of the pod from `kubectl top`; on a cluster, where metrics-server is needed for that, from the
/// endpoint that metrics-server reads.
fn shown(kubectl: &Kubectl, node: &str) -> Result<(f64, f64), String> {
    if std::env::var_os("TEST_KUBECONFIG").is_none() {
        let line = kubectl.run(&["top", "pod", "busy", "--no-headers"])?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, cpu, memory] = words[..] else { return Err(line) };
        let nodes = kubectl.run(&["top", "node", "--no-headers"])?;
        if !nodes.contains(node) {
            return Err(nodes);
        }
        return Ok((quantity(cpu), quantity(memory)));
    }
    let summary = kubectl.run(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/stats/summary")])?;
    let summary: Value = serde_json::from_str(&summary).map_err(|error| error.to_string())?;
    let pods = summary["pods"].as_array().into_iter().flatten();
    let pod = pods.into_iter().find(|pod| pod["podRef"]["name"] == "busy").ok_or_else(|| summary.to_string())?;
    let stats = &pod["containers"][0];
    let numbers = (stats["cpu"]["usageNanoCores"].as_f64(), stats["memory"]["workingSetBytes"].as_f64());
    numbers.0.zip(numbers.1).ok_or_else(|| stats.to_string())
}
