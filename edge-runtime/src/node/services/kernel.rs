//! When changes are written to the kernel: one run of `nft` at a time; the next one has all changes meanwhile.

use std::time::Duration;

use super::done::Done;
use super::job::Job;
use super::{Phase, Services};
use crate::launch::Launch;
use crate::net::services::table::{Change, Wanted};
use crate::net::services::{apply, offenders};
use crate::node::context::Context;
use crate::node::sources::News;
use crate::pod::clock::Mono;
use crate::store::StoreError;
use crate::sys::gather::Gather;

/// Pause between two changes of the kernel's rules; changes meanwhile are combined.
const PAUSE: Duration = Duration::from_millis(50);
/// Rules that were emptied are deleted then: kernels before 6.2 hold them for a moment.
const SWEEP_AFTER: Duration = Duration::from_secs(2);

/// What the result of a run of `nft` means.
type Means = fn(Result<(), String>) -> Done;

impl Services {
    /// Tells the kernel what has changed, if it is time. Called with each round of the loop.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(in crate::node) fn step(&mut self, cx: &mut Context, launch: &Launch) -> Result<(), StoreError> {
        if self.running || !cx.resumed {
            return Ok(());
        }
        if launch.sandboxes.teardown.network.settings().subnets.is_empty() {
            // The cluster has not assigned subnets yet, so no pod needs rules.
            return Ok(());
        }
        let now = cx.mono();
        self.dirty.extend(self.left_out.due(now));
        // After all portions of a change.
        if self.dirty.is_empty() && self.flows.due(now) == Some(now) {
            self.forget_datagrams(cx);
        }
        if !self.is_due(now) {
            return Ok(());
        }
        if self.phase != Phase::Known || self.pods.is_empty() {
            self.look_at_all_pods(cx, launch);
        } else {
            // A view may have come or gone.
            self.look_at_addresses(cx, launch);
        }
        self.look_at_bounds();
        self.tell_bounds(cx)?;
        let network = &launch.sandboxes.teardown.network;
        let (nft, bridge) = (network.nft().to_owned(), network.settings().bridge.clone());
        self.keep_routes(launch);
        let serves = !self.views.is_empty() && self.elsewhere.is_none();
        match Job::next(self.phase, serves, self.tables.is_there(), self.failures) {
            Job::Nothing => self.forget(),
            Job::Remove => {
                self.forget();
                self.phase = Phase::Known;
                self.run(cx, async move {
                    Done::Changed(apply::remove(nft, bridge).await.map_err(|error| error.to_string()))
                });
            }
            Job::Look => {
                let wanted = self.wanted();
                self.tables.adopt(&wanted);
                let marks = self.tables.marks();
                self.run(cx, async move { Done::Looked(apply::has(&bridge, &marks)) });
            }
            Job::Update => {
                if let Some((change, done)) = self.update(now) {
                    self.run(cx, async move { done(apply::run(nft, change).await.map_err(|error| error.to_string())) });
                }
            }
            Job::Isolate => {
                let (wanted, tables) = (self.wanted(), self.tables.like());
                self.run(cx, async move { Done::Isolated(offenders::find(&nft, &tables, wanted).await) });
            }
            Job::Replace => {
                // The others follow, one transaction at a time.
                self.dirty = self.views.keys().cloned().into_set();
                let wanted = Wanted { services: self.portion(), pods: self.onlink.clone() };
                let change = self.tables.replace(&wanted);
                self.phase = Phase::Known;
                self.not_before = Some(now.after(PAUSE));
                self.run(
                    cx,
                    async move { Done::Changed(apply::run(nft, change).await.map_err(|error| error.to_string())) },
                );
            }
        }
        Ok(())
    }

    /// What the kernel does not hold yet; if it holds all, the deletion of emptied rules, when that is due.
    fn update(&mut self, now: Mono) -> Option<(Change, Means)> {
        if let Some(change) = self.change() {
            self.sweep_at = Some(now.after(SWEEP_AFTER));
            self.not_before = Some(now.after(PAUSE));
            return Some((change, Done::Changed));
        }
        if self.sweep_at.is_none_or(|at| now < at) {
            return None;
        }
        self.sweep_at = None;
        let change = self.tables.sweep()?;
        // There may be more.
        self.sweep_at = Some(now.after(PAUSE));
        Some((change, Done::Swept))
    }

    /// When [`Services::step`] has something to do although nothing happens.
    pub(in crate::node) fn wake(&self) -> Option<Mono> {
        if self.running {
            return None;
        }
        let changed = !self.dirty.is_empty() || self.pods_changed || self.phase != Phase::Known;
        let next = match self.is_idle() {
            true => self.left_out.wake(),
            false if changed => self.not_before,
            // The later of both: a refusal may have moved the next step beyond the deletion.
            false => self.sweep_at.max(self.not_before),
        };
        let flows = self.flows.due(Mono::default()).filter(|_| self.dirty.is_empty());
        next.into_iter().chain(flows).min()
    }

    /// Whether a run of `nft` is under way.
    pub(in crate::node) fn is_changing(&self) -> bool {
        self.running
    }

    /// Chains whose existence shows that the kernel holds the desired state, `true` for IPv6; empty if tables should
    /// not exist.
    pub(in crate::node) fn marks(&self) -> Vec<(bool, String)> {
        let there = self.phase == Phase::Known && self.tables.is_there();
        if there {
            self.tables.marks().into_iter().map(|(family, mark)| (family == "ip6", mark)).collect()
        } else {
            Vec::new()
        }
    }

    /// Another program has deleted the tables.
    pub(in crate::node) fn lost(&mut self) {
        self.tables.forget();
        self.phase = Phase::Whole;
    }

    fn is_due(&self, now: Mono) -> bool {
        !self.is_idle() && self.not_before.is_none_or(|at| now >= at)
    }

    fn is_idle(&self) -> bool {
        let known = self.phase == Phase::Known;
        known && self.dirty.is_empty() && !self.pods_changed && self.sweep_at.is_none()
    }

    fn run(&mut self, cx: &Context, work: impl Future<Output = Done> + 'static) {
        self.running = true;
        cx.background(async move { News::ServicesApplied(work.await) });
    }

    fn forget(&mut self) {
        self.tables.forget();
        self.dirty.clear();
        self.onlink.clear();
        self.pods_changed = false;
        self.sweep_at = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use edge_protocol::message::ObjectKey;
    use serde_json::json;

    use super::*;
    use crate::config::ServicesConfig;
    use crate::net::Subnet;
    use crate::net::services::view::SERVICE_VIEW;
    use crate::net::services::{Here, LocalPod, Tables};
    use crate::store::Store;

    /// A node with one pod, which `ns/web` would select.
    fn services() -> Services {
        let subnets: [Subnet; 1] = ["10.42.0.0/24".parse().unwrap()];
        let (tables, store) = (Tables::new("b0", &subnets), Store::in_memory().unwrap());
        let mut services = Services::open(&ServicesConfig::default(), tables, Here::default(), &store).unwrap();
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let ips = vec!["10.42.0.2".parse().unwrap()];
        let pod = LocalPod { namespace: "ns".into(), labels, ips, ready: true, ..LocalPod::default() };
        services.pods.insert("u".to_owned(), pod);
        services
    }

    fn put(services: &mut Services, is_there: bool) {
        let key = ObjectKey { kind: SERVICE_VIEW.into(), namespace: "ns".into(), name: "web".into() };
        let spec = json!({"clusterIPs": ["10.96.0.7"], "selector": {"app": "web"}, "ports": [{"port": 80}]});
        services.put(&key, is_there.then(|| json!({ "spec": spec })));
    }

    #[test]
    fn emptied_rules_are_deleted_two_seconds_after_the_last_change() {
        let mut services = services();
        services.tables.replace(&Wanted::default());
        assert!(services.update(Mono(0)).is_none(), "nothing has changed");
        put(&mut services, true);
        let (change, done) = services.update(Mono(0)).unwrap();
        assert!(change.script.contains("add chain") && matches!(done(Ok(())), Done::Changed(Ok(()))));
        put(&mut services, false);
        let (change, done) = services.update(Mono(100)).unwrap();
        assert!(change.script.contains("flush chain") && matches!(done(Ok(())), Done::Changed(Ok(()))));
        assert_eq!((services.not_before, services.sweep_at), (Some(Mono(150)), Some(Mono(2_100))));
        assert!(services.update(Mono(2_099)).is_none() && services.sweep_at == Some(Mono(2_100)));
        let (change, done) = services.update(Mono(2_100)).unwrap();
        assert!(change.script.starts_with("delete chain ip services-b0 "), "{}", change.script);
        assert!(matches!(done(Err("busy".into())), Done::Swept(Err(why)) if why == "busy"));
        assert_eq!(services.sweep_at, Some(Mono(2_150)), "there may be more");
        assert!(services.update(Mono(2_150)).is_none() && services.sweep_at.is_none());
    }

    #[test]
    fn step_and_wake_agree_on_the_time() {
        let mut services = services();
        services.phase = Phase::Known;
        assert!(!services.is_due(Mono(u64::MAX)), "nothing is to be done");
        put(&mut services, true);
        assert!(services.is_due(Mono(0)), "the first change begins at once");
        services.not_before = Some(Mono(60_000));
        assert!(!services.is_due(Mono(59_999)) && services.is_due(Mono(60_000)));
        services.dirty.clear();
        services.sweep_at = Some(Mono(2_000));
        assert_eq!(services.wake(), Some(Mono(60_000)), "not sooner than a step may begin");
        assert!(!services.is_due(Mono(2_000)));
    }
}
