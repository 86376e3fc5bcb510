//! Living with a node: health and metrics of both programs, what is wrong and what cures it, events, use, and a bundle for those
//! who help.

mod bundle;
mod doctor;
mod metrics;
mod provoked;
mod stage;
mod watch;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use sampan_tests::EdgeNode;
use sampan_tests::process::binary;
use serde_json::Value;

/// Status line and body of the answer to a GET.
fn asked<S: Read + Write>(mut stream: S, what: &str) -> Result<(String, String), String> {
    let text = |error: std::io::Error| error.to_string();
    stream.write_all(format!("GET {what} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).map_err(text)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(text)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("no HTTP: {answer:?}"))?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

/// Same for a node at its socket.
fn of_node(node: &EdgeNode, what: &str) -> Result<(String, String), String> {
    let socket = node.root().join("run/edge-runtime/health.sock");
    let stream = UnixStream::connect(&socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(|error| error.to_string())?;
    asked(stream, what)
}

/// What doctor finds, and how it ends.
fn examined(root: &Path, change: impl Fn(&mut Command)) -> (Vec<Value>, i32) {
    let mut command = Command::new(binary("edge-runtime"));
    command.args(["doctor", "-o", "json", "--root"]).arg(root);
    change(&mut command);
    examine(&mut command)
}

fn examine(command: &mut Command) -> (Vec<Value>, i32) {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let findings = serde_json::from_slice(&stdout).unwrap_or_else(|error| {
        panic!("{error}: {}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
    });
    (findings, status.code().unwrap_or(-1))
}

/// Doctor has found this: it says `what`, `cure` cures it, and doctor ends as the worst of its findings wants.
fn assert_provoked((findings, code): &(Vec<Value>, i32), check: &str, severity: &str, what: &str, cure: &str) {
    let has = |one: &Value, field: &str, words: &str| one[field].as_str().unwrap_or_default().contains(words);
    let one = findings
        .iter()
        .find(|one| one["check"] == check && one["severity"] == severity && has(one, "what", what))
        .unwrap_or_else(|| panic!("{check}, {severity}, {what:?} in {findings:#?}"));
    assert!(has(one, "cure", cure), "{cure:?} in {one:#}");
    assert!(severity == "info" || (one["why"].is_string() && one["cure"].is_string()), "{one:#}");
    let is_any = |severity: &str| findings.iter().any(|one| one["severity"] == severity);
    let wanted = if is_any("error") { 4 } else { 3 * i32::from(is_any("warning")) };
    assert_eq!(*code, wanted, "{findings:#?}");
}

/// The finding of this check that is worse than information.
fn found<'a>(findings: &'a [Value], check: &str) -> Option<&'a Value> {
    findings.iter().find(|one| one["check"] == check && matches!(one["severity"].as_str(), Some("warning" | "error")))
}
