//! The verbs and their flags. Owns what is printed; the work is done by `standalone`, `serve` and `pki`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::pki::{self, token};
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
    Serve(Serve),
    /// Join tokens.
    #[command(subcommand)]
    Token(TokenVerb),
    /// How the nodes of a running bridge are: last seen, epoch, acknowledged changes, queues, round trip.
    Nodes(nodes::Options),
    /// What makes a shell complete this command, as in: source <(cloud-bridge completion bash)
    Completion { shell: Shell },
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

/// How nodes are let in.
#[derive(Debug, Clone, Args)]
pub struct Nodes {
    /// How long the certificate of a node is good: 90s, 30m, 2h, 365d. Nodes renew theirs after seven to nine tenths
    /// of it; one that is offline for longer needs a fresh token.
    #[arg(long, default_value = "365d", value_parser = life)]
    pub certificate_life: Duration,
    /// Let nodes whose Node object was deleted register again, instead of sending them away: for clusters in which a
    /// controller deletes the Nodes of machines that it cannot find.
    #[arg(long)]
    pub deleted_nodes_return: bool,
}

/// `serve`.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// How to reach the API; absent: as a pod of the cluster does.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Where nodes connect.
    #[arg(long, default_value = "0.0.0.0:7443")]
    pub listen: SocketAddr,
    /// A name or address under which others reach this machine (repeatable). The first goes into join commands.
    #[arg(long)]
    pub advertise: Vec<String>,
    /// Address at which the API server reaches the kubelet API of the nodes, one port for each. It becomes their
    /// InternalIP. Absent: no kubelet API, so no `kubectl logs`.
    #[arg(long)]
    pub kubelet_address: Option<IpAddr>,
    /// Ports for the kubelet API of the nodes.
    #[arg(long, default_value = "10360-11360", value_parser = port_range)]
    pub kubelet_ports: (u16, u16),
    /// Authority of the client certificate that the API server shows to kubelets (its
    /// --kubelet-client-certificate). Absent: bearer tokens only.
    #[arg(long)]
    pub kubelet_client_ca: Option<PathBuf>,
    #[command(flatten)]
    pub nodes: Nodes,
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
    /// How long the token is good for: 90s, 30m, 2h; at most 24h.
    #[arg(long, default_value = "1h", value_parser = duration)]
    ttl: Duration,
    /// State folder of a standalone bridge.
    #[arg(long, conflicts_with = "kubeconfig")]
    state: Option<PathBuf>,
    /// How to reach the API; absent (with --state, too): as a pod of the cluster does.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// URL of the bridge for the printed command; absent: as the bridge advertises itself.
    #[arg(long)]
    bridge: Option<String>,
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
        Verb::Version => writeln!(std::io::stdout(), "cloud-bridge {}", env!("CARGO_PKG_VERSION")).context("stdout"),
    }
}

async fn token_create(options: TokenCreate) -> anyhow::Result<()> {
    let kubeconfig = options.state.map(|state| state.join("kubeconfig")).or(options.kubeconfig);
    let client = client(kubeconfig).await?;
    let about = info::read(&client).await.context("asking the API about its bridge (has it ever run?)")?;
    let token = token::create(&client, &about.authority, &options.node, options.ttl, Timestamp::now()).await?;
    let bridge = options.bridge.unwrap_or(about.url);
    let (text, ttl) = (token.text(), words(options.ttl));
    let command = format!("edge-runtime join --bridge {bridge} --node {} --token {text}", options.node);
    // In one piece, so that a reader who takes only the first line and leaves breaks nothing.
    let printed = format!("{text}\n\nOn the node, within {ttl}:\n\n  {command}\n");
    std::io::stdout().write_all(printed.as_bytes()).context("stdout")
}

/// A client of the API named by a kubeconfig, or of the cluster that this runs in.
pub async fn client(kubeconfig: Option<PathBuf>) -> anyhow::Result<kube::Client> {
    let config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(&path).with_context(|| format!("kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::incluster().context("no --kubeconfig, and not in a pod of a cluster")?,
    };
    Ok(kube::Client::try_from(config)?)
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => bail!("want a number and one of s, m, h, d"),
    };
    let number: u64 = number.parse().context("want a number and one of s, m, h, d")?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

/// Of a node's certificate.
fn life(text: &str) -> anyhow::Result<Duration> {
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);
    let life = duration(text)?;
    if life < Duration::from_secs(5) || life > LONGEST { bail!("want between 5s and 3650d") } else { Ok(life) }
}

fn words(duration: Duration) -> String {
    match duration.as_secs() {
        s if s % 3600 == 0 => format!("{} h", s / 3600),
        s if s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

fn port_range(text: &str) -> anyhow::Result<(u16, u16)> {
    let (first, last) = text.split_once('-').context("want FIRST-LAST")?;
    let range = (first.parse::<u16>()?, last.parse::<u16>()?);
    if range.0 == 0 || range.0 > range.1 { bail!("want FIRST-LAST, first not above last") } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations_and_ports() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("2h").unwrap(), Duration::from_secs(7200));
        assert_eq!(duration("1d").unwrap(), Duration::from_secs(86_400));
        assert!(duration("h").is_err() && duration("1w").is_err());
        assert!(life("365d").is_ok() && life("4s").is_err() && life("3651d").is_err());
        assert_eq!(words(Duration::from_secs(5400)), "90 min");
        assert_eq!(port_range("1-2").unwrap(), (1, 2));
        assert!(port_range("2-1").is_err() && port_range("x").is_err());
    }
}
