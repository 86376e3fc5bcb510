//! Follows two kinds: one watch of each, cluster-wide, in the bridge's own name: no node may read them. If the API
//! serves neither, the bridge checks again now and then, and nodes get an empty list.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Index;
use super::known::{Known, lock};
use super::listing::{Events, Listing};
use crate::bridge::discovery::{self, AGAIN, Over, Refusals, UNSERVED};
use crate::bridge::pauses::Pauses;
use crate::bridge::requests::Requests;
use crate::bridge::resource::resource;
use crate::bridge::world::Round;
use apimachinery::pace::in_slices;
use apimachinery::well_known::PAGE;

/// Minimum interval between updates to nodes: changes in between are sent together.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval of checks for kinds that the bridge may not read, or of which the API serves only a part.
pub(in crate::bridge) const LOOK: Duration = Duration::from_secs(60);
/// Minimum time between two checks that are requested.
pub(in crate::bridge) const LOOK_SOON: Duration = Duration::from_secs(5);

/// What the API serves of the group, and when to check.
pub(in crate::bridge) trait Look: Send + 'static {
    /// Whether both kinds are in the group's discovery, which is null without the group.
    fn serves(&self, resources: &Value) -> bool;

    /// Minimum time of a reading before [`asked`](Self::asked) may end it.
    fn patience(&self) -> Duration;

    /// Returns when an answer of the API contradicts the last check.
    fn asked(&self) -> impl Future<Output = ()> + Send;
}

/// Follows until aborted. Answers are those of the newest of `rounds`, or later.
pub(in crate::bridge) async fn follow<I: Index, L: Look>(
    client: Client,
    known: Arc<Mutex<Known<I>>>,
    looks: Arc<L>,
    mut rounds: watch::Receiver<Round>,
) {
    let requests = Requests::new(client.clone());
    let mut pauses = Pauses::new(AGAIN);
    loop {
        let round = *rounds.borrow_and_update();
        let served = match discovery::of_group(&requests, I::API).await {
            Ok(resources) => looks.serves(&resources),
            Err(error) => {
                log::warn!("asking whether there are {}: {error}", I::NAME);
                pauses.wait().await;
                continue;
            }
        };
        let over = match served {
            true => read(&client, &known, &*looks, &mut rounds, round).await,
            false => Over::Gone,
        };
        if lock(&known).round == Some(round) {
            pauses.reset();
        }
        let look = match over {
            Over::Stale => continue,
            // The list says that the kind does not exist, but the discovery has it: one of them is late.
            Over::Gone if served => {
                pauses.wait().await;
                continue;
            }
            Over::Gone => {
                lock(&known).none(round);
                UNSERVED
            }
            Over::Refused => {
                log::error!(
                    "nodes are told of no news of {}: the bridge may not read any (see deploy/bridge/rbac.yaml)",
                    I::NAME
                );
                // Known objects stay, though they may be outdated.
                lock(&known).tell(round);
                LOOK
            }
        };
        let asked = async {
            sleep(LOOK_SOON).await;
            looks.asked().await;
        };
        let asked = async {
            tokio::select! {
                // A new subscriber needs the answer now.
                _ = rounds.changed() => {}
                () = asked => {}
            }
        };
        let _ = timeout(look, asked).await;
    }
}

/// Follows both kinds until they have to be read again.
async fn read<I: Index>(
    client: &Client,
    known: &Mutex<Known<I>>,
    looks: &impl Look,
    rounds: &mut watch::Receiver<Round>,
    round: Round,
) -> Over {
    let events = |(kind, plural): (&str, &str)| -> Events {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(I::API, kind, plural));
        in_slices(watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff()).boxed()
    };
    let (mut ones, mut others) = (events(I::ONE), events(I::OTHER));
    let (mut all_ones, mut all_others) = (Listing::default(), Listing::default());
    let (begun, mut said, mut refusals) = (Instant::now(), Instant::now(), Refusals::default());
    let not_before = begun + looks.patience();
    loop {
        let read = all_ones.read && all_others.read;
        let due = {
            let mut known = lock(known);
            // The first answer is sent at once: nodes wait for it.
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
            sleep_until(not_before).await;
            looks.asked().await;
        };
        let error = tokio::select! {
            Some(event) = ones.next() => all_ones.take(event, I::one, |news| lock(known).index.take_one(news)),
            Some(event) = others.next() => all_others.take(event, I::other, |news| lock(known).index.take_other(news)),
            () = sleep_until(said + PAUSE), if due => None,
            changed = rounds.changed(), if read && !due => match changed {
                Ok(()) => return Over::Stale,
                // No task needs the answer: this one is about to be stopped.
                Err(_) => std::future::pending().await,
            },
            () = again, if read && !due => return Over::Stale,
        };
        let Some(error) = error else { continue };
        log::warn!("watching {}: {error}", I::NAME);
        if let Some(over) = refusals.take(&error, read) {
            return over;
        }
    }
}
