//! `edge-runtime monitor`: the parent of the containers. Started by `run`, not by people.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;

use super::CliError;
use crate::monitor::client::RUNTIME_TIMEOUT;
use crate::monitor::{detach, process};
use crate::sys::descriptors;

/// `monitor [--root DIR] [--workers N] [--runtime-timeout SECONDS] [--env NAME=VALUE]... [--stay]`. Without `--stay` it detaches and returns once
/// the monitor takes connections.
pub(super) fn run(mut parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let (mut root, mut workers, mut environment, mut stay) = (None, 2usize, Vec::new(), false);
    let mut timeout = RUNTIME_TIMEOUT;
    while let Some(arg) = parser.next()? {
        match arg {
            Long("root") => root = Some(PathBuf::from(parser.value()?)),
            Long("workers") => workers = parser.value()?.parse()?,
            Long("runtime-timeout") => timeout = Duration::from_secs(parser.value()?.parse()?),
            Long("env") => {
                let pair = parser.value()?.string()?;
                let Some((name, value)) = pair.split_once('=') else {
                    return Err(CliError::Usage(format!("--env {pair}: NAME=VALUE expected")));
                };
                environment.push((name.to_owned(), value.to_owned()));
            }
            Long("stay") => stay = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let paths = super::paths(root)?;
    if !stay {
        let mut again = vec![OsString::from("monitor"), "--stay".into(), "--root".into(), paths.root().into()];
        again.extend(["--workers".into(), workers.to_string().into()]);
        again.extend(["--runtime-timeout".into(), timeout.as_secs().to_string().into()]);
        for (name, value) in &environment {
            again.extend(["--env".into(), format!("{name}={value}").into()]);
        }
        detach::launch(&again, &paths).map_err(CliError::failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Fails only where the caller has made us leader of a session already.
    let _ = nix::unistd::setsid();
    descriptors::raise();
    let runtime_timeout = timeout.max(Duration::from_secs(1));
    let options = process::Options { paths, workers: workers.max(1), environment, runtime_timeout };
    let ready = || {
        let _ = detach::say_ready();
    };
    process::run(options, ready).map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
