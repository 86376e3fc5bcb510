//! Containers with an attached client: output as it is written, input that may end, terminals.

mod monitor_support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use edge_runtime::monitor::attach::{Attachment, open_stdin};
use monitor_support::{Node, can_run, lives, wait_until};
use nix::libc::O_NONBLOCK;
use sampan_monitor::logs::cri::Stream;
use sampan_monitor::protocol::StartContainer;
use sampan_sys::terminal::Size;
use smol::io::AsyncWriteExt;

/// Reads until `what` has arrived on `stream`.
async fn until(attachment: &mut Attachment, stream: Stream, what: &str) -> String {
    let mut all = Vec::new();
    loop {
        let (from, data) = attachment.next().await.unwrap().unwrap_or_else(|| panic!("ended, {what:?} has not come"));
        if from == stream {
            all.extend(data);
            let text = String::from_utf8_lossy(&all);
            if text.contains(what) {
                return text.into_owned();
            }
        }
    }
}

fn with_terminal(node: &Node, id: &str, script: &str) -> StartContainer {
    let start = StartContainer { terminal: true, stdin: true, ..node.bundle(id, script) };
    let file = start.bundle.join("config.json");
    let text = fs::read_to_string(&file).unwrap().replace(r#""terminal":false"#, r#""terminal":true"#);
    fs::write(&file, text).unwrap();
    start
}

#[test]
fn attached_client_gets_all_output() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        // Two pipes: a second reading of the same one could find the first writer still there, and end with it.
        let script = "mkfifo /dev/1 /dev/2; read x < /dev/1; printf 'name? '; echo bad >&2; read x < /dev/2; \
            seq 200000; exit 4";
        node.client.start(node.bundle("c", script)).await.unwrap();
        let pid = node.started("c").await;
        let go = |pipe| {
            let path = format!("/proc/{pid}/root/dev/{pipe}");
            // Without waiting in the kernel for a reader: nothing would end that if there never is one.
            let open = || File::options().write(true).custom_flags(O_NONBLOCK).open(&path);
            wait_until("a reader of the pipe", || open().is_ok_and(|mut pipe| pipe.write_all(b"x\n").is_ok()));
        };
        let mut one = Attachment::open(&node.paths, "c").await.unwrap();
        let mut other = Attachment::open(&node.paths, "c").await.unwrap();
        let refused = Attachment::open(&node.paths, "nobody").await;
        assert!(refused.is_err_and(|error| error.to_string().contains("nobody")));
        go(1);
        // A partial line, which the log does not have yet.
        assert_eq!(until(&mut one, Stream::Stdout, "?").await, "name? ");
        until(&mut other, Stream::Stderr, "bad\n").await;
        go(2);
        // The client does not read for a while: the container waits.
        smol::Timer::after(Duration::from_millis(300)).await;
        assert!(lives(pid), "1.3 MB do not fit in between");
        let mut text = Vec::new();
        let drain = async { while let Ok(Some(_)) = other.next().await {} };
        let read = async {
            while let Some((stream, data)) = one.next().await.unwrap() {
                if stream == Stream::Stdout {
                    text.extend(data);
                }
            }
        };
        smol::future::zip(drain, read).await;
        let wanted: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
        assert!(text == wanted.as_bytes(), "{} of {} bytes", text.len(), wanted.len());
        assert_eq!(node.exited("c").await.code, 4);
    });
}

#[test]
fn input_comes_in_and_ends_when_it_may() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let once = StartContainer { stdin: true, stdin_once: true, ..node.bundle("once", "cat; echo closed") };
        let open = StartContainer { stdin: true, ..node.bundle("open", "while read x; do echo got $x; done") };
        assert!(node.reconnected().await.is_empty());
        for start in [once, open] {
            node.client.start(start).await.unwrap();
        }
        node.started("once").await;
        let pid = node.started("open").await;

        let mut seen = Attachment::open(&node.paths, "once").await.unwrap();
        let mut stdin = open_stdin(&node.paths.bundle("once")).unwrap();
        stdin.write_all(b"hello\n").await.unwrap();
        until(&mut seen, Stream::Stdout, "hello\n").await;
        drop(stdin);
        node.client.close_stdin("once");
        until(&mut seen, Stream::Stdout, "closed\n").await;
        assert_eq!(node.exited("once").await.code, 0);
        assert!(seen.next().await.unwrap().is_none());

        // The input of this container stays open after a session and after the monitor's end.
        for round in ["one", "two"] {
            let mut seen = Attachment::open(&node.paths, "open").await.unwrap();
            let mut stdin = open_stdin(&node.paths.bundle("open")).unwrap();
            stdin.write_all(format!("{round}\n").as_bytes()).await.unwrap();
            until(&mut seen, Stream::Stdout, &format!("got {round}\n")).await;
            drop((seen, stdin));
            node.client.close_stdin("open");
            if round == "one" {
                node.kill_monitor();
                node.reconnected().await;
            }
        }
        assert!(lives(pid));
        assert!(node.log_text("open").contains("stdout F got two"));
    });
}

#[test]
fn a_terminal_echoes_and_takes_its_size() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let script = "echo ready; while read line; do echo [$line] $(stty size); done; exit 6";
        node.client.start(with_terminal(&node, "t", script)).await.unwrap();
        node.started("t").await;
        assert!(!node.paths.bundle("t").join("console.sock").exists());
        let mut seen = Attachment::open(&node.paths, "t").await.unwrap();
        node.client.resize("t", Size { width: 99, height: 33 }).await.unwrap();
        assert_eq!(node.client.input("t", b"a b\n").await.unwrap(), 4);
        let text = until(&mut seen, Stream::Stdout, "[a b] 33 99\r\n").await;
        assert!(text.contains("a b\r\n"), "the terminal echoes: {text:?}");
        assert_eq!(node.client.input("t", b"\n").await.unwrap(), 1);
        until(&mut seen, Stream::Stdout, "[]").await;
        // End of file, typed.
        assert_eq!(node.client.input("t", b"\x04").await.unwrap(), 1);
        assert_eq!(node.exited("t").await.code, 6);
        while seen.next().await.unwrap().is_some() {}
        let log = node.log_text("t");
        assert!(log.contains("stdout F ready\r\n") && log.contains("[] 33 99"), "{log}");
        assert!(node.client.input("t", b"x").await.is_err());

        // Many bytes, without an attached client; then the end.
        node.client.start(with_terminal(&node, "many", "seq 20000; exit 3")).await.unwrap();
        node.started("many").await;
        assert_eq!(node.exited("many").await.code, 3);
        let log = node.log_text("many");
        assert_eq!((log.lines().count(), log.ends_with(" 20000\r\n")), (20_000, true));
    });
}
