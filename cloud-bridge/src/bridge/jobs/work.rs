//! Runs one job to its end: writes the nodes' answers into its status together with the next decisions, at most once a
//! second.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use edge_protocol::message::{OrderPhase, OrderStatus};
use edge_protocol::version::ORDERS;
use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use super::index::Found;
use super::known::{Said, answer};
use super::leader::Leader;
use super::nodes::{is_connected, is_here, resolve};
use super::order::{self, Targets};
use super::plan::{Facts, Terms, begin, plan};
use super::silence::Silence;
use super::status::Status;
use super::view::{Job, JobObject};
use super::write::{Change, Obstacle, pause_after, pause_after_failure};
use super::{events, said, secret};
use crate::bridge::requests::{Patch, Requests, code};
use crate::bridge::shared::Shared;
use crate::bridge::work_queue::Outcome;

/// Interval of updating the reasons of waiting nodes, if nothing else is written.
const WORDS: Duration = Duration::from_secs(30);
/// Interval of a check for deadlines, which no event announces.
const LOOK: Duration = Duration::from_secs(5);
/// Time to wait for an API that does not answer, before nodes that connect get their list without the order.
const PATIENCE: Duration = Duration::from_secs(20);

/// Executes one job until it has ended or is deleted.
pub(super) async fn one(shared: Weak<Shared>, leader: Option<Arc<Leader>>, uid: Box<str>) {
    let Some(mut stirred) = shared.upgrade().map(|shared| shared.jobs.stirred()) else { return };
    let mut work = Work {
        uid,
        leader,
        begun: Instant::now(),
        silence: Silence::default(),
        secret: secret::Kept::default(),
        worded: None,
        failures: 0,
    };
    loop {
        stirred.mark_unchanged();
        let Some(present) = shared.upgrade() else { return };
        let pause = work.step(&present).await;
        drop(present);
        let Some(pause) = pause else { return };
        sleep(pause).await;
        let _ = timeout(LOOK, stirred.changed()).await;
    }
}

struct Work {
    uid: Box<str>,
    /// `None` if no other bridge decides.
    leader: Option<Arc<Leader>>,
    begun: Instant,
    silence: Silence,
    secret: secret::Kept,
    /// Time of the last write of reasons alone.
    worded: Option<Instant>,
    failures: u32,
}

impl Work {
    /// One check, and one write if needed. Returns the pause until the next; `None`: the job has ended, or is deleted.
    async fn step(&mut self, shared: &Arc<Shared>) -> Option<Duration> {
        let Found::Live(job) = shared.jobs.find(&self.uid) else {
            // Ended or deleted since the last step. Answers of nodes that came meanwhile are no longer needed.
            answer(shared.jobs.take_said(&self.uid), &Outcome::Written);
            return None;
        };
        let requests = Requests::new(shared.clients.own().clone());
        let leads = self.leader.as_ref().is_none_or(|leader| leader.leads());
        let problem = self.make_order(shared, &requests, &job).await;
        self.refuse_for_old_nodes(shared, &job);
        let mut news = shared.jobs.take_said(&self.uid);
        let mut after = Job::clone(&job);
        take_all(&mut after, &news);
        if shared.sites.borrow().listed {
            match self.decide(shared, &after, problem, leads).await {
                Ok(status) => after.status = status,
                Err(error) => log::warn!("{} {}: its nodes cannot be listed: {error}", job.kind.name(), job.name),
            }
        }
        if !self.is_due(Change::between(&job.status, &after.status), leads) {
            answer(std::mem::take(&mut news), &Outcome::Written);
            // Checking a large job takes time too.
            return Some(Duration::from_millis(100 + after.status.nodes.len() as u64 / 10));
        }
        after.status.fit();
        let turn = shared.writes.acquire().await;
        let written =
            requests.patch(&format!("{}/status", job.path()), Patch::Merge, &after.status.patch(&job.version)).await;
        drop(turn);
        match written {
            Ok(written) => {
                self.failures = 0;
                after.version = written.metadata.resource_version;
                let status = after.status.clone();
                shared.jobs.change(None, |index| index.set(after));
                answer(news, &Outcome::Written);
                // Emitted by the bridge that has written the status.
                events::tell(&requests, &job, &job.status, &status).await;
                Some(pause_after(status.size()))
            }
            Err(error) => {
                shared.jobs.put_back(&self.uid, news);
                self.failed(shared, &requests, &job, &error).await
            }
        }
    }

    /// Handles a refused write: reads the job again if that helps.
    async fn failed(
        &mut self,
        shared: &Shared,
        requests: &Requests,
        job: &Job,
        error: &kube::Error,
    ) -> Option<Duration> {
        let mut pause = pause_after_failure(self.failures);
        self.failures = self.failures.saturating_add(1);
        match Obstacle::of(code(error)) {
            Obstacle::Changed => match requests.get::<JobObject>(&job.path()).await {
                Ok(found) => match Job::of(job.kind, &found).filter(|found| found.uid == job.uid) {
                    Some(found) => {
                        // That client pauses now, so this one can write.
                        (self.failures, pause) = (0, pause_after_failure(0));
                        shared.jobs.change(None, |index| index.set(found));
                    }
                    None => shared.jobs.change(None, |index| index.remove(&job.uid)),
                },
                Err(error) if Obstacle::of(code(&error)) == Obstacle::Gone => {
                    shared.jobs.change(None, |index| index.remove(&job.uid))
                }
                Err(error) => log::warn!("{} {}: {error}", job.kind.name(), job.name),
            },
            Obstacle::Gone => shared.jobs.change(None, |index| index.remove(&job.uid)),
            Obstacle::Other => log::warn!("the status of {} {} was not written: {error}", job.kind.name(), job.name),
        }
        if let Found::Ended | Found::Unknown = shared.jobs.find(&self.uid) {
            answer(shared.jobs.take_said(&self.uid), &Outcome::Written);
            return None;
        }
        Some(pause)
    }

    /// Creates the orders of its nodes once, and again when the job has changed. Returns the errors in it.
    async fn make_order(&mut self, shared: &Shared, requests: &Requests, job: &Job) -> Option<secret::Problem> {
        let secret = self.secret.get(requests, job, shared.settings.is_master).await;
        match secret.and_then(|secret| order::order(job, secret).map_err(secret::Problem::Lasting)) {
            Ok(order) => {
                shared.jobs.change(None, |index| index.tell(&job.uid, order));
                None
            }
            Err(problem) => {
                // New nodes wait until it is known, but with a limit.
                let lasting = matches!(problem, secret::Problem::Lasting(_)) || self.begun.elapsed() > PATIENCE;
                if lasting {
                    shared.jobs.change(None, |index| index.tell_nothing(&job.uid));
                }
                Some(problem)
            }
        }
    }

    /// A node whose program knows no orders will never answer.
    fn refuse_for_old_nodes(&self, shared: &Shared, job: &Job) {
        for entry in job.status.nodes.iter().filter(|entry| entry.is_under_way()) {
            if shared.nodes.get(&entry.node_name).and_then(|node| node.takes_orders()) == Some(false) {
                let reason =
                    format!("this node's program knows no jobs (it does not name {ORDERS}): upgrade it by hand once");
                let status = OrderStatus { phase: OrderPhase::Failure, reason, ..OrderStatus::default() };
                drop(shared.jobs.say(&entry.node_name, &job.uid, status));
            }
        }
    }

    async fn decide(
        &mut self,
        shared: &Arc<Shared>,
        job: &Job,
        problem: Option<secret::Problem>,
        leads: bool,
    ) -> kube::Result<Status> {
        // The bridge that begins a job is the leader.
        if job.status.phase.is_none() && !leads {
            return Ok(job.status.clone());
        }
        let untouched = job.status.nodes.iter().all(|entry| entry.phase == OrderPhase::Pending);
        let mut job = job.clone();
        let blocked = match problem {
            Some(secret::Problem::Lasting(why)) if untouched && leads => return Ok(Status::failed(why)),
            Some(secret::Problem::Lasting(why) | secret::Problem::Passing(why)) => Some(why),
            None => None,
        };
        if job.status.nodes.is_empty() {
            let targets = match Targets::of(&job) {
                Ok(targets) => targets,
                Err(why) => return Ok(Status::failed(why)),
            };
            let names = resolve(shared, &targets).await?;
            job.status = begin(&names);
        }
        let now = self.begun.elapsed();
        self.silence.look(&job.status, |node| is_connected(shared, node), now);
        let facts = |node: &str| Facts {
            exists: shared.node_access.has(node),
            connected: is_connected(shared, node),
            here: is_here(shared, node),
            held: shared.jobs.nodes.is_held(node),
            unchanged: self.silence.of(node, now),
        };
        Ok(plan(&job, facts, Terms { now: Timestamp::now(), leads, blocked: blocked.as_deref() }))
    }

    /// Whether to write this change: reasons alone are written later, and only by the leader.
    fn is_due(&mut self, change: Change, leads: bool) -> bool {
        let due = match change {
            Change::None => false,
            Change::Words => leads && self.worded.is_none_or(|worded| worded.elapsed() >= WORDS),
            Change::Real => true,
        };
        if due {
            self.worded = Some(Instant::now());
        }
        due
    }
}

/// Applies the answers of nodes to the status.
fn take_all(job: &mut Job, news: &HashMap<Box<str>, Said>) {
    let mut nodes = std::mem::take(&mut job.status.nodes);
    for entry in &mut nodes {
        if let Some(news) = news.get(&entry.node_name) {
            said::take(job, entry, news.status.clone());
        }
    }
    job.status.nodes = nodes;
}
