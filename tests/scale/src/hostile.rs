//! `hostile`: one node with a valid certificate that sends every message in every malformed shape, beside nine honest
//! nodes. The round trips of these and the bridge's memory must stay within limits. Prints its seed and its actions;
//! fails if a limit was exceeded. The bridge must run with `--deleted-nodes-return`: these nodes have never joined.
//!
//! | module | owns |
//! |---|---|
//! | `cases` | pure: messages, positions in them, the wrong values |
//! | `peer` | the hostile node |
//! | `floods` | pure: valid messages, too many or too large |
//! | `flood` | the hostile node as it sends these |
//! | `honest` | pods on the honest ones, and how long each took |

#[path = "hostile/cases.rs"]
mod cases;
// Shared with `swarm`, which uses more of them.
#[allow(dead_code)]
mod fleet;
#[path = "hostile/flood.rs"]
mod flood;
#[path = "hostile/floods.rs"]
mod floods;
#[path = "hostile/honest.rs"]
mod honest;
mod identity;
#[allow(dead_code)]
mod node;
#[allow(dead_code)]
mod orders;
#[path = "hostile/peer.rs"]
mod peer;
#[allow(dead_code)]
mod process;
mod sensors;
mod wire;

use std::cell::Cell;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use clap::Parser;
use edge_protocol::message::{ObjectKey, ObjectRef};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};

use cases::Random;
use fleet::Fleet;
use identity::Authority;
use peer::{Done, Peer};

const HONEST: usize = 9;
/// Time in which the bridge notices that connections have ended.
const FAREWELL: Duration = Duration::from_millis(300);

/// What to attack, and for how long.
#[derive(Debug, Clone, Parser)]
#[command(name = "hostile", about = "One hostile node beside nine honest ones")]
struct Arguments {
    /// Address of the bridge's link.
    #[arg(long)]
    link: SocketAddr,
    /// PEM of the bridge's authority.
    #[arg(long)]
    ca: PathBuf,
    /// PEM of its key.
    #[arg(long)]
    ca_key: PathBuf,
    /// Kubeconfig for the API, to create pods.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Process id of the bridge.
    #[arg(long)]
    pid: u32,
    /// Seconds of attack.
    #[arg(long, default_value_t = 45)]
    seconds: u64,
    /// Seed of everything random; from the clock if absent.
    #[arg(long)]
    seed: Option<u64>,
    /// Limit of the honest nodes' 99th percentile, in milliseconds: from the creation of a pod until the bridge has its
    /// status.
    #[arg(long, default_value_t = 1000)]
    p99: u64,
    /// Limit of the bridge's resident memory, in MiB. The deployment's limit is 256.
    #[arg(long, default_value_t = 192)]
    memory: u64,
    /// Send only valid messages of this kind, too many or too large, instead of malformed ones.
    #[arg(long)]
    flood: Option<floods::Flood>,
}

fn main() -> anyhow::Result<()> {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, run(Arguments::parse()))
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or_else(clock);
    say(&format!("hostile: seed {seed}, {} s", arguments.seconds));
    let file = Kubeconfig::read_from(&arguments.kubeconfig).context("the kubeconfig")?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let authority = Authority::read(&arguments.ca, &arguments.ca_key)?;

    let fleet = Rc::new(Fleet::new(vec![arguments.link], HONEST, HONEST, None));
    let honest: Vec<String> = (0..HONEST).map(|index| format!("honest-{seed}-{index}")).collect();
    let mut running = Vec::new();
    for (index, name) in honest.iter().enumerate() {
        let node = node::run(index, name.clone(), authority.node(name)?, Rc::clone(&fleet));
        running.push(tokio::task::spawn_local(node));
    }
    let evil = format!("hostile-{seed}");
    let nodes: Vec<String> = honest.iter().cloned().chain([evil.clone()]).collect();
    let outcome = attack(&arguments, seed, &client, &authority, &fleet, &honest, &evil).await;
    // The bridge registers a connected node again when its Node is deleted.
    running.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(FAREWELL).await;
    honest::clear(&client, &nodes).await;
    outcome
}

async fn attack(
    arguments: &Arguments,
    seed: u64,
    client: &Client,
    authority: &Authority,
    fleet: &Rc<Fleet>,
    honest: &[String],
    evil: &str,
) -> anyhow::Result<()> {
    let patience = Duration::from_secs(60);
    let started = Instant::now();
    while fleet.count_registered() < HONEST || fleet.count_synced() < HONEST {
        ensure!(started.elapsed() < patience, "the honest nodes do not come in: {:?}", fleet.take_failures());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let quiet = honest::rounds(
        client,
        fleet,
        honest,
        &format!("quiet-{seed}"),
        Instant::now() + Duration::from_secs(if arguments.flood.is_some() { 1 } else { 5 }),
        patience,
    )
    .await?;
    let before = process::look(arguments.pid)?;
    let lost = fleet.count_lost();

    let pod = honest::create(client, &format!("bait-{seed}"), evil).await?;
    let key = ObjectKey { kind: "Pod".into(), namespace: "default".into(), name: pod.name_any() };
    let mut peer = Peer {
        name: evil.to_owned(),
        bridge: arguments.link,
        tls: authority.node(evil)?,
        node: node::object(evil),
        pod: ObjectRef { key, uid: pod.uid().unwrap_or_default() },
        random: Random::new(seed),
        done: Done::default(),
        counters: Rc::default(),
    };
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let asking = tokio::task::spawn_local(honest::ask_for_stats(client.clone(), evil.to_owned()));
    let peak = Rc::new(Cell::new(before.rss));
    let watching = tokio::task::spawn_local(watch(arguments.pid, Rc::clone(&peak)));
    let reading = tokio::task::spawn_local(flood::read_log(client.clone(), pod.name_any()));
    let named = format!("under-{seed}");
    let attack = async {
        match arguments.flood {
            None => peer.run(end).await,
            Some(flood) => peer.flood(flood, end).await,
        }
    };
    let ((), attacked) = tokio::join!(attack, honest::rounds(client, fleet, honest, &named, end, patience));
    asking.abort();
    reading.abort();
    watching.abort();
    let attacked = attacked?;
    let after = process::look(arguments.pid).context("the bridge has ended")?;

    let (p99_before, p99) = (percentile(&quiet), percentile(&attacked));
    say(&format!("hostile: {:?}", peer.done));
    say(&format!(
        "hostile: seed {seed}: honest nodes: {} pods, p50 {:?}, p99 {p99:?} (without it {p99_before:?}), {} connections lost",
        attacked.len(),
        attacked.get(attacked.len() / 2).copied().unwrap_or_default(),
        fleet.count_lost() - lost,
    ));
    say(&format!("hostile: bridge: rss {} KiB before, {} at most, {} after", before.rss, peak.get(), after.rss));
    ensure!(arguments.flood.is_some() || peer.done.cases > 100, "the hostile node has said little: {:?}", peer.done);
    ensure!(fleet.count_lost() == lost, "honest nodes lost their connections: {:?}", fleet.take_failures());
    ensure!(fleet.count_refused() == 0, "reports of honest nodes were refused: {:?}", fleet.take_failures());
    ensure!(p99 < Duration::from_millis(arguments.p99), "p99 {p99:?} is over {} ms", arguments.p99);
    let most = peak.get().max(after.rss) / 1024;
    ensure!(most < arguments.memory, "the bridge took {most} MiB, over {}", arguments.memory);
    Ok(())
}

async fn watch(pid: u32, peak: Rc<Cell<u64>>) {
    while let Ok(look) = process::look(pid) {
        peak.set(peak.get().max(look.rss));
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

fn percentile(sorted: &[Duration]) -> Duration {
    sorted.get((sorted.len() * 99 / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn say(line: &str) {
    // The reader of the output may be gone.
    let _ = writeln!(std::io::stdout(), "{line}");
}
