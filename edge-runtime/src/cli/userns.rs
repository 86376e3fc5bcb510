//! `edge-runtime userns KIND...`: makes a user namespace and others that it owns, and holds them until its input ends:
//! only a process with a single thread may. A helper of the daemon, which maps the ids and pins the namespaces.

use std::io::{Read, Write};
use std::process::ExitCode;

use nix::sched::{CloneFlags, unshare};

use super::CliError;
use super::verb::{Given, Operands, Verb};
use crate::net::namespaces::kind_of;

pub(super) const VERB: Verb = Verb { name: "userns", about: "", operands: Operands::Raw, flags: &[], run };

fn run(given: Given) -> Result<ExitCode, CliError> {
    let mut flags = CloneFlags::CLONE_NEWUSER;
    for name in &given.operands {
        let name = name.to_string_lossy();
        flags |= kind_of(&name).ok_or_else(|| CliError::Usage(format!("{name} is no kind of namespace")))?;
    }
    unshare(flags).map_err(CliError::failed)?;
    let mut out = std::io::stdout();
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(CliError::failed)?;
    // Whatever comes: the end of it is what is waited for.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(ExitCode::SUCCESS)
}
