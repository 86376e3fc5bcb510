//! Follows Devices and their models: one watch of each, cluster-wide, in the bridge's own name: no node may read Devices. A
//! cluster that knows none costs a question a minute, and nodes are told that they have none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::known::{Known, lock};
use super::served::look_up;
use super::view::{Device, Model};
use crate::bridge::listing::{Events, Listing, News, code, resource};
use crate::bridge::pod_references::{DEVICE, DEVICE_MODEL, DEVICES_API};
use crate::bridge::requests::Requests;

/// Between two times that nodes are told of changes: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks whether the API has come to know Devices.
const LOOK: Duration = Duration::from_secs(60);
/// Between two looks that somebody has reason to ask for.
const LOOK_SOON: Duration = Duration::from_secs(5);
/// Pause after a look that failed, doubled up to the second figure.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// So often a list may be refused before it is believed: an API server that has just been started refuses what it will allow.
const REFUSALS: u32 = 5;

/// Why a reading has come to its end.
enum Over {
    /// Somebody wants to know it anew.
    Stale,
    /// The API serves them no more.
    Gone,
    /// The bridge may not read them.
    Refused,
}

/// Follows until aborted. What is told is of the newest of `rounds` or later.
pub(super) async fn follow(
    client: Client,
    known: Arc<Mutex<Known>>,
    look_again: Arc<Notify>,
    mut rounds: watch::Receiver<u64>,
) {
    let requests = Requests::new(client.clone());
    let mut pause = AGAIN.0;
    loop {
        let round = *rounds.borrow_and_update();
        let served = match look_up(&requests).await {
            Ok(served) => served,
            Err(error) => {
                log::warn!("asking whether there are Devices: {error}");
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
                continue;
            }
        };
        lock(&known).served = served;
        let over = match served.devices {
            true => read(&client, &known, &look_again, &mut rounds, round).await,
            false => Over::Gone,
        };
        if lock(&known).round == Some(round) {
            pause = AGAIN.0;
        }
        match over {
            Over::Stale => continue,
            // Its list says so and its discovery does not: one of them is behind.
            Over::Gone if served.devices => {
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
                continue;
            }
            Over::Gone => lock(&known).none(round),
            Over::Refused => {
                log::error!("nodes are told of no news of Devices: the bridge may not read any (see deploy/rbac.yaml)");
                // What is known stays, though it may be old.
                lock(&known).tell(round);
            }
        }
        let asked = async {
            sleep(LOOK_SOON).await;
            look_again.notified().await;
        };
        let asked = async {
            tokio::select! {
                // Whoever comes wants to know now.
                _ = rounds.changed() => {}
                () = asked => {}
            }
        };
        let _ = timeout(LOOK, asked).await;
    }
}

/// Follows both kinds until they have to be read again.
async fn read(
    client: &Client,
    known: &Mutex<Known>,
    look_again: &Notify,
    rounds: &mut watch::Receiver<u64>,
    round: u64,
) -> Over {
    let events = |kind: &str, plural: &str| -> Events {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(DEVICES_API, kind, plural));
        watcher(api, watcher::Config::default()).default_backoff().boxed()
    };
    let (mut devices, mut models) = (events(DEVICE, "devices"), events(DEVICE_MODEL, "devicemodels"));
    let (mut all_devices, mut all_models) = (Listing::default(), Listing::default());
    let (begun, mut said, mut refusals) = (Instant::now(), Instant::now(), 0);
    // The definition of statuses may come a moment after those of Devices.
    let looks = begun + if lock(known).served.statuses { LOOK } else { LOOK_SOON };
    loop {
        let read = all_devices.read && all_models.read;
        let due = {
            let mut known = lock(known);
            // The first time at once: nodes wait for that.
            let first = read && known.round != Some(round);
            let due = read && known.index.is_changed();
            if first || (due && Instant::now() >= said + PAUSE) {
                known.tell(round);
                said = Instant::now();
                continue;
            }
            due
        };
        let again = async {
            sleep_until(looks).await;
            look_again.notified().await;
        };
        let error = tokio::select! {
            biased;
            Some(event) = devices.next() => all_devices.take(event, Device::of, |news| {
                let index = &mut lock(known).index;
                match news {
                    News::One(name, device) => index.set_device(name, device),
                    News::All(all) => index.list_devices(all),
                }
            }),
            Some(event) = models.next() => all_models.take(event, Model::of, |news| {
                let index = &mut lock(known).index;
                match news {
                    News::One(name, model) => index.set_model(name, model),
                    News::All(all) => index.list_models(all),
                }
            }),
            () = sleep_until(said + PAUSE), if due => None,
            changed = rounds.changed(), if read && !due => match changed {
                Ok(()) => return Over::Stale,
                // Nobody wants to know any more: this task is about to be ended.
                Err(_) => std::future::pending().await,
            },
            () = again, if read && !due => return Over::Stale,
        };
        let Some(error) = error else { continue };
        log::warn!("watching Devices: {error}");
        match code(&error) {
            Some(404) => return Over::Gone,
            Some(403) if !read => refusals += 1,
            _ => {}
        }
        if refusals >= REFUSALS {
            return Over::Refused;
        }
    }
}
