//! The state of a connection at its start.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_protocol::bridge::{BridgeSession, BridgeSettings};
use tokio::sync::Semaphore;

use super::Connection;
use super::budget::Budget;
use super::large::Large;
use super::pending::{Rewrite, Rules, Work};
use super::pool::Stake;
use super::serving::Serving;
use crate::bridge::api_proxy::Rate;
use crate::bridge::credential::Credential;
use crate::bridge::lease::Renewal;
use crate::bridge::node::{Link, Node};
use crate::bridge::rejections::Rejections;
use crate::bridge::reports::Reports;
use crate::bridge::requests::Requests;
use crate::bridge::shared::Shared;
use crate::bridge::work_queue::WorkQueue;
use crate::pki::clock;

/// Limit of concurrent requests of one node to the API.
const CONCURRENCY: usize = 8;
/// Fewer for events, which must not delay urgent requests. Concurrent events of different objects share a sync of the
/// API's disk.
const EVENTS_CONCURRENCY: usize = 4;

/// Time in which this number of nodes repeat the statuses of their pods after a restart of the bridge. Each is a
/// request to the API without a change, about a millisecond of CPU, and a node has ten pods or more: so a sixth of a
/// core.
fn repeat_within(nodes: usize) -> Duration {
    const EACH: Duration = Duration::from_millis(60);
    const LEAST: Duration = Duration::from_secs(10);
    EACH.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).max(LEAST)
}

impl Connection {
    pub(super) fn new(
        shared: Arc<Shared>,
        (node, peer): (Arc<Node>, IpAddr),
        credential: Credential,
        link: &Link,
    ) -> Self {
        let mut settings = BridgeSettings::new(node.name.clone(), shared.cluster.clone(), link.session);
        settings.heartbeat = shared.settings.heartbeat;
        settings.compress = true;
        settings.large_by_turns = true;
        settings.repeat_within = Some(repeat_within(shared.node_access.count()));
        settings.identity = Some(credential.terms(clock::now()));
        let session = BridgeSession::new(settings, &mut node.state(), Duration::ZERO);
        let requests = shared.clients.requests_as(&node.name);
        let own = Requests::new(shared.clients.own().clone());
        let overrides = shared.overrides();
        let mut reports = Reports::new(Arc::clone(&node), link.session, requests.clone(), own, overrides);
        reports.replicated = shared.settings.replicated;
        reports.mirror_namespaces = Arc::clone(&shared.settings.mirror_namespaces);
        reports.pod_ranges = Arc::clone(&shared.pod_ranges);
        let attachments = Arc::clone(&shared.attachments);
        reports.volumes = Some(attachments);
        Self {
            session,
            start: Instant::now(),
            work_queue: WorkQueue::default(),
            reports: Arc::new(reports),
            slots: Arc::new(Semaphore::new(CONCURRENCY)),
            event_slots: Arc::new(Semaphore::new(EVENTS_CONCURRENCY)),
            work: Work::new(),
            renewal: Renewal::default(),
            rejections: Rejections::default(),
            budget: Budget::default(),
            stake: Stake::new(&shared.report_pool),
            requests,
            streams: Serving::default(),
            pod_rate: Rate::default(),
            place: None,
            large: Large::No,
            rewrite: Rewrite::default(),
            rules: Rules::default(),
            shared,
            node,
            peer,
            credential,
        }
    }
}
