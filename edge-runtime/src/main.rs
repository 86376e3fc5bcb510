//! The `edge-runtime` command: arguments in, exit code out. What each verb does is in `edge_runtime::cli`.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match edge_runtime::cli::dispatch(std::env::args_os().skip(1)) {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to do when even stderr is gone.
            let _ = writeln!(std::io::stderr(), "edge-runtime: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
