//! A hostile client beside an honest one: its requests are refused, and the honest client is answered.
//!
//! Clients without an identity, as a pod, as a node and as an administrator send every method to every path that the
//! server documents, with valid objects that have invalid fields, and with unsuitable bodies, queries and bytes. No
//! answer is a server error, forbidden requests stay forbidden, memory does not leak, and nothing hangs.
//!
//! It runs about a minute; `TEST_HOSTILE_SECONDS` changes that (3600 is the long version), and `TEST_HOSTILE_SEED`
//! repeats a run. With `TEST_KUBECONFIG` it runs against that API server; `TEST_REFERENCE_KUBECONFIG` names another one
//! to compare codes with.

mod attack;
mod cases;
mod classes;
mod client;
mod flood;
mod http2;
mod machine;
mod objects;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use attack::{Ground, Who};
use cases::Random;
use client::{Access, Certificate, Client, Endpoint};
use objects::NAME;
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run};
use serde_json::Value;

/// Limit of the honest client's 99th percentile, on an idle machine.
const HONEST_P99: Duration = Duration::from_secs(1);
/// Limit of its slowest answer: a stalled server delays every client, which a percentile does not show.
const HONEST_WORST: Duration = Duration::from_secs(5);
/// Limit of the server's memory, as for a hostile node.
const MEMORY_MAX_KIB: u64 = 192 << 10;
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn identity(root: &Path) -> Option<Certificate> {
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else if entry.file_name() == "identity.json" {
                let identity: Value = serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok()?;
                let pem = |field: &str| identity[field].as_str().map(|text| text.as_bytes().to_vec());
                return pem("certificate").zip(pem("key"));
            }
        }
    }
    None
}

/// A line of `/proc/PID/status`, in KiB.
fn memory(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Reads and changes one object repeatedly; returns the times of the answers.
fn honest(endpoint: Endpoint, path: &str, stop: &AtomicBool) -> Vec<Duration> {
    let mut client = Client::new(endpoint);
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for (method, kind, body) in
            [("GET", "", ""), ("PATCH", "application/merge-patch+json", "{\"data\":{\"a\":\"b\"}}")]
        {
            let start = Instant::now();
            let answer = client.send(method, path, kind, body.as_bytes()).expect("the honest client is answered");
            assert_eq!(answer.map(|answer| answer.code), Some(200), "{method} {path}");
            times.push(start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    times
}

#[test]
fn nothing_that_a_client_sends_stops_the_api() {
    if !can_run() {
        return;
    }
    let seconds = number("TEST_HOSTILE_SECONDS").unwrap_or(60);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |d| d.as_secs());
    let seed = number("TEST_HOSTILE_SEED").unwrap_or(now).max(1);
    let patience = u32::try_from(number("TEST_PATIENCE").unwrap_or(1)).unwrap_or(1);
    let mut cluster = Cluster::start("hostile");
    let embedded = std::env::var_os("TEST_KUBECONFIG").is_none();
    let access = Access::of(&cluster.kubectl);
    let node = EdgeNode::bare(&cluster, "stolen");
    let bridge = format!("https://{}", cluster.listen);
    let _joined = node.edge_ok(&["join", "--bridge", &bridge, "--token", &cluster.token("stolen"), "--node", "stolen"]);
    let certificate = identity(node.root()).expect("the node has an identity");
    let account = cluster.kubectl.namespace.clone();
    let mut admin = Client::new(access.admin());
    let path = format!("/api/v1/namespaces/{account}/serviceaccounts/default/token");
    let answer =
        admin.send("POST", &path, "application/json", b"{\"spec\":{}}").expect("an answer").expect("an answer");
    let request: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let token = request["status"]["token"].as_str().map(str::to_owned).expect("a token");
    // The honest client works in another namespace than the hostile administrator.
    let maps = "/api/v1/namespaces/default/configmaps";
    let honest_map = format!("honest-{}", std::process::id());
    let body = format!("{{\"metadata\":{{\"name\":\"{honest_map}\"}}}}");
    let made = admin.send("POST", maps, "application/json", body.as_bytes()).expect("an answer").expect("an answer");
    assert_eq!(made.code, 201);
    let ground = Ground {
        places: cases::places(&mut admin, &account),
        models: objects::models(&account),
        garbage: cases::garbage(),
        bodies: cases::bodies(),
        huge: cases::huge_bodies(),
        long: "a".repeat(1 << 20),
        embedded,
    };
    let mut clients = vec![
        (Who::Anonymous, Client::new(access.with(None, None))),
        (Who::Pod, Client::new(access.with(None, Some(token)))),
        (Who::Node, Client::new(access.with(Some(&certificate), None))),
        (Who::Admin, admin),
    ];
    // Clients that send nothing, or an incomplete request, delay no other client.
    let held = [&b""[..], b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\n"]
        .map(|said| clients[0].1.hold(20, said).expect("connections"));
    let mut random = Random(seed);
    let until = Instant::now() + Duration::from_secs(seconds);
    let stop = AtomicBool::new(false);
    let endpoint = access.admin();
    let object = format!("{maps}/{honest_map}");
    let pid = cluster.bridge.as_ref().map_or(0, sampan_tests::process::Process::pid);
    let ((tally, mut times), seen) = machine::beside(pid, cluster.folder(), || {
        std::thread::scope(|scope| {
            let honest = scope.spawn(|| honest(endpoint, &object, &stop));
            let tally = ground.attack(&mut clients, &mut random, until);
            stop.store(true, Ordering::Relaxed);
            (tally, honest.join().expect("the honest client goes on"))
        })
    });
    drop(held);
    let admin = &mut clients.last_mut().expect("clients").1;
    // Objects that are not deleted with the namespace, on a server that outlives the test.
    for path in ground.models.iter().map(|model| format!("{}/{NAME}", model.collection)).chain([object]) {
        let _gone = admin.send("DELETE", &path, "", b"");
    }
    times.sort();
    let worst = times.last().copied().unwrap_or_default();
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    let peak = memory(pid, "VmHWM:");
    let summary = format!(
        "seed {seed}, {seconds} s: {} requests on {} paths, {} unanswered, codes {:?}; honest: p99 {p99:?}, worst {worst:?} \
         of {}; the machine itself: {:?}; peak {peak} KiB; slowest {:?}",
        tally.sent,
        ground.places.len(),
        tally.unanswered,
        tally.codes,
        times.len(),
        seen.longest,
        tally.slowest,
    );
    let _told = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("hostile-client: {summary}\n"));
    assert!(tally.wrong.is_empty(), "{summary}\n{}", tally.wrong.join("\n"));
    assert_eq!(tally.left, 0, "not everything was tried once: {summary}");
    assert!(cluster.bridge.as_mut().is_some_and(sampan_tests::process::Process::is_running), "{summary}");
    assert!(!cluster.log().contains("panic at"), "{summary}\n{}", cluster.log());
    // All clients were authenticated as expected: the pod was known and refused, the administrator was allowed.
    let known = tally.codes.get(&(Who::Pod, 403)).copied().unwrap_or_default();
    let done = tally.count(Who::Admin, 200..300);
    assert!(known > 100 && done > 100 && tally.count(Who::Admin, 400..500) > 100, "{summary}");
    assert!(
        times.len() > 100 && p99 < HONEST_P99 * patience && worst < HONEST_WORST * patience + seen.allowance(),
        "{summary}"
    );
    assert!(!embedded || peak < MEMORY_MAX_KIB, "{summary}");
}

#[test]
fn answers_are_those_of_kubernetes() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("classes");
    let mut ours = Client::new(Access::of(&cluster.kubectl).admin());
    let reference = std::env::var_os("TEST_REFERENCE_KUBECONFIG");
    let mut reference =
        reference.map(|path| Client::new(Access::of(&Kubectl::new(Path::new(&path), "default")).admin()));
    let mut wrong = Vec::new();
    for (method, path, kind, body, recorded) in classes::cases() {
        let ask = |client: &mut Client, namespace: &str| {
            let path =
                if path.starts_with('/') { path.to_owned() } else { format!("/api/v1/namespaces/{namespace}/{path}") };
            client.send(method, &path, kind, body.as_bytes()).expect("an answer").map(|answer| answer.code)
        };
        let expected = match &mut reference {
            Some(reference) => ask(reference, "default"),
            None => Some(recorded),
        };
        let found = ask(&mut ours, &cluster.kubectl.namespace);
        // Closing the connection before a long body has ended is a refusal too.
        let same = found == expected || (body.len() > 1 << 20 && (found.is_none() || expected.is_none()));
        if !same {
            let body: String = body.chars().take(60).collect();
            wrong.push(format!("{method} {path} {kind} {body}: {found:?}, Kubernetes {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
