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
mod tests {
    use edge_protocol::message::{Object, ObjectDigest};

    use super::*;

    fn key(job: &str) -> ObjectKey {
        ObjectKey { kind: ORDER.to_owned(), namespace: String::new(), name: job.to_owned() }
    }

    /// Orders of these jobs, as the bridge sends them.
    fn sent(cx: &mut Context, jobs: &[&str]) -> Orders {
        let mut orders = Orders::default();
        for job in jobs {
            let digest = ObjectDigest { key: key(job), uid: (*job).to_owned(), digest: "d".to_owned() };
            let object = Object { digest, body: json!({"timeoutSeconds": 5}) };
            cx.store.write(|writer| writer.put_object(&object)).unwrap();
            assert!(orders.take(&key(job)));
        }
        orders
    }

    /// Statuses that wait for the bridge, by job.
    fn reported(cx: &Context) -> Vec<(String, Value)> {
        let rows = cx.store.outbox().unwrap().into_iter();
        let of = |report: Report| if let Report::Order { job, status } = report { Some((job, status)) } else { None };
        rows.filter_map(|row| of(row.report)).collect()
    }

    #[test]
    fn helper_may_be_silent_for_longer_than_its_work_takes() {
        let seconds = |order: Value| silence(&order).as_secs();
        assert_eq!((seconds(json!({})), seconds(json!({"timeoutSeconds": 30}))), (600, 630));
        assert_eq!(silence(&json!({ "timeoutSeconds": u64::MAX })).as_secs(), u64::MAX);
    }

    #[test]
    fn first_order_is_at_work_and_the_others_are_told_to_wait() {
        let (_folder, mut cx) = Context::in_a_folder();
        let mut orders = sent(&mut cx, &["a", "b"]);
        for _ in 0..2 {
            orders.step(&mut cx).unwrap();
            assert!(orders.work.is_some() && orders.number == 1, "one helper at a time");
        }
        let waits = json!({"actionFlow": [{"action": WAITING_TURN}]});
        assert_eq!(reported(&cx), [("b".to_owned(), waits)]);
    }

    #[test]
    fn order_without_a_body_makes_room_for_the_next() {
        let (_folder, mut cx) = Context::in_a_folder();
        let mut orders = sent(&mut cx, &["gone", "b"]);
        cx.store.write(|writer| writer.delete_object(&key("gone"), "gone")).unwrap();
        orders.step(&mut cx).unwrap();
        assert_eq!((orders.queue.first(), orders.work.is_some()), (Some("b"), true));
    }

    #[test]
    fn order_that_changes_or_goes_ends_the_work_on_it_alone() {
        let (_folder, mut cx) = Context::in_a_folder();
        let mut orders = sent(&mut cx, &["a", "b", "c"]);
        orders.step(&mut cx).unwrap();
        assert!(orders.take(&key("b")) && orders.gone(&key("c")));
        assert!(orders.work.is_some(), "they were not at work");
        let other = ObjectKey { kind: "Device".to_owned(), ..key("a") };
        assert!(!orders.take(&other) && !orders.gone(&other) && orders.work.is_some());
        assert!(orders.take(&key("a")) && orders.work.is_none());
        assert_eq!(orders.queue.first(), Some("b"));
        orders.step(&mut cx).unwrap();
        assert!(orders.gone(&key("b")) && orders.work.is_none());
        assert_eq!(orders.queue.first(), Some("a"));
    }

    #[test]
    fn only_the_present_helper_is_heard() {
        let (_folder, mut cx) = Context::in_a_folder();
        let mut orders = sent(&mut cx, &["a"]);
        orders.step(&mut cx).unwrap();
        let end = |number, why: Option<&str>| Heard { number, said: Said::End(why.map(str::to_owned)) };
        orders.heard(&mut cx, end(0, None)).unwrap();
        assert!(orders.work.is_some() && reported(&cx).is_empty());

        let status = json!({"phase": "InProgress"});
        orders.heard(&mut cx, Heard { number: 1, said: Said::Status(status.clone()) }).unwrap();
        assert_eq!(reported(&cx), [("a".to_owned(), status)]);
        orders.heard(&mut cx, end(1, Some("killed"))).unwrap();
        assert_eq!(reported(&cx), [("a".to_owned(), json!({"phase": "Pending", "reason": "killed"}))]);
        assert!(orders.work.is_none() && orders.wake().is_some(), "it goes on later");
    }

    #[test]
    fn ended_order_has_no_further_turn() {
        let (_folder, mut cx) = Context::in_a_folder();
        let mut orders = sent(&mut cx, &["a"]);
        orders.step(&mut cx).unwrap();
        let said = Said::Status(json!({"phase": "Successful"}));
        orders.heard(&mut cx, Heard { number: 1, said }).unwrap();
        orders.heard(&mut cx, Heard { number: 1, said: Said::End(None) }).unwrap();
        assert_eq!((orders.work.is_some(), orders.queue.first(), orders.wake()), (false, None, None));
    }
}
