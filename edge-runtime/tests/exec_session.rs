//! Commands in containers with a client at their streams, with the real runc.

mod monitor_support;

use std::time::{Duration, Instant};

use edge_runtime::monitor::exec::output::Output;
use edge_runtime::monitor::exec::session::{Session, Streams, Wanted};
use edge_runtime::monitor::exec::{ExecError, Runtime, sweep};
use monitor_support::{Node, can_run, lives, wait_until};
use sampan_sys::terminal::Size;
use smol::future::zip;
use smol::io::{AsyncReadExt, AsyncWriteExt};

const ALL: Wanted = Wanted { stdin: true, stdout: true, stderr: true, tty: false };
const TTY: Wanted = Wanted { stdin: true, stdout: true, stderr: false, tty: true };

fn runtime(node: &Node) -> Runtime {
    Runtime {
        program: "runc".into(),
        root: node.paths.runtime_root(),
        args: Vec::new(),
        cwd: None,
        bundle: node.paths.bundle("c"),
    }
}

fn sh(script: &str) -> Vec<String> {
    ["/bin/busybox", "sh", "-c", script].map(str::to_owned).to_vec()
}

async fn with_container<T>(node: &Node, work: impl AsyncFnOnce(&Runtime, i32) -> T) -> T {
    node.client.start(node.bundle("c", "sleep 1000")).await.unwrap();
    let init = node.started("c").await;
    work(&runtime(node), init).await
}

/// Reads all output; a hang-up is an end.
async fn text(reader: Option<Output>) -> String {
    let (mut reader, mut all, mut chunk) = (reader.unwrap(), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = reader.read(&mut chunk).await {
        all.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8(all).unwrap()
}

/// Reads until `what` has arrived.
async fn until(reader: &mut Output, what: &str) -> String {
    let (mut all, mut chunk) = (String::new(), [0; 4096]);
    while !all.contains(what) {
        let count = reader.read(&mut chunk).await.unwrap();
        assert!(count > 0, "ended after {all:?}");
        all.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
    }
    all
}

fn processes(pattern: &str) -> Vec<i32> {
    let out = std::process::Command::new("pgrep").args(["-f", pattern]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn input_output_and_exit_code() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(with_container(&node, async |runtime, _| {
        let (mut session, streams) = Session::start(runtime, "c", &sh("cat; echo bad >&2; exit 7"), ALL).unwrap();
        let Streams { stdin, stdout, stderr } = streams;
        let write = async {
            let mut stdin = stdin.unwrap();
            stdin.write_all("x".repeat(300_000).as_bytes()).await.unwrap();
            // The end of the input ends `cat`.
        };
        let (((), out), (err, code)) = zip(zip(write, text(stdout)), zip(text(stderr), session.ended())).await;
        assert_eq!((out.len(), err.as_str(), code.unwrap()), (300_000, "bad\n", 7));

        let none = Wanted { stdout: true, ..Wanted::default() };
        let (mut session, streams) = Session::start(runtime, "c", &sh("cat; echo $TERM; kill -TERM $$"), none).unwrap();
        let (out, code) = zip(text(streams.stdout), session.ended()).await;
        assert_eq!((out.as_str(), code.unwrap()), ("\n", 143), "no input, no terminal, death by signal");

        for argv in [vec!["nosuch".to_owned()], vec!["/tmp".to_owned()]] {
            let (mut session, _streams) = Session::start(runtime, "c", &argv, ALL).unwrap();
            let failure = session.ended().await;
            assert!(matches!(&failure, Err(ExecError::NotStarted(text)) if text.contains(&argv[0])), "{failure:?}");
        }
    }));
    let left = node.paths.runtime_root().with_file_name("exec").read_dir().unwrap().count();
    assert_eq!(left, 0, "folders are left");
}

#[test]
fn a_terminal_has_a_size_and_interrupts() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(with_container(&node, async |runtime, _| {
        let script = "trap 'echo size=$(stty size)' WINCH; trap 'echo broken; exit 130' INT; \
                      echo $TERM ready; while :; do sleep 0.05; done";
        let (mut session, streams) = Session::start(runtime, "c", &sh(script), TTY).unwrap();
        let Streams { mut stdin, stdout, .. } = streams;
        let mut out = stdout.unwrap();
        until(&mut out, "xterm ready\r\n").await;
        session.terminal().resize(Size { width: 91, height: 17 });
        until(&mut out, "size=17 91").await;
        stdin.as_mut().unwrap().write_all(b"\x03").await.unwrap();
        let (rest, code) = zip(text(Some(out)), session.ended()).await;
        assert!(rest.contains("broken"), "{rest}");
        assert_eq!(code.unwrap(), 130);
        session.terminal().resize(Size { width: 1, height: 1 });

        // The last output of a shell is not lost with the terminal.
        for _ in 0..20 {
            let (mut session, streams) = Session::start(runtime, "c", &sh("echo last; exit 3"), TTY).unwrap();
            let (out, code) = zip(text(streams.stdout), session.ended()).await;
            assert_eq!((out.as_str(), code.unwrap()), ("last\r\n", 3));
        }
    }));
}

#[test]
fn dropped_session_leaves_nothing() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(with_container(&node, async |runtime, init| {
        for (wanted, mark) in [(ALL, "sleep 9711"), (TTY, "sleep 9712")] {
            // One child, and one whose parent has ended.
            let script = format!("({mark} &) ; trap '' HUP; echo go; {mark}; true");
            let (session, streams) = Session::start(runtime, "c", &sh(&script), wanted).unwrap();
            let mut out = streams.stdout.unwrap();
            until(&mut out, "go").await;
            wait_until("both children", || processes(mark).len() >= 2);
            let since = Instant::now();
            drop(session);
            assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
            wait_until("all to end", || processes(mark).is_empty());
        }
        // Before the command has started.
        let (session, _streams) = Session::start(runtime, "c", &sh("sleep 9713"), ALL).unwrap();
        drop(session);
        wait_until("all to end", || processes("sleep 9713").is_empty());
        assert!(lives(init), "the container itself goes on");
    }));
}

/// A daemon that is killed cannot end its commands: the next one does.
#[test]
fn next_daemon_ends_sessions_of_a_killed_one() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(with_container(&node, async |runtime, init| {
        let (session, streams) =
            Session::start(runtime, "c", &sh("trap '' HUP; echo go; sleep 9714; true"), TTY).unwrap();
        until(&mut streams.stdout.unwrap(), "go").await;
        // No destructor runs.
        std::mem::forget(session);
        wait_until("the command", || !processes("sleep 9714").is_empty());
        // The OCI runtime writes it when the process runs already.
        let folders = node.paths.runtime_root().with_file_name("exec");
        wait_until("its pid file", || {
            folders
                .read_dir()
                .unwrap()
                .flatten()
                .all(|folder| folder.path().join("pid").metadata().is_ok_and(|m| m.len() > 0))
        });
        sweep(&node.paths.runtime_root());
        wait_until("the command to end", || processes("sleep 9714").is_empty());
        assert!(lives(init));
        assert_eq!(node.paths.runtime_root().with_file_name("exec").read_dir().unwrap().count(), 0);
    }));
}
