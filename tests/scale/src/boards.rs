//! `boards`: boards of one card image that enrol with claim tokens, all at once, to measure a bridge with. Each has a key
//! of its own and asks as a real board does: with the daemon's code, over TLS, and with the daemon's waits. Only the
//! hardware is made up. Prints one line of JSON for each token; fails if a board has no certificate in the end.
//!
//! | module | owns |
//! |---|---|
//! | `addresses` | the loopback addresses from which boards reach the bridge |
//! | `board` | one board, until it has its certificate |
//! | `outcome` | pure: times, counts and failures of the boards of a token |

#[path = "boards/addresses.rs"]
mod addresses;
#[path = "boards/board.rs"]
mod board;
#[path = "boards/outcome.rs"]
mod outcome;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use edge_protocol::join_token;
use edge_runtime::link::join::Token;
use futures::future::join_all;
use sampan_sys::random::random;

use board::Board;
use outcome::Outcome;

/// What to measure.
#[derive(Debug, Clone, Parser)]
#[command(name = "boards", about = "Boards that enrol with claim tokens, to measure a bridge with")]
struct Arguments {
    /// Address of the bridge's link, on loopback.
    #[arg(long, default_value = "127.0.0.1:7443")]
    link: SocketAddr,
    /// Claim token (repeatable).
    #[arg(long, required = true)]
    token: Vec<String>,
    /// Number of boards of each token.
    #[arg(long, default_value_t = 500)]
    boards: usize,
    /// Number of boards behind one address. The bridge takes 10 new ones a minute from each.
    #[arg(long, default_value_t = 10)]
    behind: usize,
    /// Seconds in which all boards have to enrol.
    #[arg(long, default_value_t = 300)]
    patience: u64,
    /// Folder for the keys of the boards. A real board has a disk of its own, so the default is in memory.
    #[arg(long, default_value = "/dev/shm")]
    state: PathBuf,
}

fn main() -> anyhow::Result<()> {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, run(Arguments::parse()))
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    ensure!(arguments.link.ip().is_loopback(), "--link: {} is not on loopback, as the boards are", arguments.link);
    ensure!(arguments.behind > 0, "--behind: at least one board has an address");
    let tokens: Vec<Token> = arguments.token.iter().map(|text| token(text)).collect::<anyhow::Result<_>>()?;
    let folder = tempfile::tempdir_in(&arguments.state).with_context(|| arguments.state.display().to_string())?;
    let mut ports = Vec::new();
    for number in 0..(tokens.len() * arguments.boards).div_ceil(arguments.behind) {
        ports.push(addresses::open(addresses::source(number)?, arguments.link).await?);
    }
    // Serial numbers of another run belong to its nodes.
    let (run, patience) = (random(), Duration::from_secs(arguments.patience));
    let boards = |at: usize, token: &Token| {
        let numbers = at * arguments.boards..(at + 1) * arguments.boards;
        let boards: Vec<Board> = numbers
            .filter_map(|number| Some((number, ports.get(number / arguments.behind)?)))
            .map(|(number, port)| Board::new(folder.path(), run, number, token.clone(), *port))
            .collect();
        join_all(boards.into_iter().map(|board| board.enrol(patience)))
    };
    let asked = join_all(tokens.iter().enumerate().map(|(at, token)| boards(at, token))).await;
    let outcomes: Vec<Outcome> = asked.iter().map(|asked| Outcome::of(asked)).collect();
    for outcome in &outcomes {
        say(&serde_json::to_string(outcome)?);
    }
    let failed: usize = outcomes.iter().map(Outcome::failed).sum();
    ensure!(failed == 0, "{failed} boards have no certificate");
    Ok(())
}

/// A claim token, with or without its place.
fn token(text: &str) -> anyhow::Result<Token> {
    let token = Token::parse(join_token::split(text)?.0)?;
    ensure!(token.is_claim(), "--token: a token for one node enrols no boards; see cloud-bridge token claim");
    Ok(token)
}

fn say(line: &str) {
    // The reader of the output may be gone.
    let _ = writeln!(std::io::stdout(), "{line}");
}
