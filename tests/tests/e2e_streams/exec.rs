//! exec and attach: streams, exit codes, terminals, and the cleanup after a client has disconnected.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, Kubectl, can_run, until};
use serde_json::json;

use crate::{kubectls, text, with_input};

/// Processes on this host whose command line is exactly this.
pub(crate) fn processes(words: &[&str]) -> usize {
    let wanted = words.join("\0") + "\0";
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter(|entry| std::fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| line == wanted)).count()
}

#[test]
fn exec_carries_streams_codes_and_terminals() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("exec");
    let node = cluster.node("edge");
    let reader = with(
        shell("c", "exec sleep 1000"),
        &json!({"workingDir": "/tmp", "env": [{"name": "COLOR", "value": "blue"}]}),
    );
    cluster.kubectl.apply_all(&[pod("p", &node.name, json!([reader, shell("other", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("p");
    for kubectl in kubectls(&cluster) {
        streams_and_codes(&kubectl);
        terminal(&kubectl);
        client_gone(&kubectl);
    }
    let closed = node.edge(&["ps"]).expect("the node answers");
    assert!(closed.contains("p"), "{closed}");
}

fn streams_and_codes(kubectl: &Kubectl) {
    fn exec<'a>(args: &[&'a str]) -> Vec<&'a str> {
        [&["exec", "p", "-c", "c"], args].concat()
    }
    let output =
        kubectl.command(&exec(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"])).output().expect("it starts");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "out\n".to_owned()), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("err\n"), "{}", text(&output.stderr));
    assert_eq!(kubectl.ok(&exec(&["--", "sh", "-c", "pwd; echo $COLOR"])), "/tmp\nblue\n");

    let output = with_input(&mut kubectl.command(&exec(&["-i", "--", "cat"])), b"hi\n");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "hi\n".to_owned()), "{}", text(&output.stderr));
    let much = crate::noise(3, 4 << 20);
    let output = with_input(&mut kubectl.command(&exec(&["-i", "--", "cat"])), &much);
    assert!(output.status.success() && output.stdout == much, "{} {}", output.stdout.len(), text(&output.stderr));

    let missing = kubectl.run(&exec(&["--", "no-such-command"])).expect_err("there is no such command");
    assert!(missing.contains("no-such-command"), "{missing}");
    let wrong = kubectl.run(&["exec", "p", "-c", "nobody", "--", "true"]).expect_err("there is no such container");
    assert!(wrong.contains("container nobody is not valid for pod p"), "{wrong}");
}

/// `script` gives kubectl a terminal.
fn terminal(kubectl: &Kubectl) {
    let kubectl = |rest: &str| {
        let (program, config) = (kubectl.program.display(), kubectl.kubeconfig.display());
        format!("{program} --kubeconfig {config} -n {} exec -it p -c c -- {rest}", kubectl.namespace)
    };
    let sized = kubectl("sh -c 'until [ \"$(stty size)\" = \"40 100\" ]; do sleep 0.1; done; tty; exit 3'");
    let mut command = Command::new("script");
    command.args(["-qec", &format!("stty rows 40 cols 100; {sized}"), "/dev/null"]).env("HOME", "/tmp");
    let output = command.stdin(Stdio::null()).output().expect("script starts");
    let said = text(&output.stdout);
    assert!(output.status.code() == Some(3) && said.contains("/dev/pts/"), "{:?} {said}", output.status);

    // Ctrl-C goes to the process group in the container, not to kubectl.
    let mut command = Command::new("script");
    command.args(["-qec", &kubectl("sh -c 'echo ready; exec sleep 4321'"), "/dev/null"]).env("HOME", "/tmp");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("ready")));
    child.stdin.as_mut().expect("a pipe").write_all(b"\x03").expect("script reads");
    let status = until(Duration::from_secs(20), "ctrl-C ends it", || match child.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(status.code(), Some(130));
}

fn client_gone(kubectl: &Kubectl) {
    let sleep = ["sleep", "5432"];
    let mut child = kubectl.command(&["exec", "p", "-c", "c", "--", "sleep", "5432"]).spawn().expect("kubectl starts");
    until(
        Duration::from_secs(20),
        "the command runs",
        || if processes(&sleep) == 1 { Ok(()) } else { Err("no".into()) },
    );
    child.kill().expect("kubectl is killed");
    child.wait().expect("kubectl ends");
    until(Duration::from_secs(20), "the command ends with its client", || match processes(&sleep) {
        0 => Ok(()),
        left => Err(format!("{left} are left")),
    });
}

#[test]
fn attach_joins_the_containers_own_streams() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("attach");
    let node = cluster.node("edge");
    for (number, kubectl) in kubectls(&cluster).into_iter().enumerate() {
        let name = format!("p{number}");
        let cat = with(
            shell("c", "while read line; do echo got $line; done; echo end"),
            &json!({"stdin": true, "stdinOnce": true}),
        );
        // A restarted container would have another log.
        let never = json!({"restartPolicy": "Never"});
        kubectl.apply_all(&[with_spec(pod(&name, &node.name, json!([cat])), &never)]);
        kubectl.wait_ready(&name);
        let mut child = kubectl.command(&["attach", "-i", &name]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        stdin.write_all(b"one\n").expect("kubectl reads");
        assert_eq!(lines.find(|line| line.contains("got")).as_deref(), Some("got one"));
        // stdinOnce: the end of the first client's input is the end of the container's.
        drop(stdin);
        assert!(lines.any(|line| line == "end"));
        child.wait().expect("kubectl ends");
        assert!(kubectl.wait_log(&name, "end").starts_with("got one\n"));
    }
}
