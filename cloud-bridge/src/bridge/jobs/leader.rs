//! Leader election among several bridges: the holder of the Lease `sampan-system/jobs` begins jobs and judges silent
//! nodes. Every bridge gives orders to its own nodes, since only that bridge knows that they are connected. The Lease
//! saves requests and is not a lock: decisions are written on the version that was read, so two leaders at a time do no
//! harm. Without jobs the Lease has no holder.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::bridge::lease::micro_time;
use crate::bridge::requests::{Patch, Requests, code};

const LIST: &str = "/apis/coordination.k8s.io/v1/namespaces/sampan-system/leases";
const NAME: &str = "jobs";
/// Time after which an unrenewed Lease expires.
const LIFE: Duration = Duration::from_secs(15);
/// Interval of checks.
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// Candidate of this bridge for the Lease.
pub(super) struct Leader {
    /// Random, so that a restarted bridge is another candidate.
    id: String,
    until: Mutex<Option<Instant>>,
    seen: Mutex<Seen>,
}

impl Leader {
    pub(super) fn new(id: String) -> Self {
        Self { id, until: Mutex::default(), seen: Mutex::default() }
    }

    pub(super) fn leads(&self) -> bool {
        lock(&self.until).is_some_and(|until| Instant::now() < until)
    }

    /// Renews the Lease, or takes it if it has no holder.
    pub(super) async fn look(&self, requests: &Requests) -> kube::Result<()> {
        let now = Instant::now();
        let lease: Value = match requests.get(&format!("{LIST}/{NAME}")).await {
            Err(error) if code(&error) == Some(404) => return self.create(requests, now).await,
            lease => lease?,
        };
        if !lock(&self.seen).is_free(&lease["spec"], &self.id, now) {
            *lock(&self.until) = None;
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": self.spec()});
        match requests.patch(&format!("{LIST}/{NAME}"), Patch::Merge, &patch).await {
            Ok(_) => {
                *lock(&self.until) = Some(now + LIFE);
                Ok(())
            }
            // Another bridge was faster.
            Err(error) if code(&error) == Some(409) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives up the Lease, because there is nothing more to decide.
    pub(super) async fn release(&self, requests: &Requests) {
        if lock(&self.until).take().is_none() {
            return;
        }
        let patch = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
        if let Err(error) = requests.patch(&format!("{LIST}/{NAME}"), Patch::Merge, &patch).await {
            log::debug!("the Lease of jobs was not given back: {error}");
        }
    }

    async fn create(&self, requests: &Requests, now: Instant) -> kube::Result<()> {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}, "spec": self.spec()});
        match requests.create(LIST, &lease).await {
            Ok(_) => {
                *lock(&self.until) = Some(now + LIFE);
                Ok(())
            }
            Err(error) if code(&error) == Some(409) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn spec(&self) -> Value {
        json!({"holderIdentity": self.id, "leaseDurationSeconds": LIFE.as_secs(), "renewTime": micro_time(Timestamp::now())})
    }
}

/// Holder and time of the Lease as read last, and since when they are unchanged.
#[derive(Default)]
struct Seen(Option<([Value; 2], Instant)>);

impl Seen {
    /// Whether this candidate may take the Lease, or has it.
    fn is_free(&mut self, spec: &Value, id: &str, now: Instant) -> bool {
        let read = [spec["holderIdentity"].clone(), spec["renewTime"].clone()];
        let holder = read[0].as_str().unwrap_or_default();
        let is_free = holder.is_empty() || holder == id;
        match &self.0 {
            // The time is measured here, because clocks of machines differ.
            Some((known, since)) if *known == read => is_free || now.duration_since(*since) >= LIFE,
            _ => {
                self.0 = Some((read, now));
                is_free
            }
        }
    }
}

fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_of_another_is_free_once_it_is_not_renewed() {
        let lease = |holder: &str, time: &str| json!({"holderIdentity": holder, "renewTime": time});
        let (mut seen, begun) = (Seen::default(), Instant::now());
        let mut is_free = |holder, time, now| seen.is_free(&lease(holder, time), "own", now);
        assert!(!is_free("other", "1", begun), "it may have been renewed just now, whatever its time says");
        assert!(!is_free("other", "1", begun + LIFE / 2));
        assert!(!is_free("other", "2", begun + LIFE), "it was renewed");
        assert!(!is_free("other", "2", begun + LIFE * 3 / 2));
        assert!(is_free("other", "2", begun + LIFE * 2));
        assert!(!is_free("third", "2", begun + LIFE * 2), "another bridge was faster");
        assert!(is_free("own", "3", begun + LIFE * 2) && is_free("", "3", begun + LIFE * 2));
    }
}
