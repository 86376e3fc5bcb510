//! Requests of a connection to the API, and the handling of their results.

use std::sync::Arc;
use std::time::Duration;

use edge_protocol::bridge::BridgeEvent;
use edge_protocol::message::{DeviceRefusal, ORDER, ObjectKey, OrderPhase, OrderStatus, Report, TokenRequest};
use edge_protocol::version::{ORDERS, RefuseReason, Wants};
use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use sampan_log::printable::printable;

use super::Connection;
use super::devices;
use super::large::Large;
use super::pending::Done;
use crate::bridge::informers::command::Wanted;
use crate::bridge::node::{Command, Open};
use crate::bridge::reports::refusal_event;
use crate::bridge::rules::respond::respond;
use crate::bridge::work_queue::{Answer, Lane, Outcome, describe};
use crate::bridge::{counters, lease, tokens};

/// Pause before a node's object is written again after a failure, doubled up to the second value. An unchanged node
/// reports it only twice an hour.
const REWRITE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

impl Connection {
    /// Renews the node's Lease for a frame that arrived `ago`.
    pub(super) fn renew(&mut self, ago: Duration) {
        let heard = self.now().saturating_sub(ago);
        let then = Timestamp::now() - SignedDuration::try_from(ago).unwrap_or_default();
        if self.shared.clients.renew(&self.node.name, &lease::micro_time(then)) {
            return self.renewal.done(self.now(), heard, true);
        }
        let (requests, name) = (self.requests.clone(), self.node.name.clone());
        let gate = Arc::clone(&self.shared.leases);
        let renew = async move {
            // The semaphore is never closed: it lives as long as the bridge.
            let _slot = gate.acquire_owned().await;
            Done::Lease(heard, lease::renew(&requests, &name, then).await)
        };
        self.work.push(renew.boxed());
    }

    pub(super) fn take_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                BridgeEvent::Connected { hello, resumed } => {
                    let how = if resumed { "resumed" } else { "full list" };
                    log::info!(
                        "node {}: connected ({}, protocol {}..{}, {how})",
                        self.node.name,
                        printable(&hello.agent),
                        hello.protocol.min,
                        hello.protocol.max
                    );
                    let wants = Wants::of(&hello);
                    let orders = hello.features.iter().any(|name| name == ORDERS);
                    self.node.set_takes(self.session.session(), wants.devices, orders);
                    if wants.routes {
                        // It is set only once, because a connection has one hello.
                        let _ = self.reports.lan.set(self.peer);
                    }
                    let wants = Wanted { wants, orders, interests: hello.interests };
                    self.shared.connected(&self.node.name, self.session.session(), resumed, wants);
                }
                BridgeEvent::Acked { .. } => {}
                BridgeEvent::Nacked { key, uid, reason } => self.nacked(&key, &uid, &reason),
                BridgeEvent::Report { id, report } => {
                    self.work_queue.push(id, report);
                    self.begin();
                }
                BridgeEvent::Unlisted(objects) => {
                    for object in objects {
                        self.shared.look_up(&self.node.name, self.session.session(), object.key, object.uid);
                    }
                }
                BridgeEvent::TokenRequest { id, request } => self.token(id, request),
                BridgeEvent::Interests(namespaces) => {
                    self.shared.interested(&self.node.name, self.session.session(), namespaces);
                }
                BridgeEvent::Renew(csr) => {
                    let (shared, name, credential) =
                        (Arc::clone(&self.shared), self.node.name.clone(), self.credential.clone());
                    let renew =
                        async move { Done::Renewed(shared.renew_certificate(&name, &credential, &csr.0).await) };
                    self.work.push(renew.boxed());
                }
                BridgeEvent::Devices { batch, devices } => {
                    let (shared, reports) = (Arc::clone(&self.shared), Arc::clone(&self.reports));
                    let write =
                        devices::write(shared, reports, self.node.name.clone(), self.session.session(), devices);
                    let done = move |refused: Option<_>| refused.map_or(Done::Fenced, |all| Done::Devices(batch, all));
                    self.work.push(write.map(done).boxed());
                }
                BridgeEvent::Message { id, left_ms, message } => self.message(id, left_ms, message),
                BridgeEvent::Answer { id, answer } => self.answered(id, answer),
                BridgeEvent::Request { id, request } => {
                    let responded = respond(Arc::clone(&self.shared), self.node.name.clone(), request);
                    self.work.push(responded.map(move |result| Done::Responded(id, result)).boxed());
                }
                BridgeEvent::Stream(event) => self.streams.event(&mut self.session, event),
            }
        }
    }

    /// Starts every attempt that may run.
    fn begin(&mut self) {
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

    pub(super) fn finish(&mut self, done: Done) -> Result<(), String> {
        match done {
            Done::Fenced => return Err(self.supersede()),
            Done::Report(attempt, outcome) => {
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
            Done::Lease(heard, outcome) => {
                let now = self.now();
                self.renewal.done(now, heard, outcome.is_ok());
                match outcome {
                    Ok(()) => {}
                    // The first report, which creates the Node and with it the Lease, is still under way.
                    Err(kube::Error::Api(status)) if status.is_not_found() => {
                        log::debug!("node {}: no lease before its object: {}", self.node.name, status.message);
                    }
                    Err(error) => log::warn!("node {}: its lease was not renewed: {error}", self.node.name),
                }
            }
            Done::Token(id, answer) => self.session.token(id, answer),
            Done::Renewed(answer) => self.session.renewed(answer),
            Done::Devices(batch, refused) => {
                refused.iter().for_each(|refusal| self.tell_refusal(refusal));
                self.session.devices_written(batch, refused);
            }
            Done::Message(rule, ended) => self.delivered(rule, &ended),
            Done::Responded(id, result) => self.responded(id, result),
            Done::Large(turn) => {
                self.large = Large::held(turn, self.now());
                self.session.allow_large();
            }
            Done::Rewritten => {
                if self.rewrite.done() {
                    self.rewrite();
                }
            }
            Done::Quiet => {}
        }
        Ok(())
    }

    /// Writes the node's object again until the API has it or refuses it.
    fn rewrite(&self) {
        let (reports, name) = (Arc::clone(&self.reports), self.node.name.clone());
        let gate = Arc::clone(&self.shared.writes);
        let rewrite = async move {
            let mut pause = REWRITE.0;
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
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(REWRITE.1);
                // Time has passed: an old report must not replace one of a newer connection.
                newest = reports.is_newest().await;
            }
        };
        self.work.push(rewrite.boxed());
    }

    fn supersede(&mut self) -> String {
        self.session.refuse(RefuseReason::Superseded, "a newer connection of this node has taken over").to_string()
    }

    fn token(&mut self, id: u64, request: TokenRequest) {
        let (requests, name, slots) = (self.requests.clone(), self.node.name.clone(), Arc::clone(&self.slots));
        let (namespace, pod) = (request.namespace.clone(), request.pod.clone());
        let sent = self.node.state().body(&ObjectKey { kind: "Pod".to_owned(), namespace, name: pod });
        let ask = async move {
            // The semaphore is never closed: it lives as long as this future.
            let _slot = slots.acquire_owned().await;
            Done::Token(id, tokens::answer(&requests, &name, sent.as_deref(), &request).await)
        };
        self.work.push(ask.boxed());
    }

    /// Only logged: in the API the DeviceStatus shows it.
    fn tell_refusal(&mut self, DeviceRefusal { uid, reason }: &DeviceRefusal) {
        let words = printable(format_args!("of Device {uid}: {reason}")).to_string();
        match self.rejections.tell(uid, reason, self.now()) {
            Some(quiet) => log::warn!("node {}: refused: {words} (and {quiet} more since the last)", self.node.name),
            None => log::debug!("node {}: refused: {words}", self.node.name),
        }
    }

    fn nacked(&mut self, key: &ObjectKey, uid: &str, reason: &str) {
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
        if key.kind == ORDER {
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

    pub(super) fn command(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Superseded => return Err(self.supersede()),
            Command::Disconnect(why) => return Err(self.session.refuse(RefuseReason::Forbidden, why).to_string()),
            Command::Close => return Err("the bridge ends".to_owned()),
            Command::RewriteNode => {
                if self.rewrite.request() {
                    self.rewrite();
                }
            }
            Command::Open(open) => {
                let Open { request, answer } = *open;
                self.streams.open(&mut self.session, request, answer);
            }
            Command::Ask(asked) => self.ask(*asked),
            Command::Send { stream, data } => self.streams.send(&mut self.session, stream, data),
            Command::Consumed { stream, bytes } => self.session.stream_consumed(stream, bytes),
            Command::EndStream { stream } => self.streams.end(&mut self.session, stream),
        }
        Ok(())
    }
}
