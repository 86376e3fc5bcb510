//! `edge-runtime monitor`: the parent of the containers. Started by `run`, not by people.

use std::ffi::OsString;
use std::time::Duration;

use super::error::CliError;
use super::verb::{Flag, Given, Operands, Verb};
use crate::monitor::client::RUNTIME_TIMEOUT;
use crate::sys::descriptors;
use sampan_monitor::process::{self, detach};

/// Without `--stay` it detaches and returns once the monitor takes connections.
pub(super) const VERB: Verb = Verb {
    name: "monitor",
    about: "",
    operands: Operands::None,
    flags: &[
        Flag::value("workers", "N", ""),
        Flag::value("runtime-timeout", "SECONDS", ""),
        Flag::value("env", "NAME=VALUE", ""),
        Flag::switch("stay", ""),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let workers = given.one::<usize>("workers")?.unwrap_or(2);
    let timeout = given.one("runtime-timeout")?.map_or(RUNTIME_TIMEOUT, Duration::from_secs);
    let pair = |pair: &String| {
        let pair = pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| CliError::Usage("--env: NAME=VALUE expected".to_owned()))
    };
    let environment = given.all::<String>("env")?.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
    let paths = given.paths()?;
    if !given.has("stay") {
        let mut again = vec![OsString::from("--stay"), "--root".into(), paths.root().into()];
        again.extend(["--workers".into(), workers.to_string().into()]);
        again.extend(["--runtime-timeout".into(), timeout.as_secs().to_string().into()]);
        for (name, value) in &environment {
            again.extend(["--env".into(), format!("{name}={value}").into()]);
        }
        detach::launch(&again, &paths.run())?;
        return Ok(());
    }
    // Fails only where the caller has made us leader of a session already.
    let _ = nix::unistd::setsid();
    descriptors::raise();
    let runtime_timeout = timeout.max(Duration::from_secs(1));
    let options = process::Options { run: paths.run(), workers: workers.max(1), environment, runtime_timeout };
    let ready = || {
        let _ = detach::say_ready();
    };
    process::run(options, ready)?;
    Ok(())
}
