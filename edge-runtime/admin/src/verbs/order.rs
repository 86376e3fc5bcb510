//! `edge-admin order`: a helper of the daemon. An order comes by standard input, and a line of JSON goes out for each state of it.

use std::io::{self, Read, Write};

use edge_protocol::message::Order;
use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, Operands, Verb};

use crate::order::run as run_order;

/// Maximum size of an order, in bytes: the logins of a pull are its longest part.
const LONGEST: u64 = 4 << 20;

pub(super) const VERB: Verb = Verb::helper("order", Operands::None, &[], run);

fn run(given: Given) -> Result<(), CliError> {
    edge_runtime::cli::start_log();
    let paths = given.paths()?;
    let mut text = Vec::new();
    io::stdin().take(LONGEST).read_to_end(&mut text)?;
    let order: Order = serde_json::from_slice(&text)?;
    let mut last = String::new();
    run_order(&order, &paths, &mut |kept| {
        let line = serde_json::to_string(&kept.status).unwrap_or_default();
        // What says nothing new is an empty line: a sign of life. A daemon that is gone asks again when it is back.
        let _ = writeln!(io::stdout(), "{}", if line == last { "" } else { &line });
        last = line;
    });
    Ok(())
}
