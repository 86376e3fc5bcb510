//! A node with a valid certificate, by `hostile` of `tests/scale`: each of its floods, and every message in every
//! malformed shape. Its own honest nodes must keep their connections.

use std::process::Command;
use std::time::Instant;

use sampan_tests::Cluster;
use sampan_tests::process::binary;

use crate::siege::{Attack, Done};

/// Names of `hostile --flood`; "shapes" is its mode without a flood.
const FLOODS: [&str; 23] = [
    "shapes",
    "pod-statuses",
    "node-statuses",
    "giant-nodes",
    "unknown-pods",
    "events",
    "mirror-pods",
    "giant-mirror-pods",
    "csi-drivers",
    "tokens",
    "renewals",
    "interests",
    "devices",
    "rule-messages",
    "rule-requests",
    "wrong-numbers",
    "resyncs",
    "pings",
    "parts",
    "bombs",
    "answers",
    "reconnects",
    "slow-readers",
];

pub(crate) fn attacks(cluster: &Cluster) -> Vec<Attack<'static>> {
    let pid = cluster.bridge.as_ref().expect("a bridge").pid();
    let pki = cluster.folder().join("bridge/pki");
    let (link, kubeconfig) = (cluster.listen, cluster.kubectl.kubeconfig.clone());
    let attack = move |flood: &'static str| {
        let (pki, kubeconfig) = (pki.clone(), kubeconfig.clone());
        let run = move |random: &mut crate::random::Random, until: Instant| {
            let mut command = Command::new(binary("hostile"));
            command.args(["--link", &link.to_string(), "--pid", &pid.to_string(), "--p99", "5000", "--memory", "4096"]);
            command.arg("--ca").arg(pki.join("ca.crt")).arg("--ca-key").arg(pki.join("ca.key"));
            command.arg("--kubeconfig").arg(&kubeconfig);
            let seconds = until.saturating_duration_since(Instant::now()).as_secs().max(1);
            command.args(["--seconds", &seconds.to_string(), "--seed", &random.below(1 << 31).to_string()]);
            if flood != FLOODS[0] {
                command.args(["--flood", flood]);
            }
            let output = command.output().expect("hostile starts: cargo build -p sampan-scale");
            let said = String::from_utf8_lossy(&output.stdout);
            let count = |what: &str| {
                let number = said.split(what).nth(1)?;
                number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            };
            let mut wrong = Vec::new();
            // The short run is too short for all shapes.
            let error = String::from_utf8_lossy(&output.stderr);
            if !output.status.success() && !error.contains("has said little") {
                wrong.push(error.lines().next().unwrap_or("hostile failed").to_owned());
            }
            Done { requests: count("frames: ").unwrap_or(0), accepted: 0, wrong }
        };
        Attack { workers: 1, ..Attack::new(flood, run) }
    };
    FLOODS.into_iter().map(attack).collect()
}
