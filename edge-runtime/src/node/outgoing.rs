//! Reports on their way to the bridge. The store holds them; this holds what to send next. Statuses go at once, events
//! a moment later: events only explain, can share frames and wake-ups, and must not take CPU and syncs from pods that
//! are starting.

use std::time::Duration;

use edge_protocol::message::Report;

use crate::link::LinkHandle;
use crate::pod::clock::Mono;
use crate::store::{OutboxRow, outbox_subject};
use crate::sys::vec_map::VecMap;

/// From the last event of a burst until they are sent...
const EVENT_DELAY: Duration = Duration::from_millis(400);
/// ...and from the first one at most.
const EVENT_DELAY_MAX: Duration = Duration::from_secs(2);

/// Interval of the check for expired events while the link is down.
const EXPIRE: Duration = Duration::from_secs(600);

/// The send queue of one connection. Empty while the link is down.
#[derive(Default)]
pub(super) struct Outgoing {
    connected: bool,
    urgent: VecMap<u64, Report>,
    events: VecMap<u64, Report>,
    /// Arrival of the first and of the last of them.
    events_came: Option<(Mono, Mono)>,
    /// When waiting events were looked through last.
    expired: Option<Mono>,
}

impl Outgoing {
    /// A connection is up: everything unacknowledged goes again.
    pub(super) fn connected(&mut self, rows: Vec<OutboxRow>, now: Mono) {
        self.disconnected();
        self.connected = true;
        self.queue_at(rows.into_iter().map(|row| (row.id, row.report)), now);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether to check waiting events for expiry now.
    pub(super) fn is_time_to_expire(&mut self, now: Mono) -> bool {
        let is = !self.connected && self.expired.is_none_or(|at| now.since(at) >= EXPIRE);
        if is {
            self.expired = Some(now);
        }
        is
    }

    pub(super) fn disconnected(&mut self) {
        *self = Self::default();
    }

    /// Reports just committed.
    pub(super) fn queue(&mut self, reports: impl Iterator<Item = (u64, Report)>) {
        self.queue_at(reports, crate::clock::Clock::mono());
    }

    fn queue_at(&mut self, reports: impl Iterator<Item = (u64, Report)>, now: Mono) {
        if !self.connected {
            return;
        }
        for (id, report) in reports {
            let Some(subject) = outbox_subject(&report) else {
                self.events.insert(id, report);
                let (first, _) = self.events_came.unwrap_or((now, now));
                self.events_came = Some((first, now));
                continue;
            };
            self.urgent.retain(|_, older| outbox_subject(older).as_ref() != Some(&subject));
            self.urgent.insert(id, report);
        }
    }

    /// Events wait no longer: the daemon ends.
    pub(super) fn hurry(&mut self) {
        self.events_came = None;
    }

    fn events_due(&self) -> Option<Mono> {
        let (first, last) = self.events_came?;
        Some(last.after(EVENT_DELAY).min(first.after(EVENT_DELAY_MAX)))
    }

    /// Passes rows that may leave to the link, as many as it accepts. Returns when to call again, if rows wait for a
    /// time.
    pub(super) fn flush(
        &mut self,
        may_leave: impl Fn(u64) -> bool,
        link: Option<&LinkHandle>,
        now: Mono,
    ) -> Option<Mono> {
        let link = link.filter(|link| link.is_connected())?;
        let mut send = |id, report: &Report| link.up_room() > 0 && link.up(id, report.clone()).is_ok();
        if !drain(&mut self.urgent, &may_leave, &mut send) || self.events.is_empty() {
            return None;
        }
        match self.events_due() {
            Some(due) if due > now => Some(due),
            _ => {
                drain(&mut self.events, &may_leave, &mut send);
                if self.events.is_empty() {
                    // Without the memory of a long time offline.
                    (self.events_came, self.events) = (None, VecMap::new());
                }
                // The remaining rows wait for acknowledgements or for a sync, not for a time.
                None
            }
        }
    }
}

/// Sends the rows that may leave, oldest first. Returns false when `send` refused one.
fn drain(
    queue: &mut VecMap<u64, Report>,
    may_leave: &impl Fn(u64) -> bool,
    send: &mut impl FnMut(u64, &Report) -> bool,
) -> bool {
    let mut room = true;
    queue.retain(|id, report| {
        if !room || !may_leave(*id) {
            return true;
        }
        room = send(*id, report);
        !room
    });
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withheld_report_lets_others_pass() {
        let mut queue = VecMap::new();
        (1..=4).for_each(|id| drop(queue.insert(id, Report::Unknown)));
        let mut sent = Vec::new();
        let mut send = |id, _: &Report| {
            sent.push(id);
            sent.len() < 2
        };
        assert!(
            !drain(&mut queue, &|id: u64| id.is_multiple_of(2), &mut send),
            "the second was refused for want of room"
        );
        assert_eq!((sent, queue.keys().copied().collect::<Vec<_>>()), (vec![2, 4], vec![1, 3, 4]));
    }

    #[test]
    fn events_of_a_burst_wait_for_its_end() {
        let mut outgoing = Outgoing { connected: true, ..Outgoing::default() };
        let mut came = |at: u64| {
            outgoing.queue_at([(at, Report::Event { event: serde_json::json!({}) })].into_iter(), Mono(at));
            outgoing.events_due()
        };
        assert_eq!(came(1_000), Some(Mono(1_400)));
        assert_eq!(came(1_300), Some(Mono(1_700)), "more pods start");
        assert_eq!(came(2_900), Some(Mono(3_000)), "but not for ever");
        outgoing.hurry();
        assert_eq!(outgoing.events_due(), None, "nor longer than the daemon");
    }

    fn outgoing() -> Outgoing {
        Outgoing { connected: true, ..Outgoing::default() }
    }

    fn status(name: &str) -> Report {
        Report::PodStatus { namespace: "ns".into(), name: name.into(), uid: name.into(), status: serde_json::json!({}) }
    }

    #[test]
    fn newer_status_of_a_pod_replaces_the_one_that_waits() {
        let mut outgoing = outgoing();
        outgoing.queue_at([(1, status("a")), (2, status("b")), (3, status("a"))].into_iter(), Mono(0));
        assert_eq!(outgoing.urgent.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(outgoing.events_due(), None);
    }

    #[test]
    fn nothing_is_queued_without_a_connection() {
        let mut outgoing = Outgoing::default();
        let rows = || [(1, status("a")), (2, Report::Event { event: serde_json::json!({}) })].into_iter();
        outgoing.queue_at(rows(), Mono(0));
        assert!(outgoing.urgent.is_empty() && outgoing.events.is_empty() && outgoing.events_due().is_none());
        outgoing.connected = true;
        outgoing.queue_at(rows(), Mono(0));
        outgoing.disconnected();
        assert!(outgoing.urgent.is_empty() && outgoing.events.is_empty() && !outgoing.is_connected());
    }

    #[test]
    fn events_expire_at_once_and_every_ten_minutes_while_the_link_is_down() {
        let mut down = Outgoing::default();
        assert!(down.is_time_to_expire(Mono(5_000)) && !down.is_time_to_expire(Mono(5_000)));
        assert!(!down.is_time_to_expire(Mono(0)), "not by a reading that is older");
        assert!(!down.is_time_to_expire(Mono(604_999)) && down.is_time_to_expire(Mono(605_000)));
        assert!(!outgoing().is_time_to_expire(Mono(u64::MAX)), "the bridge takes them");
    }

    #[test]
    fn one_late_event_does_not_wait_again() {
        let mut outgoing = outgoing();
        let event = |at: u64| [(at, Report::Event { event: serde_json::json!({}) })].into_iter();
        outgoing.queue_at(event(0), Mono(0));
        outgoing.queue_at(event(5_000), Mono(5_000));
        assert_eq!(outgoing.events_due(), Some(Mono(2_000)), "the first one is overdue");
    }
}
