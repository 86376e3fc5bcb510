//! `edge-runtime copy`: makes the second copy of the store, as a helper of the daemon: that waits for no disk.

use std::process::ExitCode;

use super::CliError;
use super::verb::{Given, Operands, Verb};
use crate::store::Store;

pub(super) const VERB: Verb = Verb { name: "copy", about: "", operands: Operands::None, flags: &[], run };

fn run(given: Given) -> Result<ExitCode, CliError> {
    let store = given.paths()?.store();
    let bytes = Store::open_shared(&store).and_then(|store| store.copy()).map_err(CliError::failed)?;
    super::version::print(&format!("copied {bytes} bytes"))
}
