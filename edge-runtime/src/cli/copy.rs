//! `edge-runtime copy`: makes the second copy of the store, as a helper of the daemon: that waits for no disk.

use std::process::ExitCode;

use super::{CliError, lone_root, paths};
use crate::store::Store;

pub(super) fn run(parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let bytes = Store::open_shared(&paths(lone_root(parser)?)?.store())
        .and_then(|store| store.copy())
        .map_err(CliError::failed)?;
    super::version::print(&format!("copied {bytes} bytes"))
}
