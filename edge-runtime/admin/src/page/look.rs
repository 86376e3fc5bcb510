//! One observation of the node: the answers of its daemon, and its stored state, which is readable without the daemon.
//! Decides nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use edge_runtime::cli::CliError;
use edge_runtime::clock::Clock;
use edge_runtime::link::identity::Identity;
use edge_runtime::link::status::{self, LinkStatus};
use edge_runtime::paths::Paths;
use edge_runtime::store::Fact;
use k8s_openapi::api::core::v1::{NodeCondition, PodStatus};
use sampan_launcher::versions::{State, Versions};
use sampan_pod::record::{ContainerState, PodRecord};
use sampan_pod::status::{self as pod_status, HostFacts};
use sampan_sys::host::{self, DiskSpace};
use serde_json::Value;

use crate::doctor::{ask_daemon, daemon_pid, worn};
use crate::events::{self, Wanted};
use crate::progress::pulls;
use crate::progress::show::Seen;
use crate::top::look::{Look, Looker};

/// Facts at one moment.
#[derive(Default)]
pub(super) struct Facts {
    /// Seconds since 1970.
    pub(super) now: u32,
    /// `None` if it has not joined a cluster.
    pub(super) name: Option<String>,
    pub(super) bridges: Vec<String>,
    pub(super) daemon: Daemon,
    pub(super) link: LinkStatus,
    /// Stored state; without it the reason why it cannot be read.
    pub(super) kept: Option<Kept>,
    pub(super) trouble: String,
    pub(super) versions: State,
    /// Events sorted by time.
    pub(super) events: Vec<Value>,
    /// Pulls in progress, while a container waits for one.
    pub(super) pulls: Vec<(String, Seen)>,
    pub(super) disk: Option<DiskSpace>,
    /// Tenths of the medium's life that are used.
    pub(super) worn: Option<u64>,
    /// Counters of the helper for devices; null without a helper.
    pub(super) devices: Value,
    pub(super) kernel: String,
    pub(super) system: String,
    pub(super) architecture: &'static str,
}

#[derive(Default)]
pub(super) struct Daemon {
    pub(super) pid: Option<i32>,
    /// `None` without an answer. `words` is its text, or the error.
    pub(super) ready: Option<bool>,
    pub(super) words: String,
    /// Its metrics; empty where it tells none.
    pub(super) metrics: String,
}

#[derive(Default)]
pub(super) struct Kept {
    /// Conditions of the Node as last reported.
    pub(super) conditions: Vec<NodeCondition>,
    pub(super) pods: Vec<(PodRecord, PodStatus)>,
    pub(super) cluster: Option<String>,
    /// Reports that no bridge has taken, and their bytes.
    pub(super) queued: (i64, i64),
    pub(super) used: Option<Look>,
}

impl Kept {
    fn is_pulling(&self) -> bool {
        let mut containers = self.pods.iter().flat_map(|(pod, _)| pod.containers.values());
        containers.any(|one| matches!(one.state, ContainerState::Pulling { .. }))
    }
}

/// Reads the node. The store stays open: without a daemon, opening and closing it repeatedly would write to the disk
/// each time.
pub(super) struct Lookout {
    paths: Paths,
    /// The store, with device and inode of its file: a damaged store is replaced by another file.
    store: Option<(Looker, (u64, u64))>,
}

impl Lookout {
    pub(super) fn new(paths: &Paths) -> Self {
        Self { paths: paths.clone(), store: None }
    }

    /// Takes as long as the daemon takes to answer, ten seconds at most.
    pub(super) fn look(&mut self) -> Facts {
        let (kept, trouble) = match self.keeps() {
            Ok(kept) => (Some(kept), String::new()),
            Err(why) => {
                self.store = None;
                let why = match why {
                    CliError::Usage(why) | CliError::Failed(why) => why,
                    CliError::Exit(code) => format!("ended with {code}"),
                };
                (None, why)
            }
        };
        let waiting = self.store.as_ref().map(|(looker, _)| events::waiting(looker.store())).unwrap_or_default();
        let events = events::all(&self.paths, waiting, &Wanted::default());
        let pulls = if kept.iter().any(Kept::is_pulling) { pulls::all(&self.paths) } else { Vec::new() };
        Facts { kept, trouble, events, pulls, ..around(&self.paths) }
    }

    fn keeps(&mut self) -> Result<Kept, CliError> {
        let about = std::fs::metadata(self.paths.store()).ok();
        let is = about.map(|about| (about.dev(), about.ino()));
        let mut open = self.store.take().filter(|(_, was)| Some(*was) == is);
        let (looker, _) = match &mut open {
            Some(open) => open,
            None => open.insert((Looker::open(&self.paths)?, is.unwrap_or_default())),
        };
        let kept = kept(looker);
        self.store = open;
        kept
    }
}

/// All but what the store has.
fn around(paths: &Paths) -> Facts {
    let identity = Identity::load(paths).ok().flatten();
    let host = host::facts();
    let runs = paths.devices().exists();
    let counted = std::fs::read(paths.device_counters()).ok().filter(|_| runs);
    Facts {
        now: u32::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default(),
        bridges: identity.iter().flat_map(|one| &one.bridges).map(ToString::to_string).collect(),
        name: identity.map(|one| one.node),
        daemon: daemon(paths),
        link: LinkStatus::read(&status::file(paths)).unwrap_or_default(),
        versions: Versions::of_this_program(paths.root()).read(),
        disk: host::disk_space(&paths.state()),
        worn: worn(Path::new("/sys")),
        devices: counted.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default(),
        kernel: host.kernel_version,
        system: host.os_image,
        architecture: host.architecture,
        ..Facts::default()
    }
}

fn daemon(paths: &Paths) -> Daemon {
    let Some(pid) = daemon_pid(paths) else { return Daemon::default() };
    match ask_daemon(&paths.health(), "/readyz") {
        Ok((ready, words)) => {
            let metrics = ask_daemon(&paths.health(), "/metrics").map(|(_, text)| text).unwrap_or_default();
            Daemon { pid: Some(pid), ready: Some(ready), words, metrics }
        }
        // One that does not answer is not waited for twice.
        Err(error) => Daemon { pid: Some(pid), words: error.to_string(), ..Daemon::default() },
    }
}

fn kept(looker: &Looker) -> Result<Kept, CliError> {
    let recorded = looker.recorded()?;
    let used = looker.look_at(&recorded);
    let store = looker.store();
    let now = Clock::new()?.now();
    let pods = recorded.into_iter().map(|one| pod_status::publish(&one.pod, one.record, &HostFacts::default(), &now));
    Ok(Kept {
        pods: pods.collect(),
        conditions: store.fact(Fact::Conditions)?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
        cluster: store.fact(Fact::Cluster)?,
        queued: store.outbox_size()?,
        used: Some(used),
    })
}
