//! Streams beside the sync on one connection: `kubectl exec`, `attach`, `cp`, `port-forward`, `top`. With an old
//! kubectl (SPDY) and a current one (WebSocket), both on the same pods.

mod copy;
mod edge_life;
mod exec;
mod forward;
mod top;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use sampan_tests::{Cluster, Kubectl};

/// The kubectls to use: `SAMPAN_KUBECTL_OLD` and `SAMPAN_KUBECTL_NEW`, or the one on the path.
fn kubectls(cluster: &Cluster) -> Vec<Kubectl> {
    let named = ["SAMPAN_KUBECTL_OLD", "SAMPAN_KUBECTL_NEW"].into_iter().filter_map(std::env::var_os);
    let named: Vec<PathBuf> = named.map(PathBuf::from).collect();
    if named.is_empty() {
        return vec![cluster.kubectl.clone()];
    }
    named.into_iter().map(|program| Kubectl { program, ..cluster.kubectl.clone() }).collect()
}

/// Runs a command to its end with this input.
fn with_input(command: &mut Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A command that ends early does not read all of it.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that do not repeat soon.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend(state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}
