//! The NetworkPolicies of a namespace, or of all, as nodes see them. The bridge reads them in its own name, since nodes
//! may not read policies or other nodes' pods. There is one watch of policies for all nodes and, while a policy selects
//! pods by labels, the one of all [`Peers`].

mod group;

use std::pin::Pin;
use std::time::Duration;

use apimachinery::pace::{Pace, in_slices};
use apimachinery::well_known::PAGE;
use futures::{Stream, StreamExt};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use tokio::time::{Instant, sleep_until};

use super::news::{Subscription, What, watch_failure};
use super::peers::{Change, Following, Known, Peers};
use crate::bridge::world::Group;
use group::{Seen, Views};

/// Minimum interval between updates to nodes: changes in between are sent together.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause after computing an update, as a multiple of its time: many policies take at most this share of the CPU.
const SHARE: u32 = 20;
/// Longest pause, however long an update took.
const REST_MAX: Duration = Duration::from_secs(60);
/// Interval at which all policies are read again because some had no room.
const AGAIN: Duration = Duration::from_secs(30);

fn read(api: &Api<DynamicObject>) -> Pin<Box<dyn Stream<Item = Seen> + Send>> {
    in_slices(watcher(api.clone(), watcher::Config::default().page_size(PAGE)).default_backoff()).boxed()
}

/// Follows until aborted.
pub(super) async fn watch_policy_views(client: kube::Client, peers: Peers, to: Subscription) {
    let key = &to.key;
    let resource = ApiResource::erase::<NetworkPolicy>(&());
    let api: Api<DynamicObject> = match key.namespace.as_str() {
        "" => Api::all_with(client, &resource),
        namespace => Api::namespaced_with(client, namespace, &resource),
    };
    let mut policies = read(&api);
    let mut again = Instant::now() + AGAIN;
    let mut group = Views::new(&key.namespace);
    let mut following: Option<Following> = None;
    let mut next = Instant::now();
    loop {
        let due = group.is_due() && following.as_ref().is_none_or(Following::is_ready);
        let change = async {
            match &mut following {
                Some(following) => following.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(event) = policies.next() => {
                if let Some(error) = group.take(event) {
                    log::warn!("watching the NetworkPolicies of namespace {:?}: {error}", key.namespace);
                    let told = after_failure(watch_failure(&error), group.first);
                    if let Some(What::Group(_)) = told {
                        log::error!("nodes hold to no NetworkPolicy: the bridge may not read any (see deploy/bridge/rbac.yaml)");
                    }
                    if let Some(what) = told
                        && to.tell(what).await.is_none()
                    {
                        return;
                    }
                }
                continue;
            }
            change = change => {
                group.note(change);
                continue;
            }
            () = sleep_until(again), if group.wants_reading => {
                group.wants_reading = false;
                policies = read(&api);
                again = Instant::now() + AGAIN;
                continue;
            }
            () = sleep_until(next), if due => {}
        }
        let begun = Instant::now();
        let mut pace = Pace::default();
        while know(following.as_ref(), |known| group.step(known)) {
            pace.look().await;
        }
        let told = know(following.as_ref(), |known| group.told(known));
        let took = begun.elapsed();
        if group.means_pods() && following.is_none() {
            // Answered when they are known; the first time at once, because pods wait for it.
            following = Some(peers.follow());
            group.note(Change::All);
            next = Instant::now() + rest(took, group.first).min(REST_MAX);
            continue;
        }
        next = Instant::now() + rest(took, false).min(REST_MAX);
        if !group.means_pods() {
            following = None;
        }
        if to.tell(What::Group(told)).await.is_none() {
            return;
        }
        group.first = false;
    }
}

/// Pause after an update that took this time, or after what is computed before the first one.
fn rest(took: Duration, before_first: bool) -> Duration {
    let share = took * SHARE;
    if before_first { share } else { share.max(PAUSE) }
}

/// Reads the present state of pods and namespaces.
fn know<T>(following: Option<&Following>, look: impl FnOnce(&Known) -> T) -> T {
    match following {
        Some(following) => following.with(look),
        None => look(&Known::default()),
    }
}

/// What nodes are told after a failure of the watch; `None`: they keep what they received. Without the right to read
/// policies they get none. `first`: nothing was sent yet.
fn after_failure(failure: What, first: bool) -> Option<What> {
    match failure {
        What::Refused => first.then(|| What::Group(Group::new())),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_group_is_not_paced_beyond_its_share_of_the_time() {
        let took = |millis| Duration::from_millis(millis);
        assert_eq!((rest(took(1), true), rest(took(1), false)), (took(20), PAUSE));
        assert_eq!((rest(took(50), true), rest(took(50), false)), (took(1000), took(1000)));
    }

    #[test]
    fn refusal_takes_no_policy_from_a_node() {
        assert!(matches!(after_failure(What::Refused, true), Some(What::Group(group)) if group.is_empty()));
        assert!(after_failure(What::Refused, false).is_none());
        assert!(matches!(after_failure(What::Failed, false), Some(What::Failed)));
    }
}
