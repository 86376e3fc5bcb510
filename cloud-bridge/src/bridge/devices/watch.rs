//! One watch of all Devices and one of their models, however many nodes want to know, while one of them does. Read in the
//! bridge's own name: no node may read Devices.
//!
//! A cluster that knows no Devices costs a question a minute. What nodes are told then is that they have none.

use std::collections::{BTreeMap, HashMap};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use apimachinery::panics;
use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::index::Index;
use super::served::{Served, look_up};
use super::view::{Device, Name, model, name_of};
use crate::bridge::pod_references::{DEVICE, DEVICE_MODEL, DEVICES_API};
use crate::bridge::requests::Requests;
use crate::bridge::world::Group;

/// Between two times that nodes are told of changes: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks whether the API has come to know Devices.
const LOOK: Duration = Duration::from_secs(60);
/// The same while it knows Devices and no statuses of them.
const LOOK_SOON: Duration = Duration::from_secs(5);
/// Pause after a look that failed, doubled up to the second figure.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

type Events = Pin<Box<dyn Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send>>;

/// What is known of the Devices of one node.
#[derive(Clone, Default)]
pub(in crate::bridge) enum View {
    #[default]
    Nothing,
    /// The API does not tell.
    Failed,
    /// Read in this round of readings or later.
    Of { round: u64, group: Arc<Group> },
}

/// Watches that go on as long as somebody holds them.
pub(in crate::bridge) struct DeviceWatch {
    /// The newest round of readings that somebody wants; what is told may be no older.
    wanted: watch::Sender<u64>,
    known: Arc<Mutex<Known>>,
    look_again: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Those under way, if any are.
#[derive(Default)]
pub(in crate::bridge) struct DeviceWatches(Mutex<Weak<DeviceWatch>>);

impl DeviceWatches {
    /// The present watch, or a new one; what it says to who asks now is of this round or later.
    pub(in crate::bridge) fn get(&self, client: &Client, round: u64) -> Arc<DeviceWatch> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = present.upgrade() {
            found.wanted.send_if_modified(|wanted| std::mem::replace(wanted, round.max(*wanted)) < round);
            return found;
        }
        let made = Arc::new(DeviceWatch::begin(client.clone(), round));
        *present = Arc::downgrade(&made);
        made
    }

    /// The present one.
    pub(in crate::bridge) fn present(&self) -> Option<Arc<DeviceWatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl DeviceWatch {
    fn begin(client: Client, round: u64) -> Self {
        let (wanted, rounds) = watch::channel(round);
        let known: Arc<Mutex<Known>> = Arc::default();
        let look_again = Arc::new(Notify::new());
        let (tell, again) = (Arc::clone(&known), Arc::clone(&look_again));
        let task = tokio::spawn(async move {
            panics::keep("the watch of Devices", move || {
                follow(client.clone(), Arc::clone(&tell), Arc::clone(&again), rounds.clone())
            })
            .await;
        });
        Self { wanted, known, look_again, task }
    }

    /// What a node should hold, from now on.
    pub(in crate::bridge) fn of_node(&self, node: &str) -> watch::Receiver<View> {
        lock(&self.known).subscribe(node)
    }

    /// A Device; the second is false before all of them have been read.
    pub(super) fn device(&self, name: &Name) -> (Option<Device>, bool) {
        let known = lock(&self.known);
        (known.index.device(name).cloned(), known.round.is_some())
    }

    pub(super) fn served(&self) -> Served {
        lock(&self.known).served
    }

    /// The API has been seen to serve something else than [`served`](Self::served).
    pub(super) fn look_again(&self) {
        self.look_again.notify_one();
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Known {
    index: Index,
    served: Served,
    /// Of the newest complete reading.
    round: Option<u64>,
    nodes: HashMap<Box<str>, watch::Sender<View>>,
}

impl Known {
    fn subscribe(&mut self, node: &str) -> watch::Receiver<View> {
        self.nodes.retain(|_, sender| sender.receiver_count() > 0);
        let view = |known: &Self| match known.round {
            Some(round) => View::Of { round, group: Arc::new(known.index.group(node)) },
            None => View::Nothing,
        };
        match self.nodes.get(node) {
            Some(sender) => sender.subscribe(),
            None => {
                let (sender, receiver) = watch::channel(view(self));
                self.nodes.insert(node.into(), sender);
                receiver
            }
        }
    }

    /// Everything has been read in this round, or more has changed since.
    fn tell(&mut self, round: u64) {
        let changed = self.index.take_changed();
        let newer = self.round.replace(round) != Some(round);
        for (node, sender) in self.nodes.iter().filter(|(node, _)| newer || changed.contains(*node)) {
            sender.send_replace(View::Of { round, group: Arc::new(self.index.group(node)) });
        }
    }

    fn failed(&self) {
        for sender in self.nodes.values() {
            let unknown = |view: &View| matches!(view, View::Nothing);
            sender.send_if_modified(|view| unknown(view).then(|| *view = View::Failed).is_some());
        }
    }

    /// The API has no Devices, or the bridge may not read them.
    fn none(&mut self, round: u64) {
        self.index.list_devices(BTreeMap::new());
        self.index.list_models(BTreeMap::new());
        self.tell(round);
    }
}

/// Follows until aborted.
async fn follow(client: Client, known: Arc<Mutex<Known>>, look_again: Arc<Notify>, mut rounds: watch::Receiver<u64>) {
    let requests = Requests::new(client.clone());
    let mut pause = AGAIN.0;
    loop {
        let round = *rounds.borrow_and_update();
        let served = look_up(&requests).await;
        match served {
            Ok(served) if served.devices => {
                lock(&known).served = served;
                let why = read(&client, &known, &look_again, &mut rounds, round).await;
                if known_round(&known) == Some(round) {
                    pause = AGAIN.0;
                }
                let Some(error) = why else { continue };
                // Gone, perhaps: the next look tells.
                log::debug!("watching Devices: {error}");
            }
            Ok(served) => {
                {
                    let mut known = lock(&known);
                    known.served = served;
                    known.none(round);
                }
                pause = AGAIN.0;
                let asked = async {
                    tokio::select! {
                        _ = rounds.changed() => {}
                        () = look_again.notified() => {}
                    }
                };
                // Whoever comes wants to know now; time passes for everybody else.
                let _ = timeout(LOOK, asked).await;
                continue;
            }
            Err(error) => {
                log::warn!("asking whether there are Devices: {error}");
                lock(&known).failed();
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(AGAIN.1);
    }
}

/// Follows both kinds until they have to be read again: somebody wants to know it anew, or, with its error, the API has
/// stopped to serve them.
async fn read(
    client: &Client,
    known: &Mutex<Known>,
    look_again: &Notify,
    rounds: &mut watch::Receiver<u64>,
    round: u64,
) -> Option<watcher::Error> {
    let events = |kind: &str, plural: &str| -> Events {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind, plural));
        watcher(api, watcher::Config::default()).default_backoff().boxed()
    };
    let (mut devices, mut models) = (events(DEVICE, "devices"), events(DEVICE_MODEL, "devicemodels"));
    let (mut devices_listing, mut models_listing) = (Listing::default(), Listing::default());
    let (begun, served) = (Instant::now(), lock(known).served);
    // The definition of statuses may come a moment after those of Devices.
    let looks = begun + if served.statuses { LOOK } else { LOOK_SOON };
    let mut said = begun;
    loop {
        let read = devices_listing.read && models_listing.read;
        let due = {
            let known = lock(known);
            read && (known.round != Some(round) || known.index.is_changed())
        };
        let next = pin!(sleep_until(said + PAUSE));
        let again = async {
            sleep_until(looks).await;
            look_again.notified().await;
        };
        let failure = tokio::select! {
            biased;
            event = devices.next() => {
                let index = &mut lock(known).index;
                match event? {
                    Ok(event) => {
                        devices_listing.take(event, Device::of, |listed| match listed {
                            Listed::One(name, device) => index.set_device(name, device),
                            Listed::All(all) => index.list_devices(all),
                        });
                        None
                    }
                    Err(error) => Some(error),
                }
            }
            event = models.next() => {
                let index = &mut lock(known).index;
                match event? {
                    Ok(event) => {
                        models_listing.take(event, model, |listed| match listed {
                            Listed::One(name, model) => index.set_model(name, model),
                            Listed::All(all) => index.list_models(all),
                        });
                        None
                    }
                    Err(error) => Some(error),
                }
            }
            // At once when it is complete: nodes wait for that.
            () = next, if due && known_round(known) == Some(round) => {
                lock(known).tell(round);
                said = Instant::now();
                None
            }
            () = std::future::ready(()), if due && known_round(known) != Some(round) => {
                lock(known).tell(round);
                said = Instant::now();
                None
            }
            changed = rounds.changed(), if read && !due => {
                // Nobody wants to know any more, and this task is about to be ended.
                changed.ok()?;
                return None;
            }
            () = again, if read && !due => return None,
        };
        let Some(error) = failure else { continue };
        log::warn!("watching Devices: {error}");
        match code(&error) {
            Some(404) => return Some(error),
            // What is known stays: an API server that has just been started refuses what it will allow.
            Some(403) if known_round(known).is_none() => {
                log::error!("nodes are told of no Device: the bridge may not read any (see deploy/rbac.yaml)");
                lock(known).none(round);
            }
            _ => lock(known).failed(),
        }
    }
}

fn known_round(known: &Mutex<Known>) -> Option<u64> {
    lock(known).round
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    let (group, version) = DEVICES_API.split_once('/').unwrap_or_default();
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: DEVICES_API.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn code(error: &watcher::Error) -> Option<u16> {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// News of one kind.
enum Listed<T> {
    One(Name, Option<T>),
    All(BTreeMap<Name, T>),
}

/// The list of one kind that is being read.
struct Listing<T> {
    so_far: BTreeMap<Name, T>,
    /// It was read once.
    read: bool,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { so_far: BTreeMap::new(), read: false }
    }
}

impl<T> Listing<T> {
    fn take(
        &mut self,
        event: Event<DynamicObject>,
        parse: impl Fn(&DynamicObject) -> Option<T>,
        mut tell: impl FnMut(Listed<T>),
    ) {
        match event {
            Event::Init => self.so_far.clear(),
            Event::InitApply(object) => {
                self.so_far.extend(parse(&object).map(|parsed| (name_of(&object.metadata), parsed)));
            }
            Event::InitDone => {
                self.read = true;
                tell(Listed::All(std::mem::take(&mut self.so_far)));
            }
            Event::Apply(object) => tell(Listed::One(name_of(&object.metadata), parse(&object))),
            Event::Delete(object) => tell(Listed::One(name_of(&object.metadata), None)),
        }
    }
}
