//! Each process is killed, in any order and at any moment: containers keep running, exit codes are right, nothing
//! starts twice, and everything recovers without a network.

mod poison;
mod statics;
mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sampan_tests::manifest::{container_id, host_path, pod, shell, with, with_spec};
use sampan_tests::process::{signal, start_time};
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, until};
use serde_json::{Value, json};

/// Pid and start time of every container: the same pair is the same process.
fn processes(node: &EdgeNode) -> BTreeMap<String, (u32, Option<u64>)> {
    node.container_pids().into_iter().map(|(id, pid)| (id, (pid, start_time(pid)))).collect()
}

fn wait_running(node: &EdgeNode, count: usize) -> BTreeMap<String, (u32, Option<u64>)> {
    until(Duration::from_secs(30), &format!("{count} containers run"), || {
        let now = processes(node);
        if now.len() == count { Ok(now) } else { Err(format!("{now:?}")) }
    })
}

fn sleeper(name: &str, node: &str) -> Value {
    pod(name, node, json!([shell("c", "exec sleep 1000")]))
}

/// Waits for the file and exits 7.
fn ends_on_file(name: &str, node: &str, folder: &Path) -> Value {
    let script = format!("until [ -e /switch/{name} ]; do sleep 0.05; done; exit 7");
    let container = with(shell("c", &script), &json!({"volumeMounts": [{"name": "switch", "mountPath": "/switch"}]}));
    let spec = json!({"restartPolicy": "Never", "volumes": [host_path("switch", folder)]});
    with_spec(pod(name, node, json!([container])), &spec)
}

#[test]
fn containers_outlive_all_of_us() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("survive");
    let mut node = cluster.node("edge");
    let on = node.name.clone();
    let switch = cluster.folder().join("switch");
    std::fs::create_dir(&switch).expect("a folder");
    cluster.kubectl.apply_all(&[
        sleeper("a", &on),
        sleeper("b", &on),
        sleeper("deleted", &on),
        ends_on_file("ends", &on, &switch),
    ]);
    for name in ["a", "b", "deleted", "ends"] {
        cluster.kubectl.wait_ready(name);
    }
    let before = wait_running(&node, 4);
    let monitor = |node: &EdgeNode| {
        until(Duration::from_secs(10), "a monitor runs", || node.monitor_pid().ok_or_else(|| "none".to_owned()))
    };

    for order in ["dmb", "mdb", "bmd", "bdm", "m"] {
        for which in order.chars() {
            match which {
                'd' => node.kill(),
                'm' => signal(monitor(&node), "KILL"),
                _ => cluster.kill_bridge(),
            }
        }
        assert_eq!(processes(&node), before, "killed in order {order}");
        if cluster.bridge.is_none() {
            cluster.start_bridge();
        }
        if node.daemon.is_none() {
            node.start();
        }
        node.wait_connected(&cluster);
        assert_eq!(processes(&node), before, "started again after {order}");
    }

    // Only the monitor sees this end, and the daemon gets the right exit code later.
    monitor(&node);
    node.kill();
    std::fs::write(switch.join("ends"), "").expect("a file");
    wait_running(&node, 3);
    let _ = cluster.kubectl.ok(&["delete", "pod", "deleted", "--wait=false"]);
    node.start();
    let ended = cluster.kubectl.wait_phase("ends", "Failed");
    let status = &ended["status"]["containerStatuses"][0];
    assert_eq!(status["state"]["terminated"]["exitCode"], 7, "{status}");
    assert_eq!(status["restartCount"], 0);
    cluster.kubectl.wait_gone("pod", "deleted", 15);
    let left = wait_running(&node, 2);
    assert!(left.iter().all(|(id, process)| before.get(id) == Some(process)), "{left:?}");
    for name in ["a", "b"] {
        let pod = cluster.kubectl.wait_ready(name);
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    }
}

/// A new store on an old device: an ended pod does not run again, and its status stays.
#[test]
fn a_node_without_a_memory_runs_nothing_twice() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("amnesia");
    let mut node = cluster.node("edge");
    let on = node.name.clone();
    let runs = cluster.folder().join("runs");
    std::fs::create_dir(&runs).expect("a folder");
    let mounts = json!({"volumeMounts": [{"name": "runs", "mountPath": "/runs"}]});
    let once = with(shell("c", "echo run >> /runs/log; exit 3"), &mounts);
    let spec = json!({"restartPolicy": "Never", "volumes": [host_path("runs", &runs)]});
    cluster.kubectl.apply_all(&[with_spec(pod("once", &on, json!([once])), &spec)]);
    let before = cluster.kubectl.wait_phase("once", "Failed");
    assert_eq!(before["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);

    node.kill();
    node.edge_ok(&["reset", "--all"]);
    let bridge = format!("https://{}", cluster.listen);
    node.edge_ok(&["join", "--bridge", &bridge, "--token", &cluster.token(&on), "--node", &on]);
    node.import_busybox(&cluster);
    node.start();
    cluster.kubectl.apply_all(&[sleeper("later", &on)]);
    cluster.kubectl.wait_ready("later");
    assert_eq!(std::fs::read_to_string(runs.join("log")).expect("a file"), "run\n");
    let after = cluster.kubectl.get("pod", "once").expect("a pod");
    assert_eq!(after["status"], before["status"]);
}

/// Files of the embedded API's state: everything that begins with the database's name.
fn api_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the bridge's state");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("api.db"))).collect()
}

fn copy_api(from: &Path, to: &Path) {
    for file in api_files(from) {
        let _bytes = std::fs::copy(&file, to.join(file.file_name().expect("a name"))).expect("a copy");
    }
}

#[test]
fn an_api_that_comes_back_from_a_backup_is_told_what_is() {
    if !can_run() || std::env::var_os("TEST_KUBECONFIG").is_some() {
        return;
    }
    let mut cluster = Cluster::start("backup");
    let node = cluster.node("edge");
    let on = node.name.clone();
    let switch = cluster.folder().join("switch");
    std::fs::create_dir(&switch).expect("a folder");
    cluster.kubectl.apply_all(&[ends_on_file("ends", &on, &switch), sleeper("runs", &on)]);
    cluster.kubectl.wait_ready("ends");
    cluster.kubectl.wait_ready("runs");

    let (state, backup) = (cluster.folder().join("bridge"), cluster.folder().join("backup"));
    std::fs::create_dir(&backup).expect("a folder");
    cluster.kill_bridge();
    copy_api(&state, &backup);
    cluster.start_bridge();
    std::fs::write(switch.join("ends"), "").expect("a file");
    let ended = cluster.kubectl.wait_phase("ends", "Failed");

    cluster.kill_bridge();
    api_files(&state).iter().for_each(|file| std::fs::remove_file(file).expect("removed"));
    copy_api(&backup, &state);
    cluster.start_bridge();
    assert_eq!(cluster.kubectl.get("pod", "ends").expect("a pod")["status"]["phase"], "Running");
    // Ten seconds, the ten of the node's next check, and its reconnect.
    until(Duration::from_secs(60), "the end is told again", || {
        let pod = cluster.kubectl.get("pod", "ends")?;
        let (now, then) = (&pod["status"]["containerStatuses"], &ended["status"]["containerStatuses"]);
        if now == then { Ok(()) } else { Err(now.to_string()) }
    });
    let pod = cluster.kubectl.get("pod", "ends").expect("a pod");
    assert_eq!(
        (&pod["status"]["phase"], &pod["status"]["conditions"]),
        (&"Failed".into(), &ended["status"]["conditions"])
    );
    let pod = cluster.kubectl.get("pod", "runs").expect("a pod");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[test]
fn everything_comes_back_without_a_network() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("cold");
    let mut node = cluster.node("edge");
    let on = node.name.clone();
    let _ = cluster.kubectl.ok(&["create", "configmap", "settings", "--from-literal=k=v"]);
    let configured = with(
        shell("c", "[ $K = v ] && cat /s/k && exec sleep 1000"),
        &json!({"env": [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}}],
            "volumeMounts": [{"name": "s", "mountPath": "/s"}]}),
    );
    let configured = with_spec(
        pod("configured", &on, json!([configured])),
        &json!({"volumes": [{"name": "s", "configMap": {"name": "settings"}}]}),
    );
    let done = with_spec(pod("done", &on, json!([shell("c", "exit 3")])), &json!({"restartPolicy": "Never"}));
    cluster.kubectl.apply_all(&[sleeper("a", &on), sleeper("b", &on), configured, done]);
    for name in ["a", "b", "configured"] {
        cluster.kubectl.wait_ready(name);
    }
    cluster.kubectl.wait_phase("done", "Failed");
    let before = wait_running(&node, 3);
    cluster.kill_bridge();
    node.kill();
    // State after a power cut: the disk, and no process.
    node.edge_ok(&["reset"]);
    assert!(node.container_pids().is_empty());
    node.start();
    let after = wait_running(&node, 3);
    assert!(after.keys().all(|id| !before.contains_key(id)), "new attempts have new ids");

    cluster.start_bridge();
    node.wait_connected(&cluster);
    for name in ["a", "b", "configured"] {
        let pod = cluster.kubectl.wait_ready(name);
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1, "{pod}");
    }
    let done = cluster.kubectl.get("pod", "done").expect("a pod");
    assert_eq!(done["status"]["phase"], "Failed");
    assert_eq!(done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    assert_eq!(wait_running(&node, 3), after, "the connection changed nothing");

    let uid = done["metadata"]["uid"].as_str().unwrap_or_default();
    let folder = node.root().join("var/lib/edge-runtime/pods").join(uid);
    assert!(folder.exists(), "it shows that the logs are this node's");
    let _ = cluster.kubectl.ok(&["delete", "pod", "done", "--wait=false"]);
    until(Duration::from_secs(20), "the folder goes with the logs", || match folder.exists() {
        true => Err(node.log()),
        false => Ok(()),
    });
}

/// xorshift64*: good enough to select moments.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end
    }
}

/// A container that writes its start, and `twice` if another one of the same pod still holds the lock. `then` releases
/// the lock if the container will restart.
fn noting(name: &str, node: &str, notes: &Path, then: &str, policy: &str) -> Value {
    let script = format!("mkdir /notes/lock-{name} || echo twice >>/notes/{name}; echo start >>/notes/{name}; {then}");
    let container = with(shell("c", &script), &json!({"volumeMounts": [{"name": "notes", "mountPath": "/notes"}]}));
    let spec = json!({"restartPolicy": policy, "volumes": [host_path("notes", notes)]});
    with_spec(pod(name, node, json!([container])), &spec)
}

/// All pods of the namespace by name.
fn list(kubectl: &Kubectl) -> Result<BTreeMap<String, Value>, String> {
    let text = kubectl.run(&["get", "pods", "-o", "json"])?;
    let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().map(|pod| (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod)).collect())
}

#[test]
fn twenty_random_deaths_of_the_daemon() {
    use std::io::Write;
    if !can_run() {
        return;
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = std::env::var("SAMPAN_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(u64::from(clock.subsec_nanos()) | 1);
    let _ = writeln!(std::io::stderr(), "SAMPAN_SEED={seed}");
    let mut random = Random(seed);
    let cluster = Cluster::start("deaths");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    let read = |name: &str| std::fs::read_to_string(notes.join(name)).unwrap_or_default();

    let mut steady: Option<(u32, Option<u64>)> = None;
    for round in 0..20 {
        // Three kinds that run through all rounds, and pods of this round that are created, fail and are deleted.
        let on = node.name.clone();
        let own = |kind: &str, index: usize| format!("{kind}-{round}-{index}");
        let mut objects = vec![noting("steady", &on, &notes, "exec sleep 1000", "Always")];
        for index in 0..3 {
            objects.push(noting(&own("run", index), &on, &notes, "exec sleep 1000", "Always"));
            objects.push(noting(&own("fail", index), &on, &notes, "sleep 0.1; exit 7", "Never"));
            let again = "rmdir /notes/lock-$HOSTNAME; [ $(grep -c start /notes/$HOSTNAME) -ge 2 ] && exit 0; exit 9";
            objects.push(noting(&own("again", index), &on, &notes, again, "OnFailure"));
        }
        for object in objects.iter_mut().skip(1) {
            object["metadata"]["labels"] = json!({"round": round.to_string()});
        }
        kubectl.apply_all(&objects);
        if round % 2 == 1 {
            // Some of them are deleted while they start or just after.
            let _ = kubectl.ok(&["delete", "pod", &own("run", 0), &own("fail", 0), "--wait=false"]);
        }
        std::thread::sleep(Duration::from_millis(random.below(1500)));
        node.kill();
        std::thread::sleep(Duration::from_millis(random.below(300)));
        node.start();

        let gone = |name: &str| round % 2 == 1 && (name == own("run", 0) || name == own("fail", 0));
        until(Duration::from_secs(60), &format!("seed {seed}, round {round}: all is right"), || {
            let pods = list(kubectl)?;
            for index in 0..3 {
                for (kind, phase) in [("run", "Running"), ("fail", "Failed"), ("again", "Succeeded")] {
                    let name = own(kind, index);
                    match (pods.get(&name), gone(&name)) {
                        (None, true) => {}
                        (Some(pod), false) if pod["status"]["phase"] == phase => {}
                        (pod, _) => return Err(format!("{name}: {:?}", pod.map(|pod| pod["status"].to_string()))),
                    }
                }
            }
            Ok(())
        });
        let pods = list(kubectl).expect("pods");
        let of = |name: &str| pods[name]["status"]["containerStatuses"][0].clone();
        for index in 0..3 {
            let (run, fail, again) = (own("run", index), own("fail", index), own("again", index));
            if !gone(&run) {
                assert_eq!(
                    of(&fail)["state"]["terminated"]["exitCode"],
                    7,
                    "seed {seed}, round {round}: {}",
                    of(&fail)
                );
                assert_eq!(read(&fail), "start\n", "seed {seed}, round {round}: {fail}");
                let notes = until(Duration::from_secs(5), "it has started", || {
                    let notes = read(&run);
                    if notes.is_empty() { Err(run.clone()) } else { Ok(notes) }
                });
                assert_eq!(notes, "start\n", "seed {seed}, round {round}: {run}");
            }
            let status = of(&again);
            assert_eq!(status["lastState"]["terminated"]["exitCode"], 9, "seed {seed}, round {round}: {status}");
            assert_eq!(status["restartCount"], 1, "seed {seed}, round {round}: {status}");
            assert_eq!(read(&again), "start\nstart\n", "seed {seed}, round {round}: {again}");
        }
        let id = container_id(&of("steady"));
        let process = processes(&node)[&id];
        assert_eq!(*steady.get_or_insert(process), process, "seed {seed}, round {round}");
        assert_eq!(read("steady"), "start\n", "seed {seed}, round {round}");
        let _ = kubectl.ok(&["delete", "pods", "-l", &format!("round={round}"), "--wait=false"]);
    }
    for entry in std::fs::read_dir(&notes).expect("a folder").flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        assert!(!text.contains("twice"), "seed {seed}: {} ran twice at once", entry.path().display());
    }
}

/// The monitor's record of a container is damaged: the container starts again. Its old processes are ended first or, if
/// they cannot be identified, with its pod.
#[test]
fn what_nobody_knows_of_does_not_run_on() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("unknown");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[sleeper("a", &node.name)]);
    kubectl.wait_ready("a");
    let before = wait_running(&node, 1);
    let (id, (old, began)) = before.iter().next().expect("a container");
    node.kill();
    signal(node.monitor_pid().expect("a monitor"), "KILL");
    let saved = node.root().join(format!("run/edge-runtime/containers/{id}/monitor.json"));
    std::fs::write(saved, "{").expect("damaged");
    node.start();
    until(Duration::from_secs(20), "it starts again", || {
        let status = kubectl.get("pod", "a")?["status"]["containerStatuses"][0].clone();
        if status["restartCount"] == 1 && status["ready"] == true { Ok(()) } else { Err(status.to_string()) }
    });
    until(Duration::from_secs(10), "the first one has ended", || {
        let stat = std::fs::read_to_string(format!("/proc/{old}/stat")).unwrap_or_default();
        let is_it = start_time(*old) == *began && !stat.contains(") Z ");
        if is_it { Err(stat) } else { Ok(()) }
    });
    // A foreign process in the pod's cgroup does not keep the pod alive.
    let mut stranger = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep starts");
    let pid = node.container_pids().into_values().next().expect("a container");
    for file in cgroup_files(pid) {
        std::fs::write(file, stranger.id().to_string()).expect("moved");
    }
    let _ = kubectl.ok(&["delete", "pod", "a", "--wait=false"]);
    let ended = until(Duration::from_secs(20), "the stranger ends", || {
        stranger.try_wait().map_err(|error| error.to_string())?.ok_or_else(|| "it runs".to_owned())
    });
    assert!(!ended.success());
    kubectl.wait_gone("pod", "a", 20);
}

/// `cgroup.procs` of a process's pod, in each hierarchy.
fn cgroup_files(pid: u32) -> Vec<std::path::PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process");
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.strip_prefix('/')?);
        let mount = match controllers {
            "" if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() => String::new(),
            "" => "unified".to_owned(),
            named => named.trim_start_matches("name=").to_owned(),
        };
        let pod = Path::new("/sys/fs/cgroup").join(mount).join(path).parent()?.join("cgroup.procs");
        (pod.exists() && path.contains("/pod")).then_some(pod)
    };
    text.lines().filter_map(of_line).collect()
}
