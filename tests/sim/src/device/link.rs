//! A device's end of the link: the session's events, the commit of received changes, the outbox.

use std::time::Duration;

use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::version::{DEVICES, Wants};
use edge_runtime::intake::{self, Applied};
use edge_runtime::store::{Fact, StoreError};

use super::check::check;
use super::{Crash, Device, position};
use crate::api::{Api, NODE};
use crate::trace::trace;

impl Device {
    pub fn connect(&mut self, now: Duration, old_build: bool) {
        let boot = self.boot_id();
        let (Some(daemon), Some(store)) = (&mut self.daemon, &self.store) else { return };
        let mut facts = EdgeFacts::new(NODE, boot);
        facts.compress = !old_build;
        facts.wants = Wants { services: self.services, devices: self.devices, ..Wants::default() };
        facts.held = store.held().expect("reads");
        facts.cluster = store.fact(Fact::Cluster).expect("reads");
        facts.position = position(store);
        daemon.session = Some(EdgeSession::new(facts, now));
        daemon.inbox.clear();
        daemon.committed.clear();
    }

    pub fn lose_connection(&mut self, now: Duration) {
        self.link_of_helper(false, now);
        if let Some(daemon) = &mut self.daemon {
            daemon.session = None;
            daemon.inbox.clear();
        }
    }

    /// Handles the session's events. A failed store ends the daemon.
    pub fn drain(&mut self, now: Duration) -> Result<(), StoreError> {
        let (Some(daemon), Some(store)) = (&mut self.daemon, &mut self.store) else { return Ok(()) };
        let Some(session) = &mut daemon.session else { return Ok(()) };
        let (mut more, mut acked, mut up) = (false, Vec::new(), false);
        while let Some(event) = session.poll_event() {
            match event {
                EdgeEvent::Welcome(welcome) => {
                    store.write(|writer| writer.set_fact(Fact::Cluster, &welcome.cluster))?;
                    (more, up) = (true, welcome.features.iter().any(|feature| feature == DEVICES));
                }
                EdgeEvent::Change(change) => daemon.inbox.push_back(change),
                EdgeEvent::UpAcked(id) | EdgeEvent::UpRefused(id, _) => {
                    store.write(|writer| writer.acknowledged(id))?;
                    more = true;
                }
                EdgeEvent::DevicesAcked { batch, .. } => acked.push(batch),
                EdgeEvent::Token { .. }
                | EdgeEvent::Renewed(_)
                | EdgeEvent::MessagesAcked(_)
                | EdgeEvent::Call { .. }
                | EdgeEvent::Response { .. }
                | EdgeEvent::Stream(_) => {}
            }
        }
        if up {
            self.link_of_helper(true, now);
        }
        acked.into_iter().for_each(|batch| self.helper_acked(batch, now));
        if more {
            self.offer()?;
        }
        Ok(())
    }

    /// Offers the outbox to the session, which takes what its window has room for.
    pub(super) fn offer(&mut self) -> Result<(), StoreError> {
        let (Some(daemon), Some(store)) = (&mut self.daemon, &self.store) else { return Ok(()) };
        let Some(session) = daemon.session.as_mut().filter(|session| session.is_welcome()) else { return Ok(()) };
        let rows = store.outbox()?;
        self.most_rows = self.most_rows.max(rows.len());
        for row in rows {
            if session.up(row.id, row.report).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// One durable commit of the first `count` changes, then the acknowledgement and the effects; or a crash in
    /// between.
    pub fn commit(&mut self, count: usize, crash: Option<Crash>, api: &Api, now: Duration) -> Result<(), StoreError> {
        let clock = self.now(now);
        if crash == Some(Crash::BeforeCommit) {
            self.crash(now);
            return Ok(());
        }
        let (Some(daemon), Some(store)) = (&mut self.daemon, &mut self.store) else { return Ok(()) };
        let Some(session) = &mut daemon.session else { return Ok(()) };
        let changes: Vec<Change> = daemon.inbox.drain(..count).collect();
        trace(|| format!("device: commits {} changes of {}", changes.len(), session.stream()));
        check(&changes, store, api, &mut self.newest, &self.removed);
        let numbers: Vec<u64> = changes.iter().map(Change::seq).collect();
        let pods = &daemon.pods;
        let manifest_of = |uid: &str| serde_json::to_value(&*pods.get(uid)?.pod).ok();
        let Some(batch) = intake::commit(store, session.stream(), changes, &manifest_of)? else { return Ok(()) };
        daemon.committed.extend(numbers);
        for applied in &batch.applied {
            if let Applied::Gone(key, uid) = applied
                && key.kind == "Pod"
            {
                self.removed.insert(uid.clone());
            }
        }
        if self.synced {
            self.copy_to("synced");
        }
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if crash == Some(Crash::AfterCommit) {
            self.crash(now);
            return Ok(());
        }
        let Some(session) = &mut daemon.session else { return Ok(()) };
        for (digest, reason) in &batch.refused {
            session.nack(&digest.key, &digest.uid, reason.clone());
        }
        session.committed(batch.seq);
        let more = !batch.reports.is_empty();
        let mut objects = Vec::new();
        for applied in batch.applied {
            match applied {
                Applied::Pod(pod, _) => daemon.wanted(*pod, &clock),
                Applied::Gone(key, uid) if key.kind == "Pod" => daemon.gone(&uid, &clock),
                Applied::Other(key) => objects.push((key, None)),
                Applied::Gone(key, uid) => objects.push((key, Some(uid))),
            }
        }
        for (key, gone) in objects {
            self.object_for_helper(&key, gone.as_deref(), now)?;
        }
        if more { self.offer() } else { Ok(()) }
    }
}
