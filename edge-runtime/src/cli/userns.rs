//! `edge-runtime userns KIND...`: makes a user namespace and others that it owns, and holds them until its input ends:
//! only a process with a single thread may. A helper of the daemon, which maps the ids and pins the namespaces.

use std::io::{Read, Write};
use std::process::ExitCode;

use lexopt::ValueExt;
use nix::sched::{CloneFlags, unshare};

use super::CliError;
use crate::net::namespaces::kind_of;

pub(super) fn run(mut parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let mut flags = CloneFlags::CLONE_NEWUSER;
    while let Some(arg) = parser.next()? {
        let lexopt::Arg::Value(name) = arg else { return Err(arg.unexpected().into()) };
        let name = name.string()?;
        flags |= kind_of(&name).ok_or_else(|| CliError::Usage(format!("{name} is no kind of namespace")))?;
    }
    unshare(flags).map_err(CliError::failed)?;
    let mut out = std::io::stdout();
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(CliError::failed)?;
    // Whatever comes: the end of it is what is waited for.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(ExitCode::SUCCESS)
}
