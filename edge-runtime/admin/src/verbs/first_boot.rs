//! `edge-runtime first-boot`: joins as a file on the boot partition says, once: a card is flashed, the file put on it by any
//! computer, and the board is a node when it has found its bridge. A unit runs it at boot.

use std::path::Path;
use std::time::Duration;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::paths::Paths;

use crate::join::file::{self, JoinFile};
use crate::join::service::Service;
use crate::join::{BecomeError, Joined, become_node};

/// Seconds between tries: a network that comes up is there within seconds, one that has to be plugged in is not.
const PAUSES: [u64; 5] = [1, 2, 5, 10, 30];

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
    let joined = match try_until_done(&paths, &said) {
        Ok(joined) => joined,
        Err(error) => {
            file::set_aside(&place, &error.to_string())?;
            return Err(error.into());
        }
    };
    let node = &said.wanted.node;
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

/// Until it has joined, or never will.
fn try_until_done(paths: &Paths, said: &JoinFile) -> Result<Joined, BecomeError> {
    let mut pauses = PAUSES.iter().copied();
    let mut last = String::new();
    loop {
        let error = match become_node(paths, &said.wanted) {
            Err(error) if !error.is_final() => error.to_string(),
            done => return done,
        };
        if error != last {
            log::warn!("{error}; trying again");
            last = error;
        }
        std::thread::sleep(Duration::from_secs(pauses.next().unwrap_or(PAUSES[PAUSES.len() - 1])));
    }
}
