//! Requests of a connection to the API, and the handling of their results.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use edge_protocol::bridge::BridgeEvent;
use edge_protocol::message::{ObjectKey, TokenRequest};
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
use crate::bridge::rules::respond::respond;
use crate::bridge::told::kinds::Kind;
use crate::bridge::{lease, tokens};

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
                    self.reports.csi.store(wants.csi, Ordering::Relaxed);
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
                    let responded = respond(Arc::clone(&self.shared.rules), self.node.name.clone(), request);
                    self.work.push(responded.map(move |result| Done::Responded(id, result)).boxed());
                }
                BridgeEvent::ApiOpened { stream, request } => self.pod_request(stream, request),
                BridgeEvent::Stream(event) => self.streams.event(&mut self.session, event),
            }
        }
    }

    pub(super) fn finish(&mut self, done: Done) -> Result<(), String> {
        match done {
            Done::Fenced => return Err(self.supersede()),
            Done::Report(attempt, outcome) => self.attempted(attempt, outcome),
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

    fn supersede(&mut self) -> String {
        self.session.refuse(RefuseReason::Superseded, "a newer connection of this node has taken over").to_string()
    }

    fn token(&mut self, id: u64, request: TokenRequest) {
        let (requests, node, slots) = (self.requests.clone(), Arc::clone(&self.node), Arc::clone(&self.slots));
        let sent = self.node.state().body(&Kind::Pod.key(&request.namespace, &request.pod));
        let ask = async move {
            // The semaphore is never closed: it lives as long as this future.
            let _slot = slots.acquire_owned().await;
            let held = |key: &ObjectKey| node.state().body(key);
            Done::Token(id, tokens::answer(&requests, &node.name, sent.as_deref(), &held, &request).await)
        };
        self.work.push(ask.boxed());
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
