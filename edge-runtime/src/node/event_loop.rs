//! The loop: news in, records committed, steps executed.

use std::time::Instant;

use super::probes::Probes;
use super::sources::{News, Sources};
use super::{End, Node, metrics, resize};
use crate::pod::clock::Mono;
use crate::store::StoreError;

/// Most events taken before pods get their turns: a flood of news must not starve decisions.
const BATCH: usize = 256;

impl Node {
    /// Runs until asked to stop. Containers go on without it.
    ///
    /// # Errors
    /// The store fails permanently: ending, and starting again from the durable state, is better than continuing
    /// without storing anything.
    pub(super) async fn run(&mut self, sources: &Sources) -> Result<End, StoreError> {
        // Starting up is work.
        self.idle.disturb(self.cx.mono());
        let mut turn = Instant::now();
        loop {
            let now = self.cx.clock.now().mono;
            self.prepare_waited(now);
            let shutdown = match self.shutdown_step(now) {
                Ok(()) => return self.leave().await.map(|()| End::Stopped),
                Err(again) => again,
            };
            if self.idle.rested(now) {
                self.rest();
            }
            if self.idle.is_rest() {
                edge_protocol::compress::release();
            }
            let ends = self.exit_sync.sync_due(&mut self.cx, &self.containers.monitor)?;
            let acknowledged = self.cx.delete_acknowledged_due(now)?;
            self.policies_step()?;
            self.services.step(&mut self.cx, &self.launch)?;
            self.dns.step(&self.cx, &self.launch, &mut self.services);
            self.devices.step(&self.cx);
            self.local_api.step();
            self.plugins_step()?;
            self.volumes_step();
            self.orders.step(&mut self.cx)?;
            // After all steps that report.
            let reports = self.send_reports(now);
            let wake = [
                self.cx.pods.wake_due(now),
                ends,
                reports,
                acknowledged,
                Some(self.cx.look_at.unwrap_or(now)),
                self.tokens.wake(&self.cx),
                shutdown,
                self.idle.due(),
                self.services.wake(),
                self.policies.wake(),
                self.dns.wake(&self.services),
                self.orders.wake(),
                self.plugins.volumes.wake(now),
                self.notify.alive(now),
            ];
            let wake = wake.into_iter().flatten().min();
            metrics::turns::turned(turn.elapsed());
            let news = if self.cx.resumed && self.cx.pods.any_dirty() {
                // Programs that the steps run start now, and not after the next pod's turn.
                smol::future::yield_now().await;
                sources.try_next()
            } else {
                sources.next(wake).await
            };
            turn = Instant::now();
            let mut next = news;
            for _ in 0..BATCH {
                match next.take() {
                    Some(News::Stop) if self.stop_asked()? => {}
                    Some(News::Stop) => return self.cx.delete_acknowledged().map(|()| End::Stopped),
                    Some(news) => self.take(news)?,
                    None => break,
                }
                next = sources.try_next();
            }
            if let Some(news) = next {
                self.take(news)?;
            }
            self.keep_tokens()?;
            if self.tokens.renew(&self.cx) {
                // The bridge answers while the pod's sandbox is made.
                smol::future::yield_now().await;
            }
            self.housekeeping()?;
            if self.neighbours.has_changed() {
                self.follow_neighbours()?;
            }
            if self.again {
                return self.cx.delete_acknowledged().map(|()| End::Again);
            }
            self.sweep_trash();
            if self.cx.resumed
                && let Some(uid) = self.cx.pods.next_dirty()
            {
                self.take_turn(&uid, now)?;
                // Lets the monitor's and the link's tasks move what this turn gave them.
                smol::future::yield_now().await;
            }
        }
    }

    /// Gives reports that may leave to the link. Returns when to call again, if some wait for a time.
    pub(super) fn send_reports(&mut self, now: Mono) -> Option<Mono> {
        self.cx.outgoing.flush(|row| self.exit_sync.lets_leave(row), self.cx.link.as_ref(), now)
    }

    /// Nothing was to be done for a while: what was needed for it goes.
    fn rest(&self) {
        self.cx.store.checkpoint_if_long();
        self.cx.store.release_cache();
        self.launch.sandboxes.looks.rest();
        sampan_memory::trim();
        if self.cx.pods.is_empty() {
            let monitor = self.containers.monitor.clone();
            // One that knows of a container stays; else the next start brings another.
            self.cx.tasks.spawn(async move { drop(monitor.shutdown_if_idle().await) }).detach();
        }
    }

    fn take(&mut self, news: News) -> Result<(), StoreError> {
        match news {
            News::Link(event) => self.take_link(event)?,
            News::Monitor(event) => self.take_monitor(event)?,
            News::StartRefused { id, failure, message } => self.start_failed(&id, failure, &message),
            News::Connection { uid, answer } => self.connection_answered(&uid, answer),
            News::Deleted { id, result } => self.deleted(&id, result),
            News::Cleared { uid, result } => self.cleared(&uid, result),
            News::RulesReplaced(result) => self.rules_replaced(result),
            News::RulesChanged => self.look_at_rules()?,
            News::OthersPassed(blocking) => self.others_passed(blocking)?,
            News::PoliciesApplied(done) => self.policies_applied(done)?,
            News::ServicesApplied(done) => self.services.applied(&mut self.cx, done)?,
            News::FlowsForgotten => self.services.flows_forgotten(self.cx.mono()),
            News::PortsForgotten { uid, result } => self.rules_known(uid, result),
            News::LetIn { pods, result } => self.let_in(pods, &result),
            News::NamespaceAsked(namespace) => self.dns.asked(&mut self.cx, &mut self.services, &namespace),
            News::Devices(heard) => self.devices.heard(&mut self.cx, heard)?,
            News::LocalApi(heard) => self.take_local_api(heard)?,
            News::Plugins(heard) => self.take_plugins(heard)?,
            News::Order(heard) => self.orders.heard(&mut self.cx, heard)?,
            News::Resized { uid, resized, done } => resize::done(&mut self.cx, &uid, resized, done),
            News::Probe(event) => Probes::take(&mut self.cx, event)?,
            News::HookDone(which, done) => self.hooks.done(&mut self.cx, which, done)?,
            News::Pulling { job, progress } => self.pulls.tell(&mut self.cx, job, progress),
            News::Pulled { job, result } => self.pulls.done(&mut self.cx, job, result),
            News::Walked(number, answers) => self.walked(number, &answers),
            News::Collected(result) => self.image_gc.done(&mut self.cx, result)?,
            News::Asked(asked) => self.asked(asked),
            News::ManifestsChanged => self.scan_manifests()?,
            News::Woken | News::Stop => {}
        }
        Ok(())
    }
}
