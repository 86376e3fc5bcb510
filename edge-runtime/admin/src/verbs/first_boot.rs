//! `edge-runtime first-boot`: joins as a file on the boot partition says, once: a card is flashed, the file put on it by any
//! computer, and the board is a node when it has found its bridge. A unit runs it at boot.

use std::path::Path;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, Operands, Verb};

use crate::join::file;
use crate::join::service::Service;
use crate::join::until_joined;

pub(super) const VERB: Verb = Verb {
    name: "first-boot",
    about: "Join with the file on the boot partition (for the unit)",
    operands: Operands::None,
    flags: &[],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    edge_runtime::cli::start_log();
    let paths = given.paths()?;
    let Some(place) = file::find(paths.root()) else {
        return Err(CliError::Failed(format!("none of {} is there", file::PLACES.join(", "))));
    };
    let said = match file::read(&place) {
        Ok(said) => said,
        Err(why) => {
            // The person who made the card will read it in a computer next.
            file::explain(&place, &why.to_string());
            return Err(CliError::Failed(format!("{}: {why}", place.display())));
        }
    };
    let joined = match until_joined(&paths, &said.wanted, |why| log::warn!("{why}; trying again")) {
        Ok(joined) => joined,
        Err(error) => {
            file::set_aside(&place, &error.to_string())?;
            return Err(error.into());
        }
    };
    let node = &joined.node;
    match joined.refused {
        None => log::info!("joined cluster {} as node {node}", joined.cluster),
        Some(why) => {
            log::info!("this device is node {node} of cluster {} already and keeps its identity: {why}", joined.cluster)
        }
    }
    file::remove(&place)?;
    if paths.root() == Path::new("/")
        && let Some(service) = Service::find(paths.root())
    {
        service.enable_and_start(joined.restart)?;
    }
    Ok(())
}
