//! `edge-runtime pause`: the first process of a shared pid namespace. Takes in orphans until it is told to end.

use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::CliError;
use super::verb::{Given, Operands, Verb};

pub(super) const VERB: Verb = Verb { name: "pause", about: "", operands: Operands::Raw, flags: &[], run };

fn run(_: Given) -> Result<ExitCode, CliError> {
    // The pod's containers see it and may be of the same user: none of them traces it, writes its memory or follows its
    // root (ptrace_access_mode).
    nix::sys::prctl::set_dumpable(false).map_err(CliError::failed)?;
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        signals.add(signal);
    }
    signals.thread_block().map_err(CliError::failed)?;
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
                {
                }
            }
            Ok(_) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(CliError::failed(error)),
        }
    }
}
