//! The local API, by which pods reach the API through the link: its helper `edge-api`, and what that is told of pods,
//! tokens and the link. It answers pods itself.
//!
//! | file | owns |
//! |---|---|
//! | `address` | its addresses |
//! | `heard` | what its messages change in the node |
//! | `pods` | which pods may use it |
//! | `relay` | streams of requests between helper and link |
//! | `requests` | the connection to the helper for them |

mod address;
mod heard;
mod pods;
mod relay;
mod requests;

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use async_executor::Task;
use edge_protocol::stream::{EDGE_STREAMS, StreamEvent};
use sampan_api_control::{Pod, Settings, ToHelper, VERSION};
use serde_json::Value;

use self::requests::Requests;
use super::context::Context;
use super::sources::News;
use super::tokens::Tokens;
use crate::helper::client::{Helper, Teller};
use crate::helper::programs::API as PROGRAM;
use crate::launch::Launch;
use crate::pod::local_api::PORT;
use crate::sys::files::remove_tree;
use crate::sys::vec_map::VecMap;

#[derive(Default)]
pub(super) struct LocalApi {
    running: Option<Running>,
    /// Connection that must be sent everything; `None` without a helper.
    connection: Option<u64>,
    /// Hashes of tokens of the pods that may use it, by uid: what the helper knows, or is about to be sent.
    known: VecMap<String, Vec<String>>,
    untold: Untold,
    link: Link,
}

struct Running {
    teller: Teller,
    requests: Rc<Requests>,
    /// Moves requests while a helper is connected.
    moving: Option<Task<()>>,
    /// Makes addresses that the kernel has refused.
    _addresses: Option<Task<()>>,
    _task: Task<()>,
}

/// Whether requests can leave, and since when, in milliseconds since 1970.
#[derive(Clone, Copy, Default)]
struct Link {
    is_up: bool,
    since_ms: u64,
}

/// What the helper is still to be told, in the order of the fields.
#[derive(Default)]
struct Untold {
    link: bool,
    /// By uid; none for a pod that is gone.
    pods: VecMap<String, Option<Pod>>,
    all_told: bool,
}

impl LocalApi {
    /// Starts the configured helper; ends a helper of an earlier daemon that is not configured any more. A node that has
    /// not joined has no pod with a token, and needs none.
    pub(super) fn start(&mut self, cx: &mut Context, launch: &Launch) {
        let config = cx.config.local_api;
        let Some(link) = cx.link.clone().filter(|_| config.is_on()) else {
            PROGRAM.end(&cx.paths);
            if !config.is_on() {
                forget(&cx.paths.api());
            }
            return;
        };
        let listen = address::all(cx, launch);
        if listen.is_empty() {
            log::warn!("the local API has no address: pods of this node have no network yet");
            return PROGRAM.end(&cx.paths);
        }
        let addresses = address::make(cx);
        self.set_link(cx, false);
        // That of an earlier start, so that pods start before the helper is up.
        let chain = std::fs::read_to_string(cx.paths.api_certificate()).unwrap_or_default();
        cx.api_certificate = authority(&chain).map(|authority| Value::String(authority.to_owned()));
        let settings = Settings {
            listen: listen.into_iter().map(|ip| SocketAddr::new(ip, PORT)).collect(),
            domain: cx.config.network.cluster_domain.clone(),
            folder: cx.paths.api(),
            cache_bytes: *config.cache_bytes,
            secrets_in_memory: cx.config.security.secrets_in_memory,
        };
        let greeting = ToHelper::Daemon { version: VERSION, node: cx.config.node_name.clone(), settings };
        let helper = Helper::new(&PROGRAM, &cx.paths, &greeting);
        let (teller, work) = helper.keep(cx.senders.news.clone(), |event| Ok(News::LocalApi(event.read()?)));
        let requests = Rc::new(Requests::new(link));
        let task = cx.tasks.spawn(work);
        self.running = Some(Running { teller, requests, moving: None, _addresses: addresses, _task: task });
    }

    /// Looks whether a pod may use the local API now, and with which tokens.
    pub(super) fn look_at_pod(&mut self, cx: &Context, tokens: &Tokens, uid: &str) {
        if self.running.is_none() {
            return;
        }
        let config = &cx.config.local_api;
        let pod = cx.pods.get(uid).and_then(|entry| pods::line(config, entry, tokens.of_the_api(uid)));
        let known = self.known.get(uid);
        if known == pod.as_ref().map(|pod| &pod.tokens) {
            return;
        }
        match &pod {
            Some(pod) => drop(self.known.insert(uid.to_owned(), pod.tokens.clone())),
            None => drop(self.known.remove(uid)),
        }
        if self.connection.is_some() {
            self.untold.pods.insert(uid.to_owned(), pod);
        }
    }

    /// A bridge has connected.
    pub(super) fn connected(&mut self, cx: &Context) {
        if self.running.is_some() && !cx.link.as_ref().is_some_and(|link| link.passes_api()) {
            log::warn!("the bridge is older than requests of pods to the API: they are answered with 503");
        }
        // A bridge that is too old, too: each request is refused with that reason, which "no link" would hide.
        self.set_link(cx, true);
    }

    pub(super) fn disconnected(&mut self, cx: &Context) {
        self.set_link(cx, false);
    }

    fn set_link(&mut self, cx: &Context, is_up: bool) {
        self.link = Link { is_up, since_ms: u64::try_from(cx.wall().as_millisecond()).unwrap_or_default() };
        self.untold.link = self.connection.is_some();
    }

    /// Whether this stream is one of a pod's request; then it is dealt with.
    pub(super) fn take(&self, event: StreamEvent) -> Option<StreamEvent> {
        let stream = match &event {
            StreamEvent::Opened { stream, .. }
            | StreamEvent::Data { stream, .. }
            | StreamEvent::Room { stream }
            | StreamEvent::Closed { stream, .. } => *stream,
        };
        if stream < EDGE_STREAMS {
            return Some(event);
        }
        if let Some(running) = &self.running {
            running.requests.take(event);
        }
        None
    }

    /// Tells the helper as much as it takes now.
    pub(super) fn step(&mut self) {
        let (Some(running), Some(connection)) = (&self.running, self.connection) else { return };
        while running.teller.has_room() {
            let Some(line) = self.untold.next(self.link) else { return };
            let told = running.teller.tell(connection, &line);
            debug_assert!(told, "there was room");
        }
    }

    fn up(&mut self, cx: &Context, tokens: &Tokens, connection: u64) {
        let Some(running) = &mut self.running else { return };
        let moves = Rc::clone(&running.requests).keep(cx.paths.api_socket());
        running.moving = Some(cx.tasks.spawn(moves));
        self.connection = Some(connection);
        self.known = VecMap::new();
        self.untold = Untold { link: true, pods: VecMap::new(), all_told: true };
        for uid in cx.pods.uids(|_| true) {
            self.look_at_pod(cx, tokens, &uid);
        }
    }

    fn down(&mut self) {
        self.connection = None;
        self.untold = Untold::default();
        if let Some(running) = &mut self.running {
            running.moving = None;
            running.requests.cut();
        }
    }
}

impl Untold {
    fn next(&mut self, link: Link) -> Option<ToHelper> {
        if std::mem::take(&mut self.link) {
            return Some(ToHelper::Link { up: link.is_up, since_ms: link.since_ms });
        }
        if let Some((uid, pod)) = self.pods.pop_first() {
            return Some(pod.map_or(ToHelper::PodGone { uid }, ToHelper::Pod));
        }
        std::mem::take(&mut self.all_told).then_some(ToHelper::Told {})
    }
}

/// Deletes the answers that an earlier helper has kept, which may hold Secrets. Its certificate stays: pods trust it.
fn forget(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Err(error) = remove_tree(&entry.path())
        {
            log::warn!("{}: cannot delete kept answers of the API: {error}", entry.path().display());
        }
    }
}

/// What pods trust: the last certificate of the helper's, that of its authority, as it says itself when it is ready.
fn authority(chain: &str) -> Option<&str> {
    chain.get(chain.rfind("-----BEGIN CERTIFICATE-----")?..)
}

#[cfg(test)]
mod tests;
