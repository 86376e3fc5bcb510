//! One token that takes everything it can get: places, memory, connections, watches. Another user's writes succeed, and
//! the server's memory grows only a little.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Access, Client, Endpoint, Stream};
use crate::{http2, machine, memory};
use sampan_tests::{Cluster, can_run};
use serde_json::Value;

/// Limit of the server's growth by one token, in KiB: its share of answers and bodies, and its connections.
const GROWTH_KIB: u64 = 16 << 10;
/// Duration of one attack.
const ATTACK: Duration = Duration::from_secs(4);
/// Limit of another user's write, on an idle machine.
const WRITE: Duration = Duration::from_secs(1);

/// A token of a service account that may edit this namespace.
fn account(cluster: &Cluster, admin: &mut Client, namespace: &str) -> String {
    let mut made = |path: &str, body: String| {
        let answer =
            admin.send("POST", path, "application/json", body.as_bytes()).expect("an answer").expect("an answer");
        assert!(answer.code == 201 || answer.code == 409, "{path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice::<Value>(&answer.body).unwrap_or_default()
    };
    made("/api/v1/namespaces", format!("{{\"metadata\":{{\"name\":\"{namespace}\"}}}}"));
    made(
        &format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"),
        format!(
            "{{\"metadata\":{{\"name\":\"edit\"}},\"roleRef\":{{\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"ClusterRole\",\
             \"name\":\"edit\"}},\"subjects\":[{{\"kind\":\"ServiceAccount\",\"name\":\"default\",\"namespace\":\"{namespace}\"}}]}}"
        ),
    );
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    let _ = cluster.kubectl.ok(&["wait", "--for=create", "--timeout=60s", "-n", namespace, "serviceaccount/default"]);
    let token = made(&format!("{path}/token"), "{\"spec\":{}}".to_owned());
    token["status"]["token"].as_str().map(str::to_owned).expect("a token")
}

/// Changes an object repeatedly during `attack` and while its result is held; returns the longest write.
fn worst_write(endpoint: &Endpoint, path: &str, attack: impl FnOnce() -> Vec<Stream>) -> Duration {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let (mut client, mut worst) = (Client::new(endpoint.clone()), Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                let body = format!("{{\"data\":{{\"a\":\"{:?}\"}}}}", start.elapsed());
                let answer = client.send("PATCH", path, "application/merge-patch+json", body.as_bytes());
                let answer = answer.expect("an answer").expect("an answer");
                assert_eq!(answer.code, 200, "{}", String::from_utf8_lossy(&answer.body));
                worst = worst.max(start.elapsed());
                std::thread::sleep(Duration::from_millis(20));
            }
            worst
        });
        let held = attack();
        std::thread::sleep(ATTACK);
        stop.store(true, Ordering::Relaxed);
        let worst = honest.join().expect("the honest client is answered");
        drop(held);
        worst
    })
}

/// `k8s`, then a ConfigMap with this many owner references of a few bytes each.
fn bomb(count: usize) -> Vec<u8> {
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let (mut out, mut length) = (vec![number << 3 | 2], content.len());
        while length > 127 {
            out.push(u8::try_from(length % 128).expect("seven bits") | 128);
            length /= 128;
        }
        out.push(u8::try_from(length).expect("seven bits"));
        [out, content.to_vec()].concat()
    }
    let about = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let metadata = field(13, &field(1, b"a")).repeat(count);
    [b"k8s\0".to_vec(), field(1, &about), field(2, &field(1, &metadata))].concat()
}

#[test]
fn one_token_neither_stops_others_nor_fills_memory() {
    if !can_run() || std::env::var_os("TEST_KUBECONFIG").is_some() {
        return;
    }
    let cluster = Cluster::start("flood");
    let patience = u32::try_from(crate::number("TEST_PATIENCE").unwrap_or(1)).unwrap_or(1);
    let access = Access::of(&cluster.kubectl);
    let mut admin = Client::new(access.admin());
    let evil = access.with(None, Some(account(&cluster, &mut admin, "evil")));
    let honest = access.with(None, Some(account(&cluster, &mut admin, "honest")));
    let (own, object) = ("/api/v1/namespaces/evil/configmaps", "/api/v1/namespaces/honest/configmaps/a");
    let post = |client: &mut Client, path: &str, kind: &str, body: &[u8]| {
        client.send("POST", path, kind, body).expect("an answer").map(|answer| answer.code)
    };
    let mut client = Client::new(honest.clone());
    let map =
        |name: &str, text: &str| format!("{{\"metadata\":{{\"name\":\"{name}\"}},\"data\":{{\"a\":\"{text}\"}}}}");
    assert_eq!(
        post(&mut client, "/api/v1/namespaces/honest/configmaps", "application/json", map("a", "").as_bytes()),
        Some(201)
    );
    let mut client = Client::new(evil.clone());
    for at in 0..5 {
        let large = map(&format!("large-{at}"), &"x".repeat(900_000));
        assert_eq!(post(&mut client, own, "application/json", large.as_bytes()), Some(201));
    }
    let review = ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let watch = format!("{own}?watch=1");
    type Attack<'a> = (&'a str, Box<dyn Fn() -> Vec<Stream> + 'a>);
    let open = |window: u32, count: u32, request: (&str, &str), body: Option<usize>| -> Vec<Stream> {
        (0..40).filter_map(|_| http2::requests(&evil, window, count, request, body).ok()).collect()
    };
    let bombs = || {
        for method in ["GET", "POST", "POST"] {
            let mut client = Client::new(evil.clone());
            let answer = client.send(method, own, "application/vnd.kubernetes.protobuf", &bomb(600_000));
            let code = answer.expect("an answer").map(|answer| answer.code);
            // A body that is not needed is not read to its end.
            assert!(matches!((method, code), ("GET", None | Some(200)) | ("POST", Some(400))), "{method}: {code:?}");
        }
        Vec::new()
    };
    let watches = || {
        let ask = format!("GET {watch} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", evil.token());
        let one = |_| {
            let mut stream = evil.connect().ok()?;
            stream.write_all(ask.as_bytes()).and_then(|()| stream.flush()).ok()?;
            Some(stream)
        };
        (0..300).filter_map(one).collect()
    };
    let attacks: Vec<Attack<'_>> = vec![
        ("slow bodies", Box::new(|| open(65_535, 90, review, Some(9)))),
        ("answers nobody reads", Box::new(|| open(0, 90, ("GET", own), None))),
        ("answers of which one byte is read", Box::new(|| open(1, 90, ("GET", own), None))),
        ("documents nobody reads", Box::new(|| open(0, 90, ("GET", "/openapi/v2"), None))),
        ("many watches", Box::new(|| open(0, 90, ("GET", &watch), None))),
        ("watches on connections of their own", Box::new(watches)),
        ("protobuf bombs", Box::new(bombs)),
    ];
    let pid = cluster.bridge.as_ref().map_or(0, sampan_tests::process::Process::pid);
    // Documents are built once, and the heap keeps the size of one request.
    for path in ["/openapi/v2", own] {
        let _warm = client.send("GET", path, "", b"");
    }
    let mut told = Vec::new();
    for (name, attack) in attacks {
        let before = machine::heap(pid);
        // The peak counts from here (proc_pid_clear_refs(5)).
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a process of ours");
        let (worst, seen) = machine::beside(pid, cluster.folder(), || worst_write(&honest, object, attack));
        let growth = seen.growth(before, memory(pid, "VmHWM:"));
        told.push((name, worst, seen.allowance(), growth));
        let _told = writeln!(std::io::stderr(), "{name}: {worst:?} (the machine: {:?}), {growth} KiB", seen.longest);
    }
    assert!(told.iter().all(|(_, worst, own, _)| *worst < WRITE * patience + *own), "{told:?}");
    assert!(
        told.iter().all(|(name, _, _, growth)| *growth < GROWTH_KIB * if *name == "protobuf bombs" { 4 } else { 1 }),
        "{told:?}"
    );
    assert!(!cluster.log().contains("panic at"), "{}", cluster.log());
}
