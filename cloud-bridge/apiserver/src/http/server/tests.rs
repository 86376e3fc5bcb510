//! What a client is told, and when, of what is not on the disk yet.

use std::io;
use std::sync::Condvar;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;

use super::*;
use apimachinery::key::ObjectKey;
use apimachinery::user::UserInfo;

#[derive(Clone, Copy, PartialEq)]
enum Disk {
    Well,
    /// Syncs end when it is well again.
    Stuck,
    Broken,
}

#[derive(Clone)]
struct Switch(Arc<(Mutex<Disk>, Condvar)>);

impl Switch {
    fn turn(&self, to: Disk) {
        *self.0.0.lock().unwrap() = to;
        self.0.1.notify_all();
    }

    fn sync(&self) -> io::Result<()> {
        let disk = self.0.1.wait_while(self.0.0.lock().unwrap(), |disk| *disk == Disk::Stuck).unwrap();
        if *disk == Disk::Broken { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
}

fn server(dir: &tempfile::TempDir) -> (Server, Switch) {
    let switch = Switch(Arc::new((Mutex::new(Disk::Well), Condvar::new())));
    let config = Config::new(dir.path().join("api.db"));
    let history =
        History { age: config.history, rows: config.history_rows, bytes: config.history_bytes, expiring: EVENTS_MAX };
    let disk = switch.clone();
    let store = Store::open_with(&config.file, history, false, Some(Box::new(move || disk.sync()))).unwrap();
    (Server::on(config, store).unwrap(), switch)
}

fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    let path = format!("/api/v1/namespaces/default/configmaps{path}");
    Request::builder().method(method).uri(path).body(Full::new(body.to_owned().into())).unwrap()
}

const MAP: &str = r#"{"metadata": {"name": "c"}}"#;

/// Waits until a ConfigMap is written, which the disk may not have taken yet.
async fn until_stored(server: &Server, name: &str) {
    let key = ObjectKey { namespace: "default".to_owned(), name: name.to_owned() };
    while server.inner.store().get("configmaps", &key).unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn nobody_is_told_of_a_write_that_a_power_cut_could_take_back() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    let admin = UserInfo::master("admin");
    assert_eq!(server.handle(&admin, request("GET", "", "")).await.status(), 200);
    let mut watch = server.handle(&admin, request("GET", "?watch=1", "")).await.into_body();

    disk.turn(Disk::Stuck);
    let (writing, reading) = (server.clone(), server.clone());
    let write = tokio::spawn(async move { writing.handle(&UserInfo::master("a"), request("POST", "", MAP)).await });
    until_stored(&server, "c").await;
    let read = tokio::spawn(async move { reading.handle(&UserInfo::master("b"), request("GET", "/c", "")).await });
    let event = tokio::time::timeout(Duration::from_millis(100), watch.frame()).await;
    assert!(event.is_err() && !write.is_finished() && !read.is_finished());

    disk.turn(Disk::Well);
    assert_eq!(write.await.unwrap().status(), 201);
    assert_eq!(read.await.unwrap().status(), 200);
    let event = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&event).unwrap()["type"], "ADDED");
}

#[tokio::test]
async fn object_on_the_disk_is_read_while_another_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    let admin = UserInfo::master("admin");
    assert_eq!(server.handle(&admin, request("POST", "", MAP)).await.status(), 201);
    disk.turn(Disk::Stuck);
    let writing = server.clone();
    let other = r#"{"metadata": {"name": "d"}}"#;
    let write = tokio::spawn(async move { writing.handle(&UserInfo::master("a"), request("POST", "", other)).await });
    until_stored(&server, "d").await;
    let answer = async |path: &str| {
        let answer = server.handle(&admin, request("GET", path, ""));
        tokio::time::timeout(Duration::from_millis(200), answer).await.map(|answer| answer.status())
    };
    assert_eq!(answer("/c").await.unwrap(), 200);
    for path in ["/d", "", "/e"] {
        assert!(answer(path).await.is_err(), "{path:?} tells of what a power cut could take back");
    }
    disk.turn(Disk::Well);
    assert_eq!(write.await.unwrap().status(), 201);
}

#[tokio::test]
async fn a_write_that_the_disk_refuses_is_never_a_success() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    let admin = UserInfo::master("admin");
    assert_eq!(server.handle(&admin, request("GET", "", "")).await.status(), 200);
    disk.turn(Disk::Broken);
    assert_eq!(server.handle(&admin, request("POST", "", MAP)).await.status(), 500);
    assert!(server.lost_disk().await.contains("not synced"));
    assert_eq!(server.handle(&admin, request("GET", "/c", "")).await.status(), 500);
}

#[tokio::test]
async fn large_writes_wait_for_the_disk_and_small_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    let send = |request: Request<Full<Bytes>>| {
        let server = server.clone();
        tokio::spawn(async move { server.handle(&UserInfo::master("admin"), request).await.status() })
    };
    let map = |name: &str, bytes: usize| {
        let data = "x".repeat(bytes);
        request("POST", "", &format!(r#"{{"metadata": {{"name": "{name}"}}, "data": {{"a": "{data}"}}}}"#))
    };
    let stored = |name: &str| {
        let key = ObjectKey { namespace: "default".to_owned(), name: name.to_owned() };
        server.inner.store().get("configmaps", &key).unwrap()
    };
    assert_eq!(send(map("old", 1 << 20)).await.unwrap(), 201);
    disk.turn(Disk::Stuck);
    let first = send(map("first", 1 << 20));
    until_stored(&server, "first").await;
    let second = send(map("second", 1 << 20));
    let marked = send(request("DELETE", "/old?propagationPolicy=Foreground", ""));
    let small = send(map("small", 1));
    until_stored(&server, "small").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(stored("second").is_none(), "the disk has not taken the first");
    assert!(stored("old").unwrap().head()["metadata"]["deletionTimestamp"].is_null(), "this writes it again");

    disk.turn(Disk::Well);
    for (answer, code) in [(first, 201_u16), (second, 201), (small, 201), (marked, 200)] {
        assert_eq!(answer.await.unwrap(), code);
    }
}

#[tokio::test]
async fn large_writes_that_wait_for_the_disk_go_on_in_line() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    let eve = permitted(&server).await;
    let map = |name: &str| {
        let data = "x".repeat(1 << 20);
        request("POST", "", &format!(r#"{{"metadata": {{"name": "{name}"}}, "data": {{"a": "{data}"}}}}"#))
    };
    assert_eq!(server.handle(&UserInfo::master("admin"), map("old")).await.status(), 201);
    disk.turn(Disk::Stuck);
    let (asking, posted) = (server.clone(), map("first"));
    let first = tokio::spawn(async move { asking.handle(&UserInfo::master("admin"), posted).await.status() });
    while server.inner.durable.has_room() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let bob = server.inner.limits.disk.next(&Flow::of(&UserInfo::new("bob", ["system:authenticated"]))).await;
    let by_eve = |request: Request<Full<Bytes>>| {
        let (server, eve) = (server.clone(), eve.clone());
        tokio::spawn(async move { server.handle_stranger(&eve, request).await.status() })
    };
    let second = by_eve(map("second"));
    let marked = by_eve(request("DELETE", "/old?propagationPolicy=Foreground", ""));
    tokio::time::sleep(Duration::from_millis(200)).await;
    disk.turn(Disk::Well);
    assert_eq!(first.await.unwrap(), 201);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished() && !marked.is_finished(), "the disk has room, and another is before them");
    drop(bob);
    assert_eq!(second.await.unwrap(), 201);
    assert_eq!(marked.await.unwrap(), 200);
}

#[tokio::test]
async fn deletion_of_many_waits_for_the_disk_after_some() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    let admin = UserInfo::master("admin");
    for at in 0..100 {
        let map = format!(r#"{{"metadata": {{"name": "c{at}"}}}}"#);
        assert_eq!(server.handle(&admin, request("POST", "", &map)).await.status(), 201);
    }
    let left = || server.inner.store().list("configmaps", Some("default"), None, None).unwrap().len();
    disk.turn(Disk::Stuck);
    let deleting = server.clone();
    let all = tokio::spawn(async move { deleting.handle(&admin, request("DELETE", "", "")).await.status() });
    while left() >= 100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(left() > 10, "the disk has taken none: {} are left", left());

    disk.turn(Disk::Well);
    assert_eq!(all.await.unwrap(), 200);
    assert!(left() <= 1, "the certificates of the API may be there again");
}

#[tokio::test]
async fn request_of_a_caller_that_does_not_poll_is_answered() {
    use tower::Service as _;
    let dir = tempfile::tempdir().unwrap();
    let (server, _disk) = server(&dir);
    let mut local = server.service(UserInfo::master("admin"));
    let waits = local.call(request("POST", "", MAP));
    let found = async {
        while local.call(request("GET", "/c", "")).await.unwrap().status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("it is stored");
    assert_eq!(waits.await.unwrap().status(), 201);
}

fn post(path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder().method("POST").uri(path).body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

/// A user who may do everything, within the limits of users.
async fn permitted(server: &Server) -> UserInfo {
    let (admin, eve) = (UserInfo::master("admin"), UserInfo::new("eve", ["system:authenticated"]));
    let binding = r#"{"metadata": {"name": "eve"}, "subjects": [{"kind": "User", "name": "eve"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}"#;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(server.handle(&admin, post(bindings, binding)).await.status(), 201);
    while server.handle(&eve, request("GET", "", "")).await.status() != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    eve
}

/// Sends twenty of these requests while another user has the turn beside the thread, and returns the code of the first answer.
async fn first_of_many(server: &Server, user: &UserInfo, one: impl Fn() -> Request<Full<Bytes>>) -> u16 {
    let bob = Flow::of(&UserInfo::new("bob", ["system:authenticated"]));
    let _turn = server.inner.limits.apart.turn(&bob).await;
    let mut answers: FuturesUnordered<_> = (0..20).map(|_| server.handle_stranger(user, one())).collect();
    let first = tokio::time::timeout(Duration::from_secs(20), answers.next()).await;
    first.expect("all of them wait, and take memory").unwrap().status().as_u16()
}

#[tokio::test]
async fn body_of_a_get_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let get = request("GET", "", &"x".repeat(4 << 20));
    assert_eq!(server.handle(&UserInfo::master("admin"), get).await.status(), 200);
}

#[tokio::test]
async fn slow_bodies_take_no_place_of_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let eve = permitted(&server).await;
    let slow = || {
        request("POST", "", "").map(|_| StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>()))
    };
    let mut waiting: FuturesUnordered<_> = (0..100).map(|_| server.handle_stranger(&eve, slow())).collect();
    assert!(
        tokio::time::timeout(Duration::from_millis(200), waiting.next()).await.is_err(),
        "more than a user has places"
    );
    assert_eq!(server.handle_stranger(&eve, request("POST", "", MAP)).await.status(), 201);
}

#[tokio::test]
async fn answers_that_wait_to_be_encoded_count() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let eve = permitted(&server).await;
    let map = format!(r#"{{"metadata": {{"name": "c"}}, "data": {{"k": "{}"}}}}"#, "x".repeat(1_000_000));
    assert_eq!(server.handle(&UserInfo::master("admin"), request("POST", "", &map)).await.status(), 201);
    let get = || {
        let mut get = request("GET", "/c", "");
        get.headers_mut().insert("accept", HeaderValue::from_static("application/vnd.kubernetes.protobuf"));
        get
    };
    assert_eq!(first_of_many(&server, &eve, get).await, 429);
}

#[tokio::test]
async fn openapi_is_made_in_turns_beside_the_thread_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let eve = permitted(&server).await;
    let get = |path: &str| Request::get(path).body(Full::new(Bytes::new())).unwrap();
    let bob = Flow::of(&UserInfo::new("bob", ["system:authenticated"]));
    let turn = server.inner.limits.apart.turn(&bob).await;
    let (asking, user, asked) = (server.clone(), eve.clone(), get("/openapi/v2"));
    let first = tokio::spawn(async move { asking.handle_stranger(&user, asked).await.status() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!first.is_finished(), "another client has its turn");
    assert_eq!(server.handle_stranger(&eve, get("/apis")).await.status(), 200, "discovery is short");
    drop(turn);
    assert_eq!(first.await.unwrap(), 200);

    let _turn = server.inner.limits.apart.turn(&bob).await;
    let kept = tokio::time::timeout(Duration::from_secs(20), server.handle_stranger(&eve, get("/openapi/v2"))).await;
    assert_eq!(kept.expect("it is there").status(), 200);
}

#[tokio::test]
async fn watch_without_room_is_told_and_shows_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let eve = permitted(&server).await;
    let map = format!(r#"{{"metadata": {{"name": "c"}}, "data": {{"k": "{}"}}}}"#, "x".repeat(1_000_000));
    assert_eq!(server.handle(&UserInfo::master("admin"), request("POST", "", &map)).await.status(), 201);
    let (mut unread, mut refused) = (Vec::new(), 0);
    for _ in 0..10 {
        let mut watch = server.handle_stranger(&eve, request("GET", "?watch=1", "")).await.into_body();
        let mut event = Vec::new();
        // The first line; it keeps its place until it is dropped, as in the buffers of a connection.
        while !event.ends_with(b"\n") {
            let part = watch.frame().await.expect("a line").expect("no break").into_data().unwrap();
            event.extend_from_slice(&part);
            unread.push(part);
        }
        let event: Value = serde_json::from_slice(&event).unwrap();
        match event["object"]["code"].as_u64() {
            Some(code) => {
                assert_eq!((code, &event["type"]), (429, &"ERROR".into()));
                refused += 1;
            }
            None => assert_eq!(event["type"], "ADDED"),
        }
    }
    assert!((1..10).contains(&refused), "{refused}");
}

#[tokio::test]
async fn bodies_that_aliases_make_large_count() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let eve = permitted(&server).await;
    let aliases: String = (1..100).map(|n| format!("  k{n}: *x\n")).collect();
    let map = format!("metadata: {{name: c}}\ndata:\n  k0: &x {}\n{aliases}", "x".repeat(10_000));
    let post = || {
        let mut post = request("POST", "", &map);
        post.headers_mut().insert("content-type", HeaderValue::from_static("application/yaml"));
        post
    };
    // All are read first, each in its turn, and wait for their drafts.
    let answers = join_all((0..20).map(|_| server.handle_stranger(&eve, post()))).await;
    let codes: Vec<u16> = answers.into_iter().map(|answer| answer.status().as_u16()).collect();
    assert!(codes.contains(&201) && codes.contains(&429), "{codes:?}");
}

#[tokio::test]
async fn body_of_too_many_values_is_refused_untyped() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let admin = UserInfo::master("admin");
    let map = |count: usize| {
        let fields: Vec<String> = (0..count).map(|n| format!("\"k{n}\": 1")).collect();
        format!(r#"{{"metadata": {{"name": "c"}}, "unknown": {{{}}}}}"#, fields.join(","))
    };
    assert_eq!(server.handle(&admin, request("POST", "", &map(26_000))).await.status(), 413);
    assert_eq!(server.handle(&admin, request("POST", "", &map(25_000))).await.status(), 201, "they are dropped");
    assert_eq!(server.handle(&admin, request("PUT", "/c", &map(26_000))).await.status(), 413);
}

#[tokio::test]
async fn object_of_a_definition_that_has_gone_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let admin = UserInfo::master("admin");
    let eve = permitted(&server).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = r#"{"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}"#;
    assert_eq!(server.handle(&admin, post(definitions, definition)).await.status(), 201);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let becomes = async |code: u16| {
        let ask = || Request::get(widgets).body(Full::new(Bytes::new())).unwrap();
        while server.handle(&admin, ask()).await.status() != code {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    becomes(200).await;

    let bob = server.inner.limits.apart.turn(&Flow::of(&UserInfo::new("bob", ["system:authenticated"]))).await;
    let large = "x".repeat(100_000);
    let widget =
        format!(r#"{{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "w"}}, "a": "{large}"}}"#);
    let (asking, posted) = (server.clone(), post(widgets, &widget));
    let made = tokio::spawn(async move { asking.handle_stranger(&eve, posted).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let gone = Request::delete(format!("{definitions}/widgets.example.com")).body(Full::new(Bytes::new())).unwrap();
    assert!(server.handle(&admin, gone).await.status().is_success());
    becomes(404).await;
    drop(bob);
    assert_eq!(made.await.unwrap().status(), 404);
}

/// What a client has waited for is done in its turn, as all it asks for.
#[tokio::test]
async fn pod_that_waited_for_its_account_takes_a_turn() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server(&dir);
    let (admin, eve) = (UserInfo::master("admin"), permitted(&server).await);
    // The controller that makes accounts cannot.
    let file = rusqlite::Connection::open(dir.path().join("api.db")).unwrap();
    file.busy_timeout(Duration::from_secs(5)).unwrap();
    let fails = "CREATE TRIGGER fails BEFORE INSERT ON objects WHEN NEW.storage = 'serviceaccounts'
        BEGIN SELECT RAISE(ABORT, 'no'); END";
    file.execute_batch(fails).unwrap();
    let namespace = post("/api/v1/namespaces", r#"{"metadata": {"name": "late"}}"#);
    assert_eq!(server.handle(&admin, namespace).await.status(), 201);

    let pod = r#"{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}"#;
    let (asking, posted) = (server.clone(), post("/api/v1/namespaces/late/pods", pod));
    let pod = tokio::spawn(async move { asking.handle_stranger(&eve, posted).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let other = server.inner.limits.steps.next(&Flow::of(&UserInfo::new("bob", ["system:authenticated"]))).await;
    file.execute_batch("DROP TRIGGER fails").unwrap();
    let account = post("/api/v1/namespaces/late/serviceaccounts", r#"{"metadata": {"name": "default"}}"#);
    let made = server.handle(&admin, account).await.status();
    assert!(made == 201 || made == 409, "the controller may have been earlier: {made}");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!pod.is_finished(), "another client has its turn");
    drop(other);
    assert_eq!(pod.await.unwrap().status(), 201);
}
