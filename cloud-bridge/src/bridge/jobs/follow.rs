//! The watch of jobs, of all kinds that the API serves, cluster-wide and in the bridge's own name. If the API serves
//! none, the bridge checks again now and then.

use std::pin::Pin;
use std::sync::Weak;
use std::time::Duration;

use futures::stream::{Stream, StreamExt, select_all};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::index::Index;
use super::view::{JOBS_API, Job, JobObject, Kind};
use crate::bridge::followed::follow::{UNSERVED, has};
use crate::bridge::followed::listing::code;
use crate::bridge::requests::Requests;
use crate::bridge::shared::Shared;

/// Interval of checks for jobs that the bridge may not read.
const LOOK: Duration = Duration::from_secs(10);
/// Minimum interval between readings: each node that connects requests one.
const APART: Duration = Duration::from_millis(250);
/// Pause after a failed check, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Number of jobs per page: each may have ten thousand nodes.
const PAGE: u32 = 20;
/// Number of refusals after which a list counts as refused: an API server that has just started refuses requests that
/// it will allow.
const REFUSALS: u32 = 5;

type Events = Pin<Box<dyn Stream<Item = (Kind, Result<Event<JobObject>, watcher::Error>)> + Send>>;

/// Reason why a reading has ended.
enum Over {
    /// A newer reading is requested.
    Stale,
    /// The API no longer serves them.
    Gone,
    /// The bridge may not read them.
    Refused,
}

/// Follows until the bridge ends.
pub(super) async fn follow(shared: Weak<Shared>) {
    let Some((client, mut asked)) = shared.upgrade().map(|shared| (shared.clients.own().clone(), shared.jobs.asked()))
    else {
        return;
    };
    let requests = Requests::new(client.clone());
    let mut pause = AGAIN.0;
    loop {
        if shared.strong_count() == 0 {
            return;
        }
        let ticket = *asked.borrow_and_update();
        let served: Vec<Kind> = match discovery(&requests).await {
            Ok(resources) => Kind::ALL.into_iter().filter(|kind| has(&resources, kind.plural())).collect(),
            Err(error) => {
                log::warn!("asking whether there are jobs: {error}");
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
                continue;
            }
        };
        let over = read(&client, &shared, &served, &mut asked, ticket).await;
        match over {
            Over::Stale => {
                pause = AGAIN.0;
                sleep(APART).await;
            }
            // The list says that the kind does not exist, but the discovery has it: one of them is late.
            Over::Gone if !served.is_empty() => {
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
            }
            Over::Gone => {
                change(&shared, Some(ticket), |index| index.list(Vec::new()));
                pause = AGAIN.0;
                let _ = timeout(UNSERVED, asked.changed()).await;
            }
            Over::Refused => {
                log::error!("nodes are given no orders of jobs: the bridge may not read any (see deploy/rbac.yaml)");
                // Known jobs stay, though they may be outdated.
                change(&shared, Some(ticket), |_| ());
                let _ = timeout(LOOK, asked.changed()).await;
            }
        }
    }
}

fn change(shared: &Weak<Shared>, read: Option<u64>, change: impl FnOnce(&mut Index)) {
    if let Some(shared) = shared.upgrade() {
        shared.jobs.change(read, change);
    }
}

/// Returns the discovery of the group; null if the group does not exist.
async fn discovery(requests: &Requests) -> kube::Result<Value> {
    match requests.get(&format!("/apis/{JOBS_API}")).await {
        // By its code alone: the message names no object.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
        resources => resources,
    }
}

async fn read(
    client: &Client,
    shared: &Weak<Shared>,
    served: &[Kind],
    asked: &mut tokio::sync::watch::Receiver<u64>,
    ticket: u64,
) -> Over {
    if served.is_empty() {
        return Over::Gone;
    }
    let events = |kind: &Kind| -> Events {
        let (kind, api) = (*kind, Api::<JobObject>::all_with(client.clone(), &kind.resource()));
        let config = watcher::Config::default().page_size(PAGE);
        watcher(api, config).default_backoff().map(move |event| (kind, event)).boxed()
    };
    let mut events = select_all(served.iter().map(events));
    let (mut listing, mut unread, mut refusals) = (Vec::new(), served.to_vec(), 0);
    // Kinds whose list is being read again, and the jobs of that list so far.
    let mut again: Vec<(Kind, Vec<Job>)> = Vec::new();
    loop {
        let (kind, event) = tokio::select! {
            Some(next) = events.next() => next,
            changed = asked.changed(), if unread.is_empty() => match changed {
                Ok(()) => return Over::Stale,
                // The bridge is ending.
                Err(_) => return Over::Gone,
            },
            else => return Over::Stale,
        };
        if shared.strong_count() == 0 {
            return Over::Stale;
        }
        let first = unread.contains(&kind);
        match event {
            Ok(Event::Init) if first => listing.retain(|job: &Job| job.kind != kind),
            Ok(Event::InitApply(object)) if first => listing.extend(Job::of(kind, &object)),
            Ok(Event::InitDone) if first => {
                unread.retain(|one| *one != kind);
                if unread.is_empty() {
                    let all = std::mem::take(&mut listing);
                    change(shared, Some(ticket), |index| index.list(all));
                }
            }
            Ok(Event::Init) => {
                again.retain(|(one, _)| *one != kind);
                again.push((kind, Vec::new()));
            }
            Ok(Event::InitApply(object)) => {
                let of_kind = again.iter_mut().find(|(one, _)| *one == kind);
                of_kind.into_iter().for_each(|(_, all)| all.extend(Job::of(kind, &object)));
            }
            Ok(Event::InitDone) => {
                let all = again.iter().position(|(one, _)| *one == kind).map(|at| again.swap_remove(at).1);
                change(shared, None, |index| index.list_kind(kind, all.unwrap_or_default()));
            }
            Ok(Event::Apply(object)) => apply(shared, kind, &object, unread.is_empty().then_some(()), &mut listing),
            Ok(Event::Delete(object)) => {
                let uid = object.metadata.uid.unwrap_or_default();
                listing.retain(|job| *job.uid != *uid);
                change(shared, None, |index| index.remove(&uid));
            }
            Err(error) => {
                log::warn!("watching jobs: {error}");
                match code(&error) {
                    Some(404) => return Over::Gone,
                    Some(403) if !unread.is_empty() => refusals += 1,
                    _ => {}
                }
                if refusals >= REFUSALS {
                    return Over::Refused;
                }
            }
        }
    }
}

fn apply(shared: &Weak<Shared>, kind: Kind, object: &JobObject, read: Option<()>, listing: &mut Vec<Job>) {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let job = Job::of(kind, object);
    if job.is_none() && object.metadata.deletion_timestamp.is_none() {
        log::warn!(
            "{} {}: its status is nonsense, nothing is done",
            kind.name(),
            object.metadata.name.as_deref().unwrap_or_default()
        );
    }
    if read.is_none() {
        // Another kind is still being listed: the deletion is applied to that list.
        listing.retain(|job| *job.uid != *uid);
        listing.extend(job);
        return;
    }
    change(shared, None, |index| match job {
        Some(job) => index.set(job),
        None => index.remove(uid),
    });
}
