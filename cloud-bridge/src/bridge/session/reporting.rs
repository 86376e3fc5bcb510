//! Writes the reports of a node, and tells what of the cloud the node refuses.

use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::{DeviceRefusal, ObjectKey, OrderPhase, OrderStatus, Report};
use futures::FutureExt;
use jiff::Timestamp;
use sampan_log::printable::printable;

use super::Connection;
use super::pending::Done;
use crate::bridge::counters;
use crate::bridge::pauses::Pauses;
use crate::bridge::reports::refusal_event;
use crate::bridge::told::kinds::Kind;
use crate::bridge::work_queue::{Answer, Attempt, Lane, Outcome, describe};

/// Pause before a node's object is written again after a failure, doubled up to the second value. An unchanged node
/// reports it only twice an hour.
const REWRITE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

impl Connection {
    /// Starts every attempt that may run.
    pub(super) fn begin(&mut self) {
        while let Some(attempt) = self.work_queue.begin() {
            let slots = if let Lane::Events(..) = attempt.lane { &self.event_slots } else { &self.slots };
            let (reports, slots, gate) =
                (Arc::clone(&self.reports), Arc::clone(slots), Arc::clone(&self.shared.writes));
            let (jobs, node) = (Arc::clone(&self.shared.jobs), self.node.name.clone());
            let attempt = async move {
                if !attempt.pause.is_zero() {
                    tokio::time::sleep(attempt.pause).await;
                    // Time has passed: an old report must not replace one of a newer connection.
                    match reports.is_newest().await {
                        Ok(true) => {}
                        Ok(false) => return Done::Fenced,
                        Err(error) => return Done::Report(attempt, Outcome::Retry(error.to_string())),
                    }
                }
                // It waits to be written together with many others, so it takes no slot.
                if let Report::Order { job, status } = &attempt.report {
                    let outcome = jobs.report(&node, job, status).await;
                    return Done::Report(attempt, outcome);
                }
                // The semaphores are never closed: they live as long as this future.
                let _slot = slots.acquire_owned().await;
                let _turn = gate.acquire_owned().await;
                let outcome = reports.write(&attempt.report).await;
                Done::Report(attempt, outcome)
            };
            self.work.push(attempt.boxed());
        }
    }

    /// An attempt to write a report has ended.
    pub(super) fn attempted(&mut self, attempt: Attempt, outcome: Outcome) {
        let what = format!("node {}: {}", self.node.name, describe(&attempt.report));
        let counter = match &outcome {
            Outcome::Written => &counters::REPORTS_WRITTEN,
            Outcome::Refused(_) => &counters::REPORTS_REFUSED,
            Outcome::Retry(_) | Outcome::Conflict(_) | Outcome::Later(_) => &counters::REPORTS_AGAIN,
        };
        counter.one();
        match &outcome {
            Outcome::Written => log::debug!("{what}: written"),
            Outcome::Refused(reason) => log::warn!("{what}: refused: {}", printable(reason)),
            Outcome::Conflict(reason) => log::debug!("{what}: tried again: {}", printable(reason)),
            Outcome::Retry(reason) | Outcome::Later(reason) => {
                log::warn!("{what}: will be tried again: {}", printable(reason));
            }
        }
        let registered = matches!((&outcome, &attempt.report), (Outcome::Written, Report::Node { .. }));
        // A new node's Lease waited for this, and the next frame may be ten seconds away.
        if registered && self.renewal.first_due(self.now()) {
            self.renew(Duration::ZERO);
        }
        for answer in self.work_queue.finish(attempt, outcome) {
            match answer {
                Answer::Reported(id) => self.session.reported(id),
                Answer::Refused(id, reason) => self.session.refuse_report(id, reason),
            }
        }
        self.begin();
    }

    /// Writes the node's object again until the API has it or refuses it.
    pub(super) fn rewrite(&self) {
        let (reports, name) = (Arc::clone(&self.reports), self.node.name.clone());
        let gate = Arc::clone(&self.shared.writes);
        let rewrite = async move {
            let mut pauses = Pauses::new(REWRITE);
            let mut newest: kube::Result<bool> = Ok(true);
            loop {
                let outcome = match newest {
                    Ok(true) => {
                        // The semaphore is never closed: it lives as long as the bridge.
                        let _turn = gate.acquire().await;
                        reports.rewrite_node().await
                    }
                    Ok(false) => return Done::Fenced,
                    Err(error) => Outcome::Retry(error.to_string()),
                };
                let Some(reason) = outcome.problem() else { return Done::Rewritten };
                log::warn!("node {name}: its object was not written again: {}", printable(reason));
                if let Outcome::Refused(_) = outcome {
                    return Done::Rewritten;
                }
                pauses.wait().await;
                // Time has passed: an old report must not replace one of a newer connection.
                newest = reports.is_newest().await;
            }
        };
        self.work.push(rewrite.boxed());
    }

    /// Only logged: in the API the DeviceStatus shows it.
    pub(super) fn tell_refusal(&mut self, DeviceRefusal { uid, reason }: &DeviceRefusal) {
        let words = printable(format_args!("of Device {uid}: {reason}")).to_string();
        match self.rejections.tell(uid, reason, self.now()) {
            Some(quiet) => log::warn!("node {}: refused: {words} (and {quiet} more since the last)", self.node.name),
            None => log::debug!("node {}: refused: {words}", self.node.name),
        }
    }

    pub(super) fn nacked(&mut self, key: &ObjectKey, uid: &str, reason: &str) {
        let what = printable(format_args!("{} {}/{}", key.kind, key.namespace, key.name)).to_string();
        // A node may report only about objects that it received.
        if !self.node.state().holds(key) {
            log::debug!("node {}: cannot apply {what}, which is not its own", self.node.name);
            return;
        }
        let words = printable(reason);
        let Some(quiet) = self.rejections.tell(uid, reason, self.now()) else {
            log::debug!("node {}: cannot apply {what}: {words}", self.node.name);
            return;
        };
        let more = if quiet > 0 { format!(" (and {quiet} more refusals since the last)") } else { String::new() };
        log::warn!("node {}: cannot apply {what}: {words}{more}", self.node.name);
        if Kind::Order.is(key) {
            return self.refused_order(uid, reason);
        }
        let event = Report::Event { event: refusal_event(&self.node.name, key, uid, reason, Timestamp::now()) };
        let reports = Arc::clone(&self.reports);
        let write = async move {
            if let Some(reason) = reports.write(&event).await.problem() {
                log::warn!("an event was lost: {}", printable(reason));
            }
            Done::Quiet
        };
        self.work.push(write.boxed());
    }

    /// An order that the node refuses has failed there.
    fn refused_order(&mut self, job: &str, reason: &str) {
        let status = OrderStatus { phase: OrderPhase::Failure, reason: reason.to_owned(), ..OrderStatus::default() };
        let status = serde_json::to_value(status).unwrap_or_default();
        let (jobs, node, job) = (Arc::clone(&self.shared.jobs), self.node.name.clone(), job.to_owned());
        let tell = async move {
            jobs.report(&node, &job, &status).await;
            Done::Quiet
        };
        self.work.push(tell.boxed());
    }
}
