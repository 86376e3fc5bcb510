//! `edge-admin progress WHAT`: a helper of `pull` and `import`, which start it. Shows on standard error how far they are,
//! until its input ends.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, Operands, Verb};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sampan_sys::terminal;

use crate::progress::look::Looker;
use crate::progress::show::{Pace, Rate, line};

/// Clears the line that the cursor is in (ECMA-48).
const CLEAR: &str = "\r\x1b[K";

pub(super) const VERB: Verb = Verb::helper("progress", Operands::One("WHAT"), &[], run);

fn run(given: Given) -> Result<(), CliError> {
    let (what, paths) = (given.operand()?, given.paths()?);
    let stderr = io::stderr();
    let is_terminal = stderr.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    let looker = Looker::of(std::os::unix::process::parent_id(), &paths);
    let (began, mut pace, mut rate) = (Instant::now(), Pace::new(is_terminal), Rate::default());
    let mut is_shown = false;
    while !has_ended(pace.look_every())? {
        let at = began.elapsed();
        let Some(seen) = looker.look() else { continue };
        let rate = rate.after(at, seen.bytes());
        if !pace.is_due(at) {
            continue;
        }
        let mut text = line(&what, &seen, rate);
        if is_terminal {
            let width = terminal::size(&stderr).map_or(80, |size| usize::from(size.width));
            text = text.chars().take(width.saturating_sub(1)).collect();
            write!(&stderr, "{CLEAR}{text}")?;
            is_shown = true;
        } else {
            writeln!(&stderr, "{text}")?;
        }
    }
    if is_shown {
        write!(&stderr, "{CLEAR}")?;
    }
    Ok(())
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
