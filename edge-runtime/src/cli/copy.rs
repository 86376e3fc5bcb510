//! `edge-runtime copy`: makes the second copy of the store, as a helper of the daemon: that waits for no disk.

use std::process::ExitCode;

use super::{CliError, paths};
use crate::store::Store;

pub(super) fn run(mut parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let mut root = None;
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("root") => root = Some(parser.value()?.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let bytes = Store::open_shared(&paths(root)?.store()).and_then(|store| store.copy()).map_err(CliError::failed)?;
    super::version::print(&format!("copied {bytes} bytes"))
}
