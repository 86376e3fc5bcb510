//! `edge-runtime dns`: answers pods' questions for names. Started by `run`, not by people.

use super::CliError;
use super::verb::{Flag, Given, Operands, Verb};
use crate::dns::serve::{self, Options};
use crate::net::Subnet;

pub(super) const VERB: Verb = Verb::helper("dns", Operands::None, &[Flag::value("subnet", "SUBNET", "")], run);

fn run(given: Given) -> Result<(), CliError> {
    super::start_log();
    // A session of its own: what ends the daemon's ends nothing here. Fails only for one that leads one already.
    let _ = nix::unistd::setsid();
    let subnets = given.all::<Subnet>("subnet")?;
    let listen = subnets.iter().map(|subnet| subnet.gateway()).collect();
    Ok(serve::run(Options { listen, subnets, socket: given.paths()?.dns() })?)
}
