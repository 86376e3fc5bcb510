//! Sends every pod's status again after a complete list. Such a list comes from a bridge that does not know this node:
//! its API may be restored from a backup, with an outdated status that no node would otherwise correct. A kubelet
//! compares its statuses with the API's every ten seconds (K8s pkg/kubelet/status, `needsReconcile`); here the bridge
//! sends no statuses to the node.
//!
//! A refused status is sent again, too. The API may accept later what it refuses now (a policy, too many requests), and
//! the status of an unchanged pod would otherwise never be reported.

use std::time::Duration;

use edge_protocol::message::Report;

use super::context::Context;
use super::pods::Pods;
use crate::pod::clock::Mono;
use crate::store::StoreError;
use crate::sys::random::random;
use crate::sys::vec_map::VecMap;

/// Whatever a bridge says.
const LONGEST: Duration = Duration::from_secs(3600);

/// Delay from the first refusal of a pod's status to the next attempt; doubled each time, up to [`LONGEST`].
const REFUSED: Duration = Duration::from_mins(5);

/// When to tell all statuses again.
#[derive(Debug, Default)]
pub(super) struct StatusResync {
    /// The bridge knows how many nodes there are to share the time with.
    within: Option<Duration>,
    due: Option<Mono>,
    /// Uids of pods that were reported before the list: the others are reported to the API that sent it.
    pods: Vec<String>,
    /// Refused statuses, by uid of pods of this node.
    refused: VecMap<String, Refused>,
}

#[derive(Debug)]
struct Refused {
    pause: Duration,
    /// `None` after the repeated report, until the bridge has answered.
    due: Option<Mono>,
}

impl StatusResync {
    /// The bridge has said so in its welcome.
    pub(super) fn welcomed(&mut self, within_ms: Option<u64>) {
        self.within = within_ms.map(|ms| Duration::from_millis(ms).min(LONGEST));
    }

    /// A list was complete, and these pods have been reported. `random` is any number.
    fn listed(&mut self, pods: Vec<String>, now: Mono, random: u32) {
        let share = f64::from(random) / f64::from(u32::MAX);
        self.due = self.within.filter(|_| !pods.is_empty()).map(|within| now.after(within.mul_f64(share)));
        self.pods = pods;
    }

    /// The bridge has refused this pod's status.
    fn refused(&mut self, uid: &str, now: Mono) {
        let pause = match self.refused.get(uid) {
            // The status has changed meanwhile, so this is not a retry of the same one.
            Some(Refused { due: Some(_), .. }) => return,
            Some(Refused { pause, .. }) => (*pause * 2).min(LONGEST),
            None => REFUSED,
        };
        self.refused.insert(uid.to_owned(), Refused { pause, due: Some(now.after(pause)) });
    }

    /// The bridge has accepted this pod's status, or the pod is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.refused.remove(uid);
    }

    /// The pods to tell of again, if it is time; once.
    fn due(&mut self, now: Mono) -> Vec<String> {
        let listed = self.due.take_if(|due| *due <= now).map(|_| std::mem::take(&mut self.pods));
        let again =
            |(uid, refused): (&String, &mut Refused)| refused.due.take_if(|due| *due <= now).map(|_| uid.clone());
        listed.into_iter().flatten().chain(self.refused.iter_mut().filter_map(again)).collect()
    }

    /// A complete list has been committed.
    pub(super) fn soon(&mut self, cx: &Context) {
        self.listed(cx.pods.uids(|entry| !entry.reported.is_null()), cx.mono(), random());
    }

    /// The bridge has acknowledged reports that still are in the outbox.
    pub(super) fn reports_taken(&mut self, cx: &Context, ids: &[u64]) -> Result<(), StoreError> {
        // Each costs a look into the store, for nothing as a rule.
        if self.refused.is_empty() {
            return Ok(());
        }
        for id in ids {
            if let Some(uid) = pod_of_status(cx, *id)? {
                self.forget(&uid);
            }
        }
        Ok(())
    }

    /// The bridge has refused a report that still is in the outbox.
    pub(super) fn report_refused(&mut self, cx: &Context, id: u64) -> Result<(), StoreError> {
        // A status that another has replaced since is not there any more.
        if let Some(uid) = pod_of_status(cx, id)? {
            self.refused(&uid, cx.mono());
        }
        Ok(())
    }

    /// Repeats the statuses that are due.
    pub(super) fn tell_due(&mut self, pods: &mut Pods, now: Mono) {
        for uid in self.due(now) {
            if let Some(entry) = pods.get_mut(&uid) {
                entry.reported = serde_json::Value::Null;
                pods.touch(&uid);
            }
        }
    }
}

/// The pod of this node whose status is this row of the outbox.
fn pod_of_status(cx: &Context, id: u64) -> Result<Option<String>, StoreError> {
    let Some(Report::PodStatus { uid, .. }) = cx.store.outbox_row(id)? else { return Ok(None) };
    Ok(cx.pods.by_api_uid(&uid).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_statuses_are_repeated_once_within_the_given_time() {
        let pods = || vec!["a".to_owned(), "b".to_owned()];
        let mut resync = StatusResync::default();
        resync.listed(pods(), Mono(1_000), 0);
        assert!(resync.due(Mono(u64::MAX)).is_empty(), "an older bridge asks for nothing");
        resync.welcomed(Some(60_000));
        resync.listed(pods(), Mono(1_000), u32::MAX);
        assert!(resync.due(Mono(60_999)).is_empty());
        assert_eq!(resync.due(Mono(61_000)), pods());
        assert!(resync.due(Mono(61_001)).is_empty());
        resync.listed(pods(), Mono(1_000), 0);
        assert_eq!(resync.due(Mono(1_000)), pods(), "by chance at once");
        resync.welcomed(Some(u64::MAX));
        resync.listed(pods(), Mono(1_000), u32::MAX);
        assert_eq!(resync.due(Mono(3_601_000)), pods(), "in an hour at the latest");
    }

    #[test]
    fn a_refused_status_is_told_again_less_and_less_often() {
        let minute = |n: u64| Mono(n * 60_000);
        let mut resync = StatusResync::default();
        let mut now = minute(1);
        for pause in [5, 10, 20, 40, 60, 60] {
            resync.refused("a", now);
            let due = now.after(Duration::from_mins(pause));
            assert!(resync.due(Mono(due.0 - 1)).is_empty(), "{pause} min");
            assert_eq!(resync.due(due), ["a"], "{pause} min");
            assert!(resync.due(Mono(u64::MAX)).is_empty(), "once for each refusal");
            now = due;
        }
    }

    #[test]
    fn refusals_of_statuses_that_change_do_not_put_off_the_next_try() {
        let mut resync = StatusResync::default();
        (0..100).for_each(|second| resync.refused("a", Mono(second * 1000)));
        assert_eq!(resync.due(Mono(300_000)), ["a"]);
        resync.refused("a", Mono(300_000));
        assert_eq!(resync.due(Mono(900_000)), ["a"], "twice the pause, not a hundred times");
    }

    #[test]
    fn refused_status_of_each_pod_backs_off() {
        let mut resync = StatusResync::default();
        resync.welcomed(Some(0));
        resync.listed(vec!["z".to_owned()], Mono(0), 0);
        resync.refused("a", Mono(0));
        resync.refused("b", Mono(60_000));
        assert_eq!(resync.due(Mono(0)), ["z"]);
        assert_eq!(resync.due(Mono(300_000)), ["a"]);
        assert_eq!(resync.due(Mono(360_000)), ["b"]);
        resync.refused("a", Mono(400_000));
        resync.forget("a");
        assert!(resync.due(Mono(u64::MAX)).is_empty() && !resync.refused.contains_key("a"));
        resync.refused("a", Mono(500_000));
        assert_eq!(resync.due(Mono(800_000)), ["a"], "a pause of the beginning");
    }

    #[test]
    fn only_refused_statuses_of_pods_of_this_node_are_repeated() {
        use crate::node::pods::Entry;
        use crate::pod::record::{PodRecord, PodSource};
        use serde_json::Value;
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let record = PodRecord::new("u", "ns", "p", PodSource::Api, &cx.clock.now());
        cx.pods.insert(Entry { reported: Value::from(1), ..Entry::new(std::rc::Rc::default(), record) });
        cx.pods.next_dirty();
        let mut report = |report: &Report| cx.store.write(|writer| writer.report(report)).unwrap();
        let status = |uid: &str| Report::PodStatus {
            namespace: "ns".into(),
            name: "p".into(),
            uid: uid.into(),
            status: Value::Null,
        };
        let (own, gone) = (report(&status("u")), report(&status("gone")));
        let event = report(&Report::Event { event: Value::Null });
        let mut resync = StatusResync::default();
        [gone, event, event + 100].iter().for_each(|id| resync.report_refused(&cx, *id).unwrap());
        assert!(resync.refused.is_empty());
        resync.report_refused(&cx, own).unwrap();
        resync.reports_taken(&cx, &[gone, event]).unwrap();
        assert!(resync.refused.contains_key("u"));
        resync.tell_due(&mut cx.pods, Mono(u64::MAX));
        assert!(cx.pods.get("u").unwrap().reported.is_null());
        assert_eq!(cx.pods.next_dirty().as_deref(), Some("u"));
        resync.reports_taken(&cx, &[own]).unwrap();
        assert!(resync.refused.is_empty(), "the bridge has it");
    }
}
