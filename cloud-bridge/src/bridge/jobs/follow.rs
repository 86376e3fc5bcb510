//! The watch of jobs, of all kinds that the API serves, cluster-wide and in the bridge's own name. If the API serves
//! none, the bridge checks again now and then.

use std::pin::Pin;
use std::sync::Weak;
use std::time::Duration;

use futures::stream::{Stream, StreamExt, select_all};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::index::Index;
use super::known::Jobs;
use super::reading::{Reading, Update};
use super::view::{JOBS_API, JobObject, Kind};
use crate::bridge::discovery::{self, AGAIN, Over, Refusals, UNSERVED, has};
use crate::bridge::pauses::Pauses;
use crate::bridge::requests::Requests;

/// Interval of checks for jobs that the bridge may not read.
const LOOK: Duration = Duration::from_secs(10);
/// Minimum interval between readings: each node that connects requests one.
const APART: Duration = Duration::from_millis(250);
/// Number of jobs per page: each may have ten thousand nodes.
const PAGE: u32 = 20;

type Events = Pin<Box<dyn Stream<Item = (Kind, Result<Event<JobObject>, watcher::Error>)> + Send>>;

/// Follows until the bridge ends.
pub(super) async fn follow(client: Client, jobs: Weak<Jobs>) {
    let Some(mut asked) = jobs.upgrade().map(|jobs| jobs.asked()) else { return };
    let requests = Requests::new(client.clone());
    let mut pauses = Pauses::new(AGAIN);
    loop {
        if jobs.strong_count() == 0 {
            return;
        }
        let ticket = *asked.borrow_and_update();
        let served: Vec<Kind> = match discovery::of_group(&requests, JOBS_API).await {
            Ok(resources) => Kind::ALL.into_iter().filter(|kind| has(&resources, kind.plural())).collect(),
            Err(error) => {
                log::warn!("asking whether there are jobs: {error}");
                pauses.wait().await;
                continue;
            }
        };
        let over = read(&client, &jobs, &served, &mut asked, ticket).await;
        match over {
            Over::Stale => {
                pauses.reset();
                sleep(APART).await;
            }
            // The list says that the kind does not exist, but the discovery has it: one of them is late.
            Over::Gone if !served.is_empty() => {
                pauses.wait().await;
            }
            Over::Gone => {
                change(&jobs, Some(ticket), |index| index.list(Vec::new()));
                pauses.reset();
                let _ = timeout(UNSERVED, asked.changed()).await;
            }
            Over::Refused => {
                log::error!(
                    "nodes are given no orders of jobs: the bridge may not read any (see deploy/bridge/rbac.yaml)"
                );
                // Known jobs stay, though they may be outdated.
                change(&jobs, Some(ticket), |_| ());
                let _ = timeout(LOOK, asked.changed()).await;
            }
        }
    }
}

fn change(jobs: &Weak<Jobs>, read: Option<u64>, change: impl FnOnce(&mut Index)) {
    if let Some(jobs) = jobs.upgrade() {
        jobs.change(read, change);
    }
}

async fn read(
    client: &Client,
    jobs: &Weak<Jobs>,
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
    let (mut reading, mut refusals) = (Reading::new(served), Refusals::default());
    loop {
        let (kind, event) = tokio::select! {
            Some(next) = events.next() => next,
            changed = asked.changed(), if reading.is_whole() => match changed {
                Ok(()) => return Over::Stale,
                // The bridge is ending.
                Err(_) => return Over::Gone,
            },
            else => return Over::Stale,
        };
        if jobs.strong_count() == 0 {
            return Over::Stale;
        }
        match event.map(|event| reading.take(kind, event)) {
            Ok(None) => {}
            Ok(Some(Update::All(all))) => change(jobs, Some(ticket), |index| index.list(all)),
            Ok(Some(Update::Kind(kind, all))) => change(jobs, None, |index| index.list_kind(kind, all)),
            Ok(Some(Update::Set(job))) => change(jobs, None, |index| index.set(job)),
            Ok(Some(Update::Remove(uid))) => change(jobs, None, |index| index.remove(&uid)),
            Err(error) => {
                log::warn!("watching jobs: {error}");
                if let Some(over) = refusals.take(&error, reading.is_whole()) {
                    return over;
                }
            }
        }
    }
}
