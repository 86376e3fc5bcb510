//! `edge-runtime dns`: answers pods' questions for names. Started by `run`, not by people.

use std::net::IpAddr;

use super::error::CliError;
use super::stdio::start_log;
use super::verb::{Flag, Given, Operands, Verb};
use crate::dns::serve::{self, Options};
use crate::net::Subnet;

pub(super) const VERB: Verb = Verb::helper("dns", Operands::None, FLAGS, run);

const FLAGS: &[Flag] = &[Flag::value("listen", "ADDRESS", ""), Flag::value("subnet", "SUBNET", "")];

fn run(given: Given) -> Result<(), CliError> {
    start_log();
    // A separate session: signals to the daemon's session do not reach this process. Fails only if it leads a session
    // already.
    let _ = nix::unistd::setsid();
    let subnets = given.all::<Subnet>("subnet")?;
    let listen = given.all::<IpAddr>("listen")?;
    Ok(serve::run(Options { listen, subnets, socket: given.paths()?.dns() })?)
}
