//! `edge-admin progress WHAT`: a helper of `pull` and `import`, which start it. Shows on standard error how far they are,
//! until its input ends.

use std::io;
use std::os::fd::AsFd;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, Operands, Verb};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::progress::look::Looker;
use crate::progress::print::Printer;

pub(super) const VERB: Verb = Verb::helper("progress", Operands::One("WHAT"), &[], run);

fn run(given: Given) -> Result<(), CliError> {
    // The name of a file need not be UTF-8.
    let what = given.operands.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let paths = given.paths()?;
    let looker = Looker::of(std::os::unix::process::parent_id(), &paths);
    let mut printer = Printer::new();
    while !has_ended(printer.look_every())? {
        if let Some(seen) = looker.look() {
            printer.show(&what, &seen)?;
        }
    }
    Ok(printer.end()?)
}

/// Whether the input ends within this time, in milliseconds: the program that is followed has ended.
fn has_ended(wait: u16) -> Result<bool, CliError> {
    let input = io::stdin();
    let mut ready = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ready, PollTimeout::from(wait)) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
