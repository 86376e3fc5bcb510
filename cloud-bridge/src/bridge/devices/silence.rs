//! Which nodes have been silent for so long that the state of their devices is stale, and which have reconnected. Pure:
//! times are since any fixed moment. Does not know what is written.
//!
//! The API says whether a node is silent (its Ready condition is Unknown) and whether its devices are marked as stale
//! (an annotation), so every bridge knows both, even one that has just started. Any bridge may mark them; the last one
//! to which the node was connected is the first to do it. Only the bridge to which it is connected removes the mark.

use std::collections::HashMap;
use std::time::Duration;

/// Part of the pause after which a connected node counts as back: another bridge has finished its writes by then.
const SETTLED: u32 = 6;

/// Connection of a node to this bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Here {
    Connected,
    /// It was connected here, and to no other bridge since.
    Last,
    No,
}

/// What to do with the statuses of a node's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Mark,
    Clear,
}

/// Nodes whose statuses must change, or may have to soon.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Silence {
    nodes: HashMap<Box<str>, Of>,
}

#[derive(Debug, Default)]
struct Of {
    silent_since: Option<Duration>,
    /// Whether the annotation is set.
    noted: bool,
    connected_since: Option<Duration>,
    /// Whether all of its devices are marked.
    marked: bool,
}

impl Silence {
    /// Stores the state of a Node object.
    pub(in crate::bridge) fn see(&mut self, node: &str, silent: bool, noted: bool, now: Duration) {
        if !silent && !noted {
            self.nodes.remove(node);
            return;
        }
        let of = self.nodes.entry(node.into()).or_default();
        of.noted = noted;
        of.silent_since = silent.then(|| of.silent_since.unwrap_or(now));
        of.marked &= silent;
    }

    /// Removes a deleted node.
    pub(in crate::bridge) fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    pub(in crate::bridge) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the due steps: a node is due after silence of `pause`, or twice that if this bridge is not the last
    /// one to which it was connected.
    pub(super) fn due(
        &mut self,
        now: Duration,
        pause: Duration,
        here: impl Fn(&str) -> Here,
    ) -> HashMap<Box<str>, Step> {
        let mut due = HashMap::new();
        for (node, of) in &mut self.nodes {
            let here = here(node);
            let since = |since: Option<Duration>| since.map(|since| now.saturating_sub(since));
            of.connected_since = (here == Here::Connected).then(|| of.connected_since.unwrap_or(now));
            let step = match here {
                Here::Connected if of.noted && since(of.connected_since) >= Some(pause / SETTLED) => Step::Clear,
                Here::Last if !of.marked && since(of.silent_since) >= Some(pause) => Step::Mark,
                Here::No if !of.marked && since(of.silent_since) >= Some(pause * 2) => Step::Mark,
                _ => continue,
            };
            due.insert(node.clone(), step);
        }
        due
    }

    /// Notes that all of the node's devices are marked.
    pub(super) fn marked(&mut self, node: &str) {
        if let Some(of) = self.nodes.get_mut(node) {
            of.marked = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(60);

    fn due(silence: &mut Silence, second: u64, here: Here) -> Option<Step> {
        silence.due(Duration::from_secs(second), PAUSE, |_| here).remove("n")
    }

    #[test]
    fn a_node_that_is_silent_for_a_minute_is_marked_once() {
        let mut silence = Silence::default();
        let see = |silence: &mut Silence, silent, noted, second| {
            silence.see("n", silent, noted, Duration::from_secs(second));
        };
        see(&mut silence, false, false, 0);
        assert!(silence.is_empty(), "nothing is held of nodes that are as they should be");
        see(&mut silence, true, false, 10);
        see(&mut silence, true, false, 50);
        assert_eq!(due(&mut silence, 69, Here::Last), None);
        assert_eq!(due(&mut silence, 70, Here::Last), Some(Step::Mark));
        assert_eq!(due(&mut silence, 70, Here::No), None, "the other bridge is asked first");
        assert_eq!(due(&mut silence, 130, Here::No), Some(Step::Mark), "which may be no more");
        assert_eq!(due(&mut silence, 130, Here::Connected), None, "somebody takes it for dead");
        silence.marked("n");
        see(&mut silence, true, true, 140);
        assert_eq!(due(&mut silence, 999, Here::Last), None);
        // It reconnected to another bridge, and is silent again.
        see(&mut silence, false, true, 1_000);
        assert_eq!(due(&mut silence, 2_000, Here::Last), None);
        see(&mut silence, true, true, 2_000);
        assert_eq!(due(&mut silence, 2_060, Here::Last), Some(Step::Mark));
        silence.forget("n");
        assert!(silence.is_empty());
    }

    #[test]
    fn only_where_it_is_connected_a_mark_is_taken_back() {
        let mut silence = Silence::default();
        silence.see("n", true, true, Duration::ZERO);
        assert_eq!(due(&mut silence, 5, Here::Connected), None);
        assert_eq!(due(&mut silence, 14, Here::Connected), None);
        assert_eq!(due(&mut silence, 15, Here::Connected), Some(Step::Clear), "ten seconds later");
        assert_eq!(due(&mut silence, 16, Here::Last), None);
        assert_eq!(due(&mut silence, 17, Here::Connected), None, "a new connection");
        assert_eq!(due(&mut silence, 27, Here::Connected), Some(Step::Clear));
        silence.see("n", false, false, Duration::from_secs(30));
        assert!(silence.is_empty());
    }
}
