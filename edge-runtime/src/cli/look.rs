//! `edge-runtime look`: looks at paths behind which a foreign file system may lie, as a helper of the daemon: looks as JSON
//! on standard input, one line of JSON for each on standard output, up to the first that fails.

use std::io::{Read, Write};
use std::process::ExitCode;

use super::CliError;
use super::verb::{Given, Operands, Verb};
use crate::launch::look::{Answer, Look};

const LONGEST: u64 = 4 << 20;

pub(super) const VERB: Verb = Verb { name: "look", about: "", operands: Operands::None, flags: &[], run };

fn run(_: Given) -> Result<ExitCode, CliError> {
    let mut text = Vec::new();
    std::io::stdin().take(LONGEST).read_to_end(&mut text).map_err(CliError::failed)?;
    let looks: Vec<Look> = serde_json::from_slice(&text).map_err(CliError::failed)?;
    let mut out = std::io::stdout().lock();
    for look in &looks {
        let answer = look.run();
        let line = serde_json::to_string(&answer).map_err(CliError::failed)?;
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(CliError::failed)?;
        if answer != Answer::Done {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}
