//! The watch of VolumeAttachments. It runs as long as a claim holds it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apimachinery::pace::in_slices;
use apimachinery::panics;
use apimachinery::well_known::PAGE;
use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::known::{Hash, Known};
use super::slim::SlimAttachment;
use crate::bridge::discovery::{Over, Refusals};
use crate::bridge::followed::present::Rounds;
use crate::bridge::world::Round;

/// Interval of attempts while the API has no attachments, or refuses them.
const LOOK: Duration = Duration::from_secs(60);

pub(in crate::bridge) struct AttachmentWatch {
    /// The newest round of readings that a claim needs.
    wanted: watch::Sender<Round>,
    /// The round of the newest complete reading.
    read: watch::Receiver<Option<Round>>,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    known: Known,
    /// Claims that wait for changes, by PersistentVolume.
    volumes: HashMap<Box<str>, watch::Sender<()>>,
}

impl Drop for AttachmentWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Rounds for AttachmentWatch {
    fn wanted(&self) -> &watch::Sender<Round> {
        &self.wanted
    }
}

impl AttachmentWatch {
    pub(super) fn begin(client: Client, round: Round) -> Self {
        let (wanted, rounds) = watch::channel(round);
        let (tell, read) = watch::channel(None);
        let state: Arc<Mutex<State>> = Arc::default();
        let known = Arc::clone(&state);
        let task = tokio::spawn(async move {
            panics::keep("the watch of VolumeAttachments", move || {
                follow(client.clone(), Arc::clone(&known), tell.clone(), rounds.clone())
            })
            .await;
        });
        Self { wanted, read, state, task }
    }

    /// Waits until all were read in this round or later, or cannot be read.
    pub(in crate::bridge) async fn read(&self, round: Round) {
        // The sender lives as long as the task, which this watch ends.
        let _ = self.read.clone().wait_for(|read| read.is_some_and(|read| read >= round)).await;
    }

    /// Changes of the attachments of a PersistentVolume from now on.
    pub(in crate::bridge) fn changes(self: &Arc<Self>, volume: &str) -> Changes {
        let receiver =
            lock(&self.state).volumes.entry(volume.into()).or_insert_with(|| watch::Sender::new(())).subscribe();
        Changes { watch: Arc::clone(self), volume: volume.into(), receiver }
    }

    /// The status of an attachment, as [`Known::status`] returns it.
    pub(super) fn status(&self, hash: &Hash, listed: bool) -> Option<String> {
        lock(&self.state).known.status(hash, listed).map(str::to_owned)
    }

    /// Tells the claims of these attachments of a change of their Nodes.
    pub(super) fn tell(&self, changed: &[Hash]) {
        let state = lock(&self.state);
        changed.iter().filter_map(|hash| state.known.volume(hash)).for_each(|volume| state.tell(volume));
    }
}

/// Waits for changes of the attachments of one volume. The watch runs as long.
pub(in crate::bridge) struct Changes {
    watch: Arc<AttachmentWatch>,
    volume: Box<str>,
    receiver: watch::Receiver<()>,
}

impl Changes {
    pub(in crate::bridge) async fn next(&mut self) {
        if self.receiver.changed().await.is_err() {
            // The sender is there as long as this receiver.
            std::future::pending().await
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut state = lock(&self.watch.state);
        self.receiver = watch::channel(()).1;
        if state.volumes.get(&self.volume).is_some_and(|sender| sender.receiver_count() == 0) {
            state.volumes.remove(&self.volume);
        }
    }
}

impl State {
    fn tell(&self, volume: &str) {
        if let Some(sender) = self.volumes.get(volume) {
            sender.send_replace(());
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Follows until aborted.
async fn follow(
    client: Client,
    state: Arc<Mutex<State>>,
    tell: watch::Sender<Option<Round>>,
    mut rounds: watch::Receiver<Round>,
) {
    loop {
        let round = *rounds.borrow_and_update();
        match read(&client, &state, &tell, &mut rounds, round).await {
            Over::Stale => continue,
            // Nothing is attached.
            Over::Gone => {}
            Over::Refused => log::error!(
                "volumes that need an attachment are not mounted on nodes: the bridge may not watch VolumeAttachments \
                 (see deploy/bridge/rbac.yaml)"
            ),
        }
        // Other volumes must not wait for that.
        tell.send_replace(Some(round));
        let _ = timeout(LOOK, rounds.changed()).await;
    }
}

/// Follows until all have to be read again.
async fn read(
    client: &Client,
    state: &Mutex<State>,
    tell: &watch::Sender<Option<Round>>,
    rounds: &mut watch::Receiver<Round>,
    round: Round,
) -> Over {
    let api: Api<SlimAttachment> = Api::all(client.clone());
    let config = watcher::Config::default().page_size(PAGE);
    let mut events = pin!(in_slices(watcher(api, config).default_backoff()));
    let (mut list, mut listed, mut refusals) = (Known::default(), false, Refusals::default());
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            changed = rounds.changed(), if listed => match changed {
                Ok(()) => return Over::Stale,
                // This task is about to be stopped.
                Err(_) => std::future::pending().await,
            },
        };
        match event {
            None => return Over::Stale,
            Some(Ok(Event::Init)) => list = Known::default(),
            Some(Ok(Event::InitApply(attachment))) => drop(list.take(&attachment)),
            Some(Ok(Event::InitDone)) => {
                let mut state = lock(state);
                let changed = state.known.replace(std::mem::take(&mut list));
                changed.iter().for_each(|volume| state.tell(volume));
                listed = true;
                tell.send_replace(Some(round));
            }
            Some(Ok(Event::Apply(attachment))) => {
                let mut state = lock(state);
                let changed = state.known.take(&attachment);
                changed.iter().for_each(|volume| state.tell(volume));
            }
            Some(Ok(Event::Delete(attachment))) => {
                let mut state = lock(state);
                let changed = state.known.remove(&attachment);
                changed.iter().for_each(|volume| state.tell(volume));
            }
            Some(Err(error)) => {
                log::warn!("watching VolumeAttachments: {error}");
                if let Some(over) = refusals.take(&error, listed) {
                    return over;
                }
            }
        }
    }
}
