//! The `edge-runtime` command: arguments in, exit code out. What each verb does is in `edge_runtime::cli`.

#[cfg(feature = "bare")]
mod bare;

use std::io::Write;
use std::process::ExitCode;

use edge_runtime::cli::CliError;

fn main() -> ExitCode {
    match edge_runtime::cli::dispatch(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliError::Exit(code)) => code.into(),
        Err(CliError::Usage(why)) => failed(&why, 2),
        Err(CliError::Failed(why)) => failed(&why, 1),
    }
}

fn failed(why: &str, code: u8) -> ExitCode {
    // Nothing is left to do when even stderr is gone.
    let _ = writeln!(std::io::stderr(), "edge-runtime: {why}");
    code.into()
}
