//! The program `edge-devices`: arguments in, exit code out. Started by the daemon, not by people.

use std::io::Read;
use std::process::ExitCode;

use sampan_devices_control::{Settings, WRONG_SETTINGS};
use sampan_helper::{Failed, Job, Program};

/// Bytes of the settings.
const MAX_SETTINGS: u64 = 1 << 20;

const PROGRAM: Program = Program {
    name: "edge-devices",
    help: "usage: edge-devices --socket PATH [--log LEVEL]
       edge-devices --check-settings < SETTINGS
       edge-devices version [-o json]

Speaks with devices for a node. Started by edge-runtime, which calls at the socket.",
    max_files: 512,
    jobs: &[Job { flag: "check-settings", run: check_settings }],
};

fn main() -> ExitCode {
    PROGRAM.main(|socket| async move { sampan_devices::run::run(&socket).await })
}

/// Checks the section for the daemon, which does not know its content.
fn check_settings() -> Result<String, Failed> {
    let mut text = Vec::new();
    std::io::stdin().take(MAX_SETTINGS).read_to_end(&mut text).map_err(Failed::new)?;
    let typed = serde_json::from_slice(&text).map_err(Failed::new)?;
    let read = Settings::read(&typed).map_err(|why| Failed::answer(why, WRONG_SETTINGS))?;
    serde_json::to_string(&read).map_err(Failed::new)
}
