//! When the kernel is told of changes: one run of `nft` at a time, what comes meanwhile in the next.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outcome::Done;
use super::{Phase, Services};
use crate::launch::Launch;
use crate::net::services::item::Item;
use crate::net::services::rules::of_service;
use crate::net::services::table::{Change, ServiceName, Wanted};
use crate::net::services::{EndpointView, LocalPod, apply, offenders};
use crate::node::context::Context;
use crate::node::sources::News;
use crate::pod::clock::Mono;

/// Between two changes of the kernel's rules: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(50);
/// Rules that were emptied are deleted then: kernels before 6.2 hold them for a moment.
const SWEEP_AFTER: Duration = Duration::from_secs(2);

impl Services {
    /// Tells the kernel what has changed, if it is time. Called with each round of the loop.
    pub(in crate::node) fn step(&mut self, cx: &Context, launch: &Launch) {
        if self.running || !cx.resumed {
            return;
        }
        if launch.sandboxes.teardown.network.settings().subnets.is_empty() {
            // The cluster has not given any yet, and there is no pod to serve.
            return;
        }
        let now = cx.mono();
        self.dirty.extend(self.left_out.due(now));
        if self.is_idle() {
            return;
        }
        if self.not_before.is_some_and(|at| now < at) {
            return;
        }
        if self.phase != Phase::Known || self.pods.is_empty() {
            self.look_at_all_pods(cx, launch);
        } else {
            // A view may have come or gone.
            self.look_at_addresses(cx, launch);
        }
        let network = &launch.sandboxes.teardown.network;
        let (nft, bridge) = (network.nft().to_owned(), network.settings().bridge.clone());
        self.keep_routes(launch);
        if self.views.is_empty() || self.elsewhere.is_some() {
            let clean = self.phase == Phase::Known && !self.tables.is_there();
            self.forget();
            self.phase = Phase::Known;
            if !clean {
                self.run(cx, async move {
                    Done::Changed(apply::remove(nft, bridge).await.map_err(|error| error.to_string()))
                });
            }
            return;
        }
        match self.phase {
            Phase::Unknown => {
                let wanted = self.wanted();
                self.tables.adopt(&wanted);
                let marks = self.tables.marks();
                self.run(cx, async move { Done::Looked(apply::has(nft, bridge, marks).await) });
            }
            Phase::Known if self.tables.is_there() => {
                if let Some(change) = self.change() {
                    self.sweep_at = Some(now.after(SWEEP_AFTER));
                    self.not_before = Some(now.after(PAUSE));
                    self.run(cx, async move {
                        Done::Changed(apply::run(nft, change).await.map_err(|error| error.to_string()))
                    });
                } else if self.sweep_at.is_some_and(|at| at <= now) {
                    self.sweep_at = None;
                    if let Some(change) = self.tables.sweep() {
                        self.run(cx, async move {
                            Done::Swept(apply::run(nft, change).await.map_err(|error| error.to_string()))
                        });
                    }
                }
            }
            // Neither a change nor all of it was taken.
            Phase::Whole | Phase::Known if self.failures > 1 => {
                let (wanted, tables) = (self.wanted(), self.tables.like());
                self.run(cx, async move { Done::Isolated(offenders::find(&nft, &tables, wanted).await) });
            }
            Phase::Whole | Phase::Known => {
                let wanted = self.wanted();
                let change = self.tables.replace(&wanted);
                self.phase = Phase::Known;
                self.not_before = Some(now.after(PAUSE));
                self.run(
                    cx,
                    async move { Done::Changed(apply::run(nft, change).await.map_err(|error| error.to_string())) },
                );
            }
        }
    }

    /// When [`Services::step`] has something to do although nothing happens.
    pub(in crate::node) fn wake(&self) -> Option<Mono> {
        if self.running || self.is_idle() {
            return self.left_out.wake().filter(|_| !self.running);
        }
        let changed = !self.dirty.is_empty() || self.pods_changed || self.phase != Phase::Known;
        if changed { self.not_before } else { self.sweep_at }
    }

    /// Whether a run of `nft` is under way.
    pub(in crate::node) fn is_changing(&self) -> bool {
        self.running
    }

    /// Chains that tell that the kernel holds what it is to hold, `true` for IPv6; none if nothing is to be there.
    pub(in crate::node) fn marks(&self) -> Vec<(bool, String)> {
        let there = self.phase == Phase::Known && self.tables.is_there();
        if there {
            self.tables.marks().into_iter().map(|(family, mark)| (family == "ip6", mark)).collect()
        } else {
            Vec::new()
        }
    }

    /// The tables are gone: somebody has deleted them.
    pub(in crate::node) fn lost(&mut self) {
        self.tables.forget();
        self.phase = Phase::Whole;
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
        self.pods.clear();
        self.onlink.clear();
        self.pods_changed = false;
        self.sweep_at = None;
    }

    fn wanted(&mut self) -> Wanted {
        self.dirty.clear();
        self.pods_changed = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let services = self.views.keys().map(|name| (name.clone(), self.items(name, &pods))).collect();
        Wanted { services, pods: self.onlink.clone() }
    }

    fn change(&mut self) -> Option<Change> {
        let mut names = std::mem::take(&mut self.dirty);
        names.extend(self.tables.take_heirs());
        self.pods_changed = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let services = names.into_iter().map(|name| {
            let items = self.items(&name, &pods);
            (name, items)
        });
        let services = services.collect();
        let change = self.tables.change(&services, &self.onlink);
        self.dirty = self.tables.take_heirs();
        change
    }

    fn items(&self, name: &ServiceName, pods: &[LocalPod]) -> BTreeMap<Item, String> {
        let Some(view) = self.views.get(name).filter(|_| !self.left_out.has(name)) else { return BTreeMap::new() };
        let none = EndpointView::default();
        let others = self.others.get(name).unwrap_or(&none);
        let own;
        let view = match view.outside().next() {
            None => view,
            Some(_) => {
                own = self.without_what_is_others(view);
                &own
            }
        };
        of_service((&name.0, &name.1), view, pods, others, &self.here, &self.tables.families())
    }
}
