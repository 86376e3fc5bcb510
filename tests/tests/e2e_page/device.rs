//! One node shows itself: with its daemon, without it, without a cloud, and whatever is in its events.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::ports::free_address;
use sampan_tests::process::{Process, binary};
use sampan_tests::{EdgeNode, can_run, until};
use serde_json::json;

use super::browser::Browser;
use super::{HOSTILE, alone, assert_quiet};

/// The page of a node, and the address that it has printed.
pub(crate) struct Page {
    process: Process,
    pub(crate) url: String,
}

fn command(node: &EdgeNode, more: &[&str]) -> Command {
    let mut command = Command::new(binary("edge-runtime"));
    command.arg("page").arg("--root").arg(node.root()).args(more);
    command
}

impl Page {
    pub(crate) fn start(node: &EdgeNode) -> Self {
        let (address, log) = (free_address().to_string(), node.root().join("page.log"));
        // Of one before it the address is another.
        let _ = std::fs::remove_file(&log);
        let process = Process::start(&mut command(node, &["--listen", &address]), &log);
        let url = until(Duration::from_secs(10), "the page says where it is", || {
            let log = process.log();
            log.lines().find(|line| line.starts_with("http://")).map(str::to_owned).ok_or(log)
        });
        Self { process, url }
    }
}

/// Answer to a request at the socket.
fn at_socket(path: &Path, what: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.write_all(format!("GET {what} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

#[test]
fn one_node_shows_itself_with_its_daemon_and_without() {
    if !can_run() {
        return;
    }
    let alone = alone::enter();
    let Some(mut browser) = Browser::start() else { return };
    let (_lan, mut cluster, mut node) = alone::site(alone, "device", &[]);
    // What it prints is in an event.
    let probe = json!({"livenessProbe": {"exec": {"command": ["sh", "-c", "cat /etc/says; exit 1"]}, "periodSeconds": 1, "failureThreshold": 1000}});
    let says = with(shell("c", &format!("cat >/etc/says <<'END'\n{HOSTILE}\nEND\nexec sleep 1000")), &probe);
    let on = node.name.clone();
    cluster.kubectl.apply_all(&[
        pod("web", &on, json!([shell("c", "exec sleep 1000")])),
        pod("hostile", &on, json!([says])),
        pod("crash", &on, json!([shell("c", "exit 3")])),
    ]);
    cluster.kubectl.wait_ready("web");
    let Page { mut process, url } = Page::start(&node);
    let (bare, socket) =
        (url.split('#').next().expect("an address").to_owned(), node.root().join("run/edge-runtime/page.sock"));

    let mode = std::fs::metadata(&socket).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "the socket is root's");
    until(Duration::from_secs(20), "who reaches it is told", || {
        let answer = at_socket(&socket, "/api/node");
        if answer.contains(&on) { Ok(()) } else { Err(answer) }
    });
    let second = command(&node, &[]).output().expect("starts");
    let why = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && why.contains("served already"), "{why}");
    let open = command(&node, &["--listen", "0.0.0.0:0"]).output().expect("starts");
    assert_eq!(open.status.code(), Some(2), "{}", String::from_utf8_lossy(&open.stderr));

    browser.go(&bare);
    browser.wait("without the token nothing is told", "document.body.innerText.includes('lacks the token')");
    browser.go("about:blank");
    browser.go(&url);
    let says = |what: &str| format!("document.getElementById('summary').textContent.includes('{what}')");
    browser.wait("the node is shown", &says("Link ● up"));
    assert_eq!(browser.value("location.href"), Ok(json!(bare)), "the token does not stay to be read");
    browser.wait(
        "it is live and ready",
        &format!("{} && document.getElementById('live').textContent === 'live'", says("Node ● ready")),
    );
    browser.wait("a restart is drawn", "document.querySelectorAll('#drawing .mark-bad').length > 0");
    browser.wait("the reason is there", "document.getElementById('pods').textContent.includes('CrashLoopBackOff')");
    browser.wait(
        "an event is text",
        &format!("document.getElementById('events').textContent.includes({})", json!(HOSTILE)),
    );
    assert_eq!(browser.value("document.images.length + document.scripts.length"), Ok(json!(1)));
    assert_eq!(browser.value("document.title"), Ok(json!(on)));
    browser.wait("what is used is told", "/Memory.* of /.test(document.getElementById('use').textContent)");
    assert_eq!(browser.value("document.activeElement.id"), Ok(json!("node")), "keys scroll it");

    // Another pod is there without the page being loaded again.
    cluster.kubectl.apply_all(&[pod("later", &on, json!([shell("c", "exec sleep 1000")]))]);
    browser.wait("a new pod is shown", "document.getElementById('pods').textContent.includes('later')");

    cluster.kill_bridge();
    browser.wait("the link is down, and all the rest goes on", &says("Link ○ down"));
    let listed = "document.getElementById('timeline').textContent.includes('link down')";
    browser.wait("which the timeline has", listed);

    node.kill();
    browser.wait(
        "the daemon is gone",
        "document.getElementById('lost').textContent.includes('edge-runtime does not run')",
    );
    browser.wait("its pods are shown all the same", "document.getElementById('pods').textContent.includes('web')");
    assert_quiet(&browser, &bare);

    process.stop();
    assert!(!socket.exists(), "it has taken its socket with it");
    browser.wait("the loss is told", "document.getElementById('lost').textContent.includes('is lost')");
    // One that was killed does not prevent the next one.
    let mut killed = Page::start(&node);
    killed.process.kill();
    assert!(socket.exists());
    let again = Page::start(&node);
    assert!(at_socket(&socket, "/").starts_with("HTTP/1.1 200 OK"));
    drop(again);
    cluster.start_bridge();
}
