//! The program `edge-plugins`: arguments in, exit code out. Started by the daemon, not by people.

use std::process::ExitCode;

use sampan_helper::Program;

const PROGRAM: Program = Program {
    name: "edge-plugins",
    help: "usage: edge-plugins --socket PATH [--log LEVEL]
       edge-plugins version [-o json]

Talks to device plugins for a node. Started by edge-runtime, which calls at the socket.",
    // Three for each of 64 plugins, and those of clients.
    max_files: 768,
    jobs: &[],
};

fn main() -> ExitCode {
    PROGRAM.main(|socket| async move { sampan_plugins::run::run(&socket).await })
}
