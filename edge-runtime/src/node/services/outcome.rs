//! Result of a run of `nft`: flows to delete, messages, and the time of a retry.

use std::path::Path;
use std::time::Duration;

use super::done::Done;
use super::{Phase, Services};
use crate::net::netlink::conntrack;
use crate::net::services::datagrams::Destinations;
use crate::net::services::{LocalPod, ServiceView};
use crate::node::context::Context;
use crate::node::sources::News;
use crate::pod::clock::Mono;
use crate::pod::ports::Protocol;
use crate::store::StoreError;

/// Between two attempts when the kernel, or `nft`, refuses: doubled each time, up to the second one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_AT_MOST: Duration = Duration::from_secs(60);
/// There where the kernel tracks connections of SCTP, once it tracks any.
const SCTP: &str = "/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established";

impl Services {
    /// Processes the result of the last step.
    pub(in crate::node) fn applied(&mut self, cx: &mut Context, done: Done) -> Result<(), StoreError> {
        self.running = false;
        match done {
            // Meanwhile it may have been decided that nothing is known of them.
            Done::Looked(true) if self.phase == Phase::Unknown => self.phase = Phase::Known,
            Done::Looked(true) => {}
            Done::Looked(false) => {
                self.tables.forget();
                self.phase = Phase::Whole;
            }
            Done::Changed(Ok(())) => {
                if self.dirty.is_empty() {
                    // All of it was taken, not a first portion alone.
                    self.failures = 0;
                    self.left_out.taken();
                }
                self.flows.stale = true;
                self.tell_sctp(cx)?;
            }
            // They are gone with the next replacement.
            Done::Swept(Ok(())) => {}
            Done::Isolated(None) => self.back_off(cx),
            Done::Isolated(Some(names)) => {
                self.phase = Phase::Whole;
                self.failures = 1;
                if !names.is_empty() {
                    let names = self.left_out.add(names, cx.mono());
                    let why = format!("the kernel refuses Services, which are left out: {names}");
                    log::error!("{why}");
                    cx.node_event(true, "ServicesLeftOut", &why)?;
                }
            }
            Done::Changed(Err(why)) | Done::Swept(Err(why)) => {
                self.back_off(cx);
                self.tables.forget();
                if self.failures == 1 {
                    log::error!("Services: {why}");
                    cx.node_event(true, "ServicesNotApplied", &format!("Services are served as before: {why}"))?;
                }
            }
        }
        Ok(())
    }

    fn back_off(&mut self, cx: &Context) {
        self.not_before = Some(cx.mono().after(retry_after(self.failures)));
        self.phase = Phase::Whole;
        self.failures += 1;
    }

    /// Rules for SCTP are taken by every kernel, but not every one finds its ports.
    fn tell_sctp(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        let sctp = |view: &ServiceView| view.ports.iter().any(|port| port.protocol() == Some(Protocol::Sctp));
        if self.sctp_told || Path::new(SCTP).exists() || !self.views.values().any(sctp) {
            return Ok(());
        }
        self.sctp_told = true;
        let why = "the kernel tracks no connections of SCTP (CONFIG_NF_CT_PROTO_SCTP): Services of it lead nowhere";
        log::warn!("{why}");
        cx.node_event(true, "SctpNotSupported", why)
    }

    /// The kernel has forgotten the flows that led nowhere any more.
    pub(in crate::node) fn flows_forgotten(&mut self, now: Mono) {
        self.flows.done(now);
    }

    /// Senders that never pause find who answers now.
    pub(super) fn forget_datagrams(&mut self, cx: &Context) {
        self.flows.stale = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let mut all = Destinations::at(&cx.host.host_ips);
        for name in self.views.keys() {
            if let Some((view, others)) = self.taken(name) {
                all.add(&name.0, &view, &pods, others, &self.here);
            }
        }
        let told = all.told();
        all.add_gone(std::mem::replace(&mut self.flows.told, told));
        // Flows of another program's Services are not ours to delete.
        if all.is_empty() || self.elsewhere.is_some() {
            return;
        }
        let begun = cx.mono();
        self.flows.since = Some(begun);
        cx.background(async move {
            if let Err(error) = conntrack::forget_udp_where(|flow| all.is_stale(flow)).await {
                log::warn!("clients that never pause may miss new endpoints of UDP: {error}");
            }
            News::FlowsForgotten
        });
    }
}

/// Pause after a failed attempt that followed this number of failures.
fn retry_after(failures: u32) -> Duration {
    RETRY.saturating_mul(1 << failures.min(6)).min(RETRY_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_that_refuses_is_asked_less_and_less_often() {
        let pauses = [0, 1, 2, 3, 4, 5, 6, 7, u32::MAX].map(|failures| retry_after(failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
