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
    /// Holder and time of the Lease as read last, and since when they are unchanged.
    seen: Mutex<Option<(Value, Instant)>>,
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
        let spec = json!([lease["spec"]["holderIdentity"], lease["spec"]["renewTime"]]);
        let since = {
            let mut seen = lock(&self.seen);
            match &*seen {
                Some((known, since)) if *known == spec => *since,
                _ => seen.insert((spec.clone(), now)).1,
            }
        };
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        // The time is measured here, because clocks of machines differ.
        if !holder.is_empty() && holder != self.id && now.duration_since(since) < LIFE {
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

fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
