//! Orders of fleet jobs: each goes to the helper that does it, one at a time, and how far it is goes to the bridge. What the work
//! is, and what of it was done, the helper knows.

pub(super) mod heard;
mod queue;

use std::process::Command;
use std::time::Duration;

use async_executor::Task;
use edge_protocol::message::{ORDER, ObjectKey, Report, WAITING_TURN};
use serde_json::{Value, json};

use self::heard::{Heard, Said};
use self::queue::{Next, Queue};
use super::context::Context;
use super::sources::News;
use crate::paths::CONFIRMED;
use crate::pod::clock::Mono;
use crate::store::StoreError;
use crate::store::secrets::is_withheld;
use crate::sys::from_json::from_json;
use crate::sys::program;

/// Maximum length of one line from the helper, in bytes: the images of a job, and why they failed.
const LONGEST: usize = 256 << 10;
/// Beyond what the work itself may take: a helper that says nothing for longer hangs.
const SILENCE: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct Orders {
    /// The first one is at work, if there is a task.
    queue: Queue,
    work: Option<Task<()>>,
    /// What the helper at work has said last.
    next: Next,
    /// Numbers the helpers, so that nothing is taken from one that was ended.
    number: u64,
}

/// How long nothing may be heard of the helper of this order.
fn silence(order: &Value) -> Duration {
    Duration::from_secs(order["timeoutSeconds"].as_u64().unwrap_or(0)).saturating_add(SILENCE)
}

impl Orders {
    /// Those of an earlier daemon go on.
    pub(super) fn start(&mut self, cx: &Context) -> Result<(), StoreError> {
        let held = cx.store.held()?;
        held.iter().filter(|held| held.key.kind == ORDER).for_each(|held| self.queue.add(&held.key.name));
        Ok(())
    }

    /// Whether an object is an order: then it is done, again if it has changed.
    pub(super) fn take(&mut self, key: &ObjectKey) -> bool {
        if key.kind != ORDER {
            return false;
        }
        self.forget(&key.name);
        self.queue.add(&key.name);
        true
    }

    /// Handles a deleted order.
    pub(super) fn gone(&mut self, key: &ObjectKey) -> bool {
        if key.kind == ORDER {
            self.forget(&key.name);
        }
        key.kind == ORDER
    }

    fn forget(&mut self, job: &str) {
        if self.queue.first() == Some(job) {
            self.work = None;
        }
        self.queue.remove(job);
    }

    /// When there is something to do again.
    pub(super) fn wake(&self) -> Option<Mono> {
        self.queue.due()
    }

    /// Has the first one done, and reports that the others wait.
    pub(super) fn step(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        // One that is confirmed at its job comes again instead.
        self.queue.wake(cx.mono(), |job| cx.paths.order(job, CONFIRMED).exists());
        for job in self.queue.newly_waiting() {
            // What is left out is `Pending`, and `False`.
            let status = json!({"actionFlow": [{"action": WAITING_TURN}]});
            cx.report(Report::Order { job, status })?;
        }
        if self.work.is_some() {
            return Ok(());
        }
        let Some(job) = self.queue.first() else { return Ok(()) };
        // One whose body is kept in memory only comes again with the connection.
        let order = cx.store.object(ORDER, "", job)?.filter(|order| !is_withheld(order));
        let Some(order) = order else {
            self.queue.drop_first();
            return self.step(cx);
        };
        let silence = silence(&order);
        self.number += 1;
        self.next = Next::default();
        let (number, news) = (self.number, cx.senders.news.clone());
        let mut command = Command::new(std::env::current_exe().unwrap_or_default().with_file_name("edge-admin"));
        command.arg("order").arg("--root").arg(cx.paths.root());
        self.work = Some(cx.tasks.spawn(async move {
            let tell = |said| News::Order(Heard { number, said });
            let mut lines = Vec::new();
            let input = order.to_string();
            let follow = program::follow(command, input.as_bytes(), LONGEST, silence, |line| {
                let said = from_json(line).map(|status| tell(Said::Status(status)));
                // What finds no room is said again at the end.
                if let Some(said) = said.ok().and_then(|said| news.try_send(said).err()) {
                    lines.push(said.into_inner());
                }
            });
            let end = match follow.await {
                Ok(status) if status.success() => None,
                Ok(status) => Some(format!("edge-admin order: {status}")),
                Err(error) => Some(format!("edge-admin order: {error}")),
            };
            // The loop is gone only when the process ends.
            for said in lines.pop().into_iter().chain([tell(Said::End(end))]) {
                drop(news.send(said).await);
            }
        }));
        Ok(())
    }

    pub(super) fn heard(&mut self, cx: &mut Context, heard: Heard) -> Result<(), StoreError> {
        if heard.number != self.number || self.work.is_none() {
            return Ok(());
        }
        let Some(job) = self.queue.first().map(str::to_owned) else { return Ok(()) };
        match heard.said {
            Said::Status(status) => {
                self.next = Next::of(&status);
                cx.report(Report::Order { job, status })?;
            }
            Said::End(None) => {
                self.work = None;
                self.queue.end_turn(self.next, cx.mono());
            }
            Said::End(Some(why)) => {
                log::error!("job {job}: {why}");
                self.work = None;
                self.queue.end_turn(Next::InAWhile, cx.mono());
                cx.report(Report::Order { job, status: json!({"phase": "Pending", "reason": why}) })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
