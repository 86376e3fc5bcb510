//! What a client is told, and when, of what is not on the disk yet.

use std::io;
use std::sync::Condvar;

use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::*;
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
    tokio::time::sleep(Duration::from_millis(50)).await;
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
