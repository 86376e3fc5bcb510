//! Events of the link: the bridge has connected or gone, asks for something, or has answered.

use edge_protocol::edge::EdgeFacts;
use edge_protocol::message::Position;
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::{POLICIES, Wants};

use super::Node;
use super::streams::Backend;
use crate::link::LinkEvent;
use crate::store::{Fact, StoreError};

impl Node {
    pub(super) fn take_link(&mut self, event: LinkEvent) -> Result<(), StoreError> {
        match event {
            LinkEvent::Resolved(addresses) => self.services.set_link(addresses),
            LinkEvent::NeedFacts => self.link_facts()?,
            LinkEvent::Connected(welcome) => {
                log::info!("connected to the bridge of cluster {}", welcome.cluster);
                if self.cx.config.network.policies && !welcome.features.iter().any(|feature| feature == POLICIES) {
                    log::warn!("the bridge is older than NetworkPolicies of nodes: there are none here");
                }
                let told = welcome.identity.map(|terms| terms.now_ms);
                self.host_watch.time_told(&self.cx, told);
                self.tokens.time_told(told, self.cx.mono());
                self.resync.welcomed(welcome.repeat_within_ms);
                self.cx.store.write(|writer| writer.set_fact(Fact::Cluster, &welcome.cluster))?;
                self.cx.tell_dropped()?;
                let now = self.cx.mono();
                self.cx.delete_acknowledged()?;
                self.cx.outgoing.connected(self.cx.store.outbox()?, now);
                self.node_status.force();
                self.cx.look_now();
                self.dns.connected(&mut self.services, &welcome.features);
                self.devices.connected(&mut self.cx, &welcome.features)?;
                self.static_pods.connected();
                self.static_pods.ask_for_mirrors(&mut self.cx)?;
            }
            LinkEvent::Disconnected(why) => {
                log::warn!("no connection to the bridge: {why}");
                // What the bridge has counted is not counted once more.
                self.cx.delete_acknowledged()?;
                self.cx.outgoing.disconnected();
                self.tokens.disconnected();
                self.services.names_changed();
                self.devices.disconnected();
            }
            LinkEvent::DevicesAcked { batch, refused } => self.devices.acked(batch, refused),
            LinkEvent::MessagesAcked(ids) => self.devices.messages.acked(&mut self.cx, &ids)?,
            LinkEvent::Call { id, call } => self.devices.call(&self.cx, id, call),
            LinkEvent::Response { id, response } => self.devices.responded(id, response),
            LinkEvent::Refused(reason, message) => log::error!("the bridge refused this node ({reason:?}): {message}"),
            LinkEvent::Changes { stream, changes } => self.take_changes(&stream, changes)?,
            LinkEvent::UpAcked(ids) => {
                self.resync.reports_taken(&self.cx, &ids)?;
                let now = self.cx.mono();
                self.cx.acknowledged.add(ids, now);
            }
            LinkEvent::UpRefused(id, reason) => {
                log::warn!("the bridge refused report {id}: {reason}");
                self.resync.report_refused(&self.cx, id)?;
                let now = self.cx.mono();
                self.cx.acknowledged.add(vec![id], now);
            }
            LinkEvent::Token { id, answer } => {
                if let Some(uid) = self.tokens.answered(&mut self.cx, id, answer)? {
                    self.refresh_volumes(&uid);
                }
            }
            LinkEvent::Stream(event) => self.take_stream(event),
        }
        Ok(())
    }

    fn link_facts(&mut self) -> Result<(), StoreError> {
        let interests = self.dns.interests(&mut self.cx);
        let Some(link) = &self.cx.link else { return Ok(()) };
        let stream = self.cx.store.fact(Fact::Stream)?;
        let seq = self.cx.store.fact(Fact::LastSequence)?.and_then(|seq| seq.parse().ok());
        link.facts(EdgeFacts {
            agent: format!("edge-runtime/{}", env!("CARGO_PKG_VERSION")),
            cluster: self.cx.store.fact(Fact::Cluster)?,
            position: stream.zip(seq).map(|(stream, seq)| Position { stream, seq }),
            held: self.cx.store.held()?,
            compress: true,
            wants: Wants {
                services: self.cx.config.services.enabled,
                routes: self.cx.config.network.has_routes(),
                policies: self.cx.config.network.policies,
                devices: self.cx.config.device_twin.is_some(),
                rules: self.cx.config.device_twin.is_some(),
            },
            interests,
            ..EdgeFacts::new(self.cx.config.node_name.clone(), self.cx.clock.boot_id().to_string())
        });
        Ok(())
    }

    fn take_stream(&mut self, event: StreamEvent) {
        let backend = Backend {
            cx: &self.cx,
            cgroups: &self.launch.base.cgroups,
            runtimes: &self.launch.runtimes,
            volumes_trash: &self.launch.base.volumes_trash,
            monitor: &self.containers.monitor,
        };
        self.streams.take(&backend, event);
    }
}
