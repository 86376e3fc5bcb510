//! The controllers of workloads: one task, one set of watches. A change enqueues the keys that it concerns. For each
//! key in turn its controller, a pure function of the known objects, returns the next step, until nothing is left to
//! do. All lasting state is in the API's objects, so the program may stop and start again between any two writes.
//!
//! Pod templates are not kept: a plan that uses one first reads the object again ([`held`]).
//!
//! To add a controller: its kinds in the table of [`world`], its folder with a `plan`, its line in [`engine`] and in
//! [`wake`].

mod amount;
mod annotations;
mod answer;
mod back_off;
mod batch;
mod body;
mod claim;
mod cron_job;
mod daemon_set;
mod deployment;
mod digest;
mod disruption;
mod endpoints;
mod engine;
mod ephemeral;
mod held;
mod history;
mod index;
mod job;
mod limit;
mod node;
mod now;
mod options;
mod perform;
mod plan;
pub(crate) mod pod;
mod pod_gc;
mod protection;
mod provision;
mod queue;
mod replica_set;
mod selector;
mod service;
#[cfg(test)]
mod simulation;
mod stateful_set;
mod store;
mod template;
mod templated;
mod toleration;
mod turn;
mod volume;
mod volume_claim;
mod wake;
mod world;

use std::pin::{Pin, pin};
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _};
use jiff::Timestamp;
use kube::Client;
use tokio::task::coop;
use tokio::time::Instant;

use crate::events::Recorder;
use crate::pods::Pods;
use apimachinery::pace::{Pace, sleep_until};
use engine::{End, Engine, Now};
pub use options::Options;
use perform::perform;
use plan::{Failure, Plan};
use turn::Turn;
use world::{Kind, Task, Watched};

/// An event of a watch, or its error.
type News = Result<Watched, (Kind, String)>;

/// Maximum number of watch events that are handled at once: a client that writes endlessly delays no key.
const EVENTS: usize = 256;

/// Runs until dropped.
pub async fn run(client: Client, pods: Pods, options: Options) {
    let mut watched = pin!(world::watches(&client, &pods));
    let events = Recorder::new(client.clone());
    let mut controllers = Controllers {
        client,
        start: Instant::now(),
        engine: Engine::new(&options),
        events,
        thought: Duration::ZERO,
        pace: Pace::default(),
    };
    loop {
        let due = controllers.engine.deadline().and_then(|due| controllers.start.checked_add(due));
        tokio::select! {
            biased;
            () = sleep_until(due) => controllers.turn(watched.as_mut()).await,
            Some(event) = watched.next() => controllers.watched(event),
            () = controllers.events.write_next(), if !controllers.events.is_empty() => {}
        }
        // Hundreds of keys may be due at once, of which none waits for anything.
        controllers.pace.look().await;
    }
}

struct Controllers {
    client: Client,
    start: Instant,
    engine: Engine,
    events: Recorder,
    /// How long the controller of the key at hand has thought about it.
    thought: Duration,
    pace: Pace,
}

impl Controllers {
    fn now(&self) -> Now {
        let clock = Timestamp::now();
        Now { passed: self.start.elapsed(), clock: Timestamp::from_second(clock.as_second()).unwrap_or(clock) }
    }

    fn watched(&mut self, event: News) {
        match event {
            Ok(event) => self.engine.watched(event, self.now()),
            Err((kind, error)) => log::warn!("controllers: watching {}s: {error}", kind.name()),
        }
    }

    /// Handles all events that have arrived: a plan on old data is useless.
    fn hear(&mut self, mut watched: Pin<&mut impl Stream<Item = News>>) {
        let pace = Pace::default();
        for _ in 0..EVENTS {
            if pace.is_over() {
                return;
            }
            // Reads available events, even if earlier writes have used up the step.
            let Some(Some(event)) = coop::unconstrained(watched.next()).now_or_never() else { return };
            self.watched(event);
        }
    }

    /// Evaluates the next key, if one is due.
    async fn turn(&mut self, mut watched: Pin<&mut impl Stream<Item = News>>) {
        self.hear(watched.as_mut());
        let Some(task) = self.engine.next(self.now()) else { return };
        self.thought = Duration::ZERO;
        let end = self.sync(&task, watched).await;
        self.engine.end(task, end, self.thought, self.now());
    }

    async fn sync(&mut self, task: &Task, mut watched: Pin<&mut impl Stream<Item = News>>) -> End {
        let mut turn = Turn::default();
        for owner in self.engine.unread(task, self.now()) {
            let scale = perform::scale(&self.client, &task.1.namespace, &owner).await;
            self.engine.read(owner, scale, self.now());
        }
        loop {
            // A list that began meanwhile would lack the writes.
            if !self.engine.is_complete() {
                return End::More;
            }
            // A key with thousands of pods needs its own time slice.
            self.pace.look().await;
            let begun = Instant::now();
            let plan = self.engine.plan(task, None, self.now());
            self.thought += begun.elapsed();
            let Some(plan) = plan else { return End::Failed };
            let plan = turn.cut(plan);
            let (changed, done) = self.perform(&plan).await;
            self.engine.wrote(task, &plan, self.now());
            if let Err(failure) = done {
                return self.failed(task, &failure).await;
            }
            if let Some(end) = turn.end(&plan, changed) {
                if end == End::Idle {
                    log::info!("{} {}/{}: a write changed nothing", task.0.name(), task.1.namespace, task.1.name);
                }
                return end;
            }
            self.hear(watched.as_mut());
        }
    }

    async fn failed(&mut self, task: &Task, failure: &Failure) -> End {
        if failure.namespace_ends {
            return self.wind_up(task, failure).await;
        }
        log::info!("{} {}/{}: {}", task.0.name(), task.1.namespace, task.1.name, failure.message);
        if !failure.is_stale()
            && !failure.is_of_the_past()
            && let Some(plan) = self.engine.plan(task, Some(failure), self.now())
        {
            // The key is evaluated again, whatever the result.
            let _ = self.perform(&plan).await;
        }
        if failure.code == 0 { End::Unanswered } else { End::Failed }
    }

    /// Nothing is created in a namespace that is being deleted. Ended pods are still counted and released: with the
    /// finalizer of their Job they would block the namespace forever.
    async fn wind_up(&mut self, task: &Task, failure: &Failure) -> End {
        let Some(plan) = self.engine.plan(task, Some(failure), self.now()) else { return End::Failed };
        match self.perform(&plan).await {
            (_, Err(failure)) if !failure.is_of_the_past() => End::Failed,
            (true, _) => End::More,
            _ => End::Done,
        }
    }

    /// Does a plan. Whether that changed anything, and what went wrong.
    async fn perform(&mut self, plan: &Plan) -> (bool, Result<(), Failure>) {
        let (done, result) = perform(&self.client, &mut self.events, plan).await;
        let (mut changed, mut pace) = (false, Pace::default());
        for (action, outcome) in done {
            changed |= self.engine.written(action, outcome, self.now());
            pace.look().await;
        }
        (changed, result)
    }
}
