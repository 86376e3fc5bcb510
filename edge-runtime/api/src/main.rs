//! The program `edge-api`: arguments in, exit code out. Started by the daemon, not by people.

use std::process::ExitCode;

use sampan_helper::Program;

const PROGRAM: Program = Program {
    name: "edge-api",
    help: "usage: edge-api --socket PATH [--log LEVEL]
       edge-api version [-o json]

Takes requests of a node's pods to the API. Started by edge-runtime, which calls at the socket.",
    // 64 connections of pods, and some of the daemon.
    max_files: 128,
    jobs: &[],
};

fn main() -> ExitCode {
    PROGRAM.main(|socket| async move { sampan_api::run::run(&socket).await })
}
