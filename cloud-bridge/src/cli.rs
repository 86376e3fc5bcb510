//! The verbs and their flags. Owns what is printed; the work is done by `standalone`, `serve` and `pki`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::flags::{bridge_url, duration, words};
use crate::invitation::Invitation;
use crate::pki::{self, token};
use crate::reach::Reach;
#[cfg(feature = "standalone")]
use crate::standalone;
use crate::{info, limits, memory, nodes, serve};

#[derive(Debug, Parser)]
#[command(
    name = "cloud-bridge",
    version,
    about = "Speaks for many small nodes to a Kubernetes API, or is that API itself"
)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// What is logged: error, warn, info, debug or trace.
    #[arg(long, global = true, default_value = "info")]
    log_level: log::LevelFilter,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The bridge over a small Kubernetes API of its own.
    #[cfg(feature = "standalone")]
    Standalone(standalone::Options),
    /// The bridge over an existing Kubernetes API.
    Serve(serve::Options),
    /// Join tokens.
    #[command(subcommand)]
    Token(TokenVerb),
    /// How the nodes of a running bridge are: last seen, epoch, acknowledged changes, queues, round trip.
    Nodes(nodes::Options),
    /// What makes a shell complete this command, as in: source <(cloud-bridge completion bash)
    Completion { shell: Shell },
    /// Prints the manual page of this command, or of one of its verbs.
    #[command(hide = true)]
    Man { verb: Vec<String> },
    /// Prints the version.
    Version,
}

impl Verb {
    /// Whether this is a server: it runs until a signal.
    fn serves(&self) -> bool {
        match self {
            #[cfg(feature = "standalone")]
            Self::Standalone(_) => true,
            Self::Serve(_) => true,
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// Makes a single-use token with which one node may join, and prints it with the command to use it.
    Create(TokenCreate),
}

#[derive(Debug, Args)]
struct TokenCreate {
    /// Name of the node.
    node: String,
    /// How long the token is good for: 90s, 30m, 2h, 3d; at most 7d [default: 1h, with --file 7d].
    #[arg(long, value_parser = duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    reach: Reach,
    /// Address of a bridge for the node, https://HOST:PORT (repeatable); absent: as the bridge advertises itself.
    #[arg(long, value_name = "URL", value_parser = bridge_url)]
    bridge: Vec<String>,
    /// Print the command as a QR code, too.
    #[arg(long)]
    qr: bool,
    /// Write what joins at the first boot into this file instead of printing the token: for the boot partition of a card, as
    /// edge-runtime.join.
    #[arg(long, conflicts_with = "qr")]
    file: Option<PathBuf>,
}

impl TokenCreate {
    /// A file waits for its card to be written, carried and switched on.
    fn life(&self) -> Duration {
        self.ttl.unwrap_or(if self.file.is_some() { token::MAX_TTL } else { token::DEFAULT_TTL })
    }
}

/// Log lines go to stderr.
pub fn start_log(arguments: &Arguments) -> anyhow::Result<()> {
    // The libraries' own words below a warning are about their insides.
    let levels = simple_logger::SimpleLogger::new()
        .with_level(log::LevelFilter::Warn.min(arguments.log_level))
        .with_module_level("cloud_bridge", arguments.log_level)
        .with_module_level("sampan_", arguments.log_level);
    sampan_log::start(levels).context("starting the log")
}

/// Does what the arguments say; for the servers, until a signal.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    pki::tls::install_provider();
    if arguments.verb.serves() {
        limits::set();
        memory::set_up();
        tokio::spawn(memory::watch());
    }
    match arguments.verb {
        #[cfg(feature = "standalone")]
        Verb::Standalone(options) => standalone::run(options).await,
        Verb::Serve(options) => serve::run(options).await,
        Verb::Nodes(options) => nodes::run(options).await,
        Verb::Token(TokenVerb::Create(options)) => token_create(options).await,
        Verb::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "cloud-bridge", &mut script);
            std::io::stdout().write_all(&script).context("stdout")
        }
        Verb::Man { verb } => manual(&verb),
        Verb::Version => writeln!(std::io::stdout(), "cloud-bridge {}", env!("CARGO_PKG_VERSION")).context("stdout"),
    }
}

async fn token_create(options: TokenCreate) -> anyhow::Result<()> {
    let ttl = options.life();
    let (client, _) = options.reach.client().await?;
    let about = info::read(&client).await.context("asking the API about its bridge (has it ever run?)")?;
    let now = apimachinery::clock::timestamp();
    let token = token::create(&client, &about.authority, &options.node, ttl, now).await?;
    let bridges = if options.bridge.is_empty() { vec![about.url] } else { options.bridge };
    let (text, ttl) = (token.text(), words(ttl));
    let invitation = Invitation { bridges: &bridges, node: &options.node, token: &text };
    // In one piece, so that a reader who takes only the first line and leaves breaks nothing.
    let (text, command) = (invitation.text(), invitation.command());
    let mut printed = format!("{text}\n\nOn the node, within {ttl}:\n\n  {command}\n");
    if let Some(path) = options.file {
        invitation.write(&path).with_context(|| path.display().to_string())?;
        printed = format!("{}: for the boot partition, as edge-runtime.join, within {ttl}\n", path.display());
    } else if options.qr {
        printed = format!("{printed}\n{}\n", invitation.code()?);
    }
    std::io::stdout().write_all(printed.as_bytes()).context("stdout")
}

/// The page of `cloud-bridge`, or of the verb that these words name.
fn manual(verb: &[String]) -> anyhow::Result<()> {
    let mut command = Arguments::command();
    command.build();
    for word in verb {
        command = command.find_subcommand(word).with_context(|| format!("no verb {word:?}"))?.clone();
    }
    // `cloud-bridge-token-create`, as `build` has named it.
    let name = command.get_display_name().unwrap_or("cloud-bridge").to_owned();
    let mut page = Vec::new();
    let page_of = clap_mangen::Man::new(command).title(name).section("8").manual("").source("");
    page_of.render(&mut page)?;
    std::io::stdout().write_all(&page).context("stdout")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_token_in_a_file_lives_longer() {
        let life = |more: &[&str]| {
            let words = ["cloud-bridge", "token", "create", "n"].iter().chain(more);
            match Arguments::try_parse_from(words).unwrap().verb {
                Verb::Token(TokenVerb::Create(create)) => create.life().as_secs() / 3600,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((life(&[]), life(&["--file", "f"]), life(&["--file", "f", "--ttl", "2h"])), (1, 168, 2));
    }
}
