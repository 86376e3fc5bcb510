//! The `edge-runtime` command: arguments in, exit code out. What each verb does is in `edge_runtime::cli`.

#[cfg(feature = "bare")]
mod bare;

use std::process::ExitCode;

use edge_runtime::cli::{dispatch, exit_code};

fn main() -> ExitCode {
    exit_code(dispatch(std::env::args_os().skip(1)))
}
