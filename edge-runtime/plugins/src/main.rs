//! The program `edge-plugins`: arguments in, exit code out. Started by the daemon, not by people.

use std::ffi::OsString;
use std::process::ExitCode;

use sampan_helper::{Failed, Job, Program};

const PROGRAM: Program = Program {
    name: "edge-plugins",
    help: "usage: edge-plugins --socket PATH [--log LEVEL]
       edge-plugins version [-o json]

Talks to device plugins and CSI drivers for a node. Started by edge-runtime, which calls at the socket.",
    // Three for each of 64 plugins, and those of clients; three for each of 8 calls of 32 CSI drivers; four for each of 64
    // calls of controllers. The process for fsGroup opens 500 folders.
    max_files: 1_792,
    jobs: &[Job { flag: "own", run: own }],
};

fn main() -> ExitCode {
    PROGRAM.main(|socket| async move { sampan_plugins::run::run(&socket).await })
}

/// fsGroup. Started by this program itself.
fn own() -> Result<String, Failed> {
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    sampan_plugins::own(&words).map(|()| String::new()).map_err(|why| Failed::answer(why, 1))
}
