//! The controllers of workloads: one task, one set of watches. A change wakes the keys that it concerns; for each key in
//! turn its controller, a pure function of all that is known, says what is to be done next, until nothing is. All that
//! lasts is in the API's objects, so that it may end and begin again between any two writes.
//!
//! To add a controller: its kinds in the table of [`world`], its folder with a `plan`, its line in [`engine`] and in [`wake`].

mod amount;
mod claim;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod engine;
mod history;
mod job;
mod node;
mod now;
mod perform;
mod plan;
mod pod;
mod queue;
mod replica_set;
mod selector;
#[cfg(test)]
mod simulation;
mod stateful_set;
mod store;
mod template;
mod volume_claim;
mod wake;
mod world;

use std::pin::pin;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use tokio::time::Instant;

use crate::events::Recorder;
use engine::{End, Engine, Now};
use perform::perform;
use plan::{Failure, Plan};
use world::Task;

/// So many steps for one key until others have their turn.
const STEPS: usize = 16;

/// Runs until dropped.
pub async fn run(client: Client) {
    let mut watched = pin!(world::watches(&client));
    let events = Recorder::new(client.clone());
    let mut controllers = Controllers { client, start: Instant::now(), engine: Engine::default(), events };
    loop {
        let due = controllers.engine.deadline().and_then(|due| controllers.start.checked_add(due));
        tokio::select! {
            // What is known first: a plan on old news is work for nothing.
            biased;
            Some(event) = watched.next() => match event {
                Ok(event) => controllers.engine.watched(event, controllers.now()),
                Err((kind, error)) => log::warn!("controllers: watching {}s: {error}", kind.name()),
            },
            () = sleep_until(due) => controllers.turn().await,
            () = controllers.events.write_next(), if !controllers.events.is_empty() => {}
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

struct Controllers {
    client: Client,
    start: Instant,
    engine: Engine,
    events: Recorder,
}

impl Controllers {
    fn now(&self) -> Now {
        let clock = Timestamp::now();
        Now { passed: self.start.elapsed(), clock: Timestamp::from_second(clock.as_second()).unwrap_or(clock) }
    }

    /// Looks at the next key, if one is due.
    async fn turn(&mut self) {
        let Some(task) = self.engine.next(self.now()) else { return };
        let end = self.sync(&task).await;
        self.engine.end(task, end, self.now());
    }

    async fn sync(&mut self, task: &Task) -> End {
        for _ in 0..STEPS {
            let Some(plan) = self.engine.plan(task, None, self.now()) else { return End::Failed };
            let done = self.perform(&plan).await;
            if plan.actions.is_empty() {
                return End::Done;
            }
            let Err(failure) = done else { continue };
            if failure.namespace_ends {
                return End::Done;
            }
            log::info!("{} {}/{}: {}", task.0.name(), task.1.namespace, task.1.name, failure.message);
            if !failure.is_stale()
                && !failure.is_of_the_past()
                && let Some(plan) = self.engine.plan(task, Some(&failure), self.now())
            {
                // Whatever comes of it, the key is looked at again.
                let _ = self.perform(&plan).await;
            }
            return if failure.code == 0 { End::Unanswered } else { End::Failed };
        }
        End::More
    }

    async fn perform(&mut self, plan: &Plan) -> Result<(), Failure> {
        let (done, result) = perform(&self.client, &mut self.events, plan).await;
        for (action, outcome) in done {
            self.engine.written(action, outcome, self.now());
        }
        result
    }
}
