//! Events of the link: the bridge has connected or gone, asks for something, or has answered.

use edge_protocol::edge::EdgeFacts;
use edge_protocol::message::Position;
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::{CSI, POLICIES, Wants};
use jiff::Timestamp;

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
                let told = welcome.identity.and_then(|terms| time(terms.now_ms));
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
                self.local_api.connected(&self.cx);
                if welcome.features.iter().any(|feature| feature == CSI) {
                    self.report_drivers()?;
                }
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
                self.local_api.disconnected(&self.cx);
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
            LinkEvent::Token { id, answer } => self.tokens.answered(id, answer, self.cx.mono()),
            LinkEvent::Stream(event) => self.take_stream(event),
        }
        Ok(())
    }

    fn link_facts(&mut self) -> Result<(), StoreError> {
        let interests = self.dns.interests(&mut self.cx);
        let Some(link) = &self.cx.link else { return Ok(()) };
        let stream = self.cx.store.fact(Fact::Stream)?;
        let seq = self.cx.store.fact(Fact::LastSequence)?;
        link.facts(EdgeFacts {
            agent: format!("edge-runtime/{}", env!("CARGO_PKG_VERSION")),
            cluster: self.cx.store.fact(Fact::Cluster)?,
            position: position(stream, seq.as_deref()),
            held: self.cx.store.held()?,
            compress: true,
            wants: Wants {
                services: self.cx.config.services.enabled,
                routes: self.cx.config.network.has_routes(),
                policies: self.cx.config.network.policies,
                devices: self.cx.config.device_twin.is_some(),
                rules: self.cx.config.device_twin.is_some(),
                api: self.cx.config.local_api.is_on(),
                csi: self.cx.config.plugins.csi,
            },
            interests,
            ..EdgeFacts::new(self.cx.config.node_name.clone(), self.cx.clock.boot_id().to_string())
        });
        Ok(())
    }

    fn take_stream(&mut self, event: StreamEvent) {
        let Some(event) = self.local_api.take(event) else { return };
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

/// Where the bridge resumes. If the store lacks a part of it, or holds a broken number, the bridge sends a full list.
fn position(stream: Option<String>, seq: Option<&str>) -> Option<Position> {
    Some(Position { stream: stream?, seq: seq?.parse().ok()? })
}

/// The bridge's clock; `None` if it is out of range.
fn time(ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::Report;
    use edge_protocol::version::Welcome;
    use serde_json::json;

    use super::*;
    use crate::node::bench::Bench;

    fn welcome() -> LinkEvent {
        LinkEvent::Connected(Welcome {
            protocol: 1,
            features: Vec::new(),
            cluster: "c".to_owned(),
            session: 1,
            stream: "s".to_owned(),
            resume: false,
            heartbeat_ms: 15_000,
            repeat_within_ms: None,
            identity: None,
        })
    }

    fn waiting(bench: &Bench) -> Vec<u64> {
        bench.node.cx.store.outbox().unwrap().iter().map(|row| row.id).collect()
    }

    #[test]
    fn position_is_told_whole_or_not_at_all() {
        let of = |stream: Option<&str>, seq| position(stream.map(str::to_owned), seq);
        assert_eq!(of(Some("s"), Some("11")), Some(Position { stream: "s".to_owned(), seq: 11 }));
        for (stream, seq) in [(None, Some("11")), (Some("s"), None), (Some("s"), Some("")), (Some("s"), Some("-1"))] {
            assert_eq!(of(stream, seq), None, "{stream:?} {seq:?}");
        }
    }

    #[test]
    fn time_out_of_range_is_not_taken() {
        assert_eq!(time(1_000).map(|time| time.to_string()).as_deref(), Some("1970-01-01T00:00:01Z"));
        assert_eq!(time(i64::MAX.unsigned_abs()), None);
        assert_eq!(time(u64::MAX), None);
    }

    #[test]
    fn bridge_is_remembered_and_housekeeping_due_when_it_is_there() {
        let mut bench = Bench::new();
        bench.node.cx.look_at = Some(bench.node.cx.mono());
        bench.node.take_link(welcome()).unwrap();
        let cx = &bench.node.cx;
        assert_eq!(cx.store.fact(Fact::Cluster).unwrap().as_deref(), Some("c"));
        assert!(cx.outgoing.is_connected());
        assert_eq!(cx.look_at, None);
        bench.node.take_link(LinkEvent::Disconnected("gone".to_owned())).unwrap();
        assert!(!bench.node.cx.outgoing.is_connected());
    }

    #[test]
    fn report_is_not_sent_again_once_the_bridge_has_answered_it() {
        let mut bench = Bench::new();
        bench.node.take_link(welcome()).unwrap();
        let before = waiting(&bench);
        for count in 1..=3 {
            bench.node.cx.report(Report::Event { event: json!({"count": count}) }).unwrap();
        }
        let rows = waiting(&bench).into_iter().filter(|row| !before.contains(row)).collect::<Vec<u64>>();
        let [taken, refused, open] = rows[..] else { panic!("{rows:?}") };
        bench.node.take_link(LinkEvent::UpAcked(vec![taken])).unwrap();
        bench.node.take_link(LinkEvent::UpRefused(refused, "no such kind".to_owned())).unwrap();
        assert!(waiting(&bench).contains(&taken), "deleted with the next commit");
        bench.node.take_link(LinkEvent::Disconnected("gone".to_owned())).unwrap();
        let left = waiting(&bench);
        assert!(left.contains(&open) && !left.contains(&taken) && !left.contains(&refused), "{left:?}");
    }

    #[test]
    fn answers_that_nobody_waits_for_change_nothing() {
        let mut bench = Bench::new();
        let before = waiting(&bench);
        bench.node.take_link(LinkEvent::UpAcked(vec![0, u64::MAX])).unwrap();
        bench.node.take_link(LinkEvent::UpRefused(u64::MAX, "never sent".to_owned())).unwrap();
        bench.node.take_link(LinkEvent::MessagesAcked(vec![u64::MAX])).unwrap();
        bench.node.take_link(LinkEvent::DevicesAcked { batch: 7, refused: Vec::new() }).unwrap();
        bench.node.take_link(LinkEvent::Disconnected("gone".to_owned())).unwrap();
        assert_eq!(waiting(&bench), before);
    }
}
