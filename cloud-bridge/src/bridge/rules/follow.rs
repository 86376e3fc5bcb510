//! Follows rules and their ends: one watch of each, cluster-wide, in the bridge's own name: no node may read rules. A cluster
//! that knows none costs a question a minute.

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

use super::known::{Known, lock};
use super::view::{Endpoint, Rule};
use crate::bridge::listing::{Events, Listing, News, code, resource};
use crate::bridge::pod_references::{RULE, RULES_API};
use crate::bridge::requests::Requests;

/// Between two times that nodes are told of changes: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks whether the API has come to know rules, or knows them in another way.
const LOOK: Duration = Duration::from_secs(60);
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
pub(super) async fn follow(client: Client, known: Arc<Mutex<Known>>, mut rounds: watch::Receiver<u64>) {
    let requests = Requests::new(client.clone());
    let mut pause = AGAIN.0;
    loop {
        let round = *rounds.borrow_and_update();
        let over = match are_served(&requests).await {
            Ok(true) => read(&client, &known, &mut rounds, round).await,
            Ok(false) => Over::Gone,
            Err(error) => {
                log::warn!("asking whether there are rules: {error}");
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
                continue;
            }
        };
        pause = AGAIN.0;
        let look = match over {
            Over::Stale => continue,
            Over::Gone => {
                lock(&known).none(round);
                LOOK_SOON
            }
            Over::Refused => {
                log::error!("nodes are told of no news of rules: the bridge may not read any (see deploy/rbac.yaml)");
                // What is known stays, though it may be old.
                lock(&known).tell(round);
                LOOK
            }
        };
        // Whoever comes wants to know now.
        let _ = timeout(look, rounds.changed()).await;
    }
}

async fn are_served(requests: &Requests) -> kube::Result<bool> {
    match requests.get::<Value>(&format!("/apis/{RULES_API}")).await {
        Ok(found) => {
            let has = |name: &str| found["resources"].as_array().into_iter().flatten().any(|one| one["name"] == name);
            Ok(has("rules") && has("ruleendpoints"))
        }
        // By its code: there is no object of which it could speak.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Follows both kinds until they have to be read again.
async fn read(client: &Client, known: &Mutex<Known>, rounds: &mut watch::Receiver<u64>, round: u64) -> Over {
    let events = |kind: &str, plural: &str| -> Events {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(RULES_API, kind, plural));
        watcher(api, watcher::Config::default()).default_backoff().boxed()
    };
    let (mut rules, mut endpoints) = (events(RULE, "rules"), events("RuleEndpoint", "ruleendpoints"));
    let (mut all_rules, mut all_endpoints) = (Listing::default(), Listing::default());
    let (mut said, mut refusals) = (Instant::now(), 0);
    loop {
        let read = all_rules.read && all_endpoints.read;
        let due = {
            let mut known = lock(known);
            // The first time at once: nodes wait for that.
            let first = read && known.round != Some(round);
            let due = read && known.index.is_stale();
            if first || (due && Instant::now() >= said + PAUSE) {
                known.tell(round);
                said = Instant::now();
                continue;
            }
            due
        };
        let error = tokio::select! {
            biased;
            Some(event) = rules.next() => all_rules.take(event, Rule::of, |news| {
                let index = &mut lock(known).index;
                match news {
                    News::One(name, rule) => index.set_rule(name, rule),
                    News::All(all) => index.list_rules(all),
                }
            }),
            Some(event) = endpoints.next() => all_endpoints.take(event, Endpoint::of, |news| {
                let index = &mut lock(known).index;
                match news {
                    News::One(name, endpoint) => index.set_endpoint(name, endpoint),
                    News::All(all) => index.list_endpoints(all),
                }
            }),
            () = sleep_until(said + PAUSE), if due => None,
            changed = rounds.changed(), if read && !due => match changed {
                Ok(()) => return Over::Stale,
                // Nobody wants to know any more: this task is about to be ended.
                Err(_) => std::future::pending().await,
            },
        };
        let Some(error) = error else { continue };
        log::warn!("watching rules: {error}");
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
