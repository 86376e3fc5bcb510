//! `edge-runtime run`: be the node.

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;

use super::CliError;
use crate::config::{Config, Overrides};
use crate::link::identity::Identity;
use crate::node;
use crate::sys::oom;

pub(super) fn run(mut args: lexopt::Parser) -> Result<ExitCode, CliError> {
    let mut root: Option<PathBuf> = None;
    let mut file: Option<PathBuf> = None;
    let mut overrides = Overrides::default();
    let mut print = false;
    while let Some(arg) = args.next()? {
        match arg {
            Long("root") => root = Some(args.value()?.into()),
            Long("config") => file = Some(args.value()?.into()),
            Long("node") => overrides.node_name = Some(args.value()?.string()?),
            Long("print-config") => print = true,
            _ => return Err(arg.unexpected().into()),
        }
    }
    let paths = super::paths(root)?;
    let file = file.unwrap_or_else(|| paths.config_file());
    let identity = Identity::load(&paths).map_err(CliError::failed)?;
    let joined = identity.as_ref().map(|identity| identity.node.as_str());
    let config = Config::load(&file, paths.root(), &overrides, joined).map_err(CliError::failed)?;
    if let Some(joined) = joined.filter(|joined| *joined != config.node_name) {
        return Err(CliError::Failed(format!(
            "this device joined as node {joined}, but is configured as {}: remove node-name from {} or join again",
            config.node_name,
            file.display()
        )));
    }
    if print {
        return super::version::print(&format!("{config:#?}"));
    }
    super::start_log();
    if let Err(error) = oom::protect() {
        log::info!("the node may be killed for want of memory like any process (oom_score_adj {}): {error}", oom::NODE);
    }
    node::run(&paths, config, identity).map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
