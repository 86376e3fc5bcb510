//! Rate limits of reads and writes in the API for what nodes report about their devices. Pure: times are since any
//! fixed moment. Does not know what is written.

use std::collections::HashMap;
use std::time::Duration;

/// Writes of one node.
const NODE_WRITES: Rate = Rate { every: Duration::from_millis(100), burst: 5 };
/// Writes of all nodes. Each node has few waiting, and they are served in order of arrival: no node has priority.
const ALL_WRITES: Rate = Rate { every: Duration::from_millis(5), burst: 20 };
/// Reports that are checked, whether they lead to a write or not.
const NODE_LOOKS: Rate = Rate { every: Duration::from_millis(20), burst: 64 };

/// One per `every`, and after a pause up to `burst` at once.
#[derive(Clone, Copy, Debug)]
struct Rate {
    every: Duration,
    burst: u32,
}

/// Time at which all permits that were taken have been earned.
type Earned = Duration;

impl Rate {
    /// Takes a permit. Returns how long to wait before it may be used.
    fn take(self, earned: &mut Earned, now: Duration) -> Duration {
        let from = (*earned).max(now);
        *earned = from.saturating_add(self.every);
        let ahead = self.every.saturating_mul(self.burst.saturating_sub(1));
        from.saturating_sub(ahead).saturating_sub(now)
    }
}

/// Budgets of a bridge.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Budgets {
    writes: HashMap<Box<str>, Earned>,
    looks: HashMap<Box<str>, Earned>,
    all: Earned,
}

impl Budgets {
    /// How long this node waits before its next report may be checked.
    pub(super) fn look(&mut self, node: &str, now: Duration) -> Duration {
        NODE_LOOKS.take(of(&mut self.looks, node, now), now)
    }

    /// How long this node waits before it may write once, by its own budget.
    pub(super) fn write(&mut self, node: &str, now: Duration) -> Duration {
        NODE_WRITES.take(of(&mut self.writes, node, now), now)
    }

    /// How long a write that its node's budget allows waits for the shared budget.
    pub(super) fn write_of_all(&mut self, now: Duration) -> Duration {
        ALL_WRITES.take(&mut self.all, now)
    }
}

/// What a node has used. It outlives the node's connection; entries that are fully earned are removed.
fn of<'a>(all: &'a mut HashMap<Box<str>, Earned>, node: &str, now: Duration) -> &'a mut Earned {
    if !all.contains_key(node) {
        all.retain(|_, earned| *earned > now);
    }
    all.entry(node.into()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Number of writes of a node that always has one to make, until `end`.
    fn writes(budgets: &mut Budgets, node: &str, mut now: Duration, end: Duration) -> u32 {
        let mut count = 0;
        while now < end {
            now += budgets.write(node, now);
            now += budgets.write_of_all(now);
            count += 1;
        }
        count
    }

    #[test]
    fn d07_a_node_writes_ten_times_a_second() {
        let mut budgets = Budgets::default();
        let count = writes(&mut budgets, "a", Duration::ZERO, 60_000 * MS);
        assert!((600..=606).contains(&count), "{count}");
        assert_eq!(budgets.write("a", 60_000 * MS + 200 * MS), Duration::ZERO, "after a rest at once");
    }

    #[test]
    fn d07_bridge_writes_200_times_a_second_and_nodes_share_that() {
        let mut budgets = Budgets::default();
        let mut waiting: Vec<(Duration, usize)> = (0..100).map(|node| (Duration::ZERO, node)).collect();
        let mut counts = [0_u32; 100];
        // The write that is earliest by its own budget requests the shared one first.
        while let Some(at) = (0..waiting.len()).min_by_key(|at| waiting[*at]) {
            let (now, node) = waiting[at];
            if now > 10_000 * MS {
                break;
            }
            let turn = now + budgets.write_of_all(now);
            counts[node] += 1;
            let name = format!("n{node}");
            waiting[at].0 = turn + budgets.write(&name, turn);
        }
        let all: u32 = counts.iter().sum();
        assert!((1_950..=2_050 + 100).contains(&all), "{all}");
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(least.zip(most).is_some_and(|(least, most)| most - least <= NODE_WRITES.burst), "{counts:?}");
    }

    #[test]
    fn d07_a_node_that_repeats_itself_is_looked_at_fifty_times_a_second() {
        let mut budgets = Budgets::default();
        let (mut now, mut count) = (Duration::ZERO, 0);
        while now < 10_000 * MS {
            now += budgets.look("a", now);
            count += 1;
        }
        assert!((500..=566).contains(&count), "{count}");
    }

    #[test]
    fn who_is_quiet_is_forgotten_and_who_comes_again_at_once_is_not() {
        let mut budgets = Budgets::default();
        (0..5).for_each(|_| assert_eq!(budgets.write("a", MS), Duration::ZERO));
        assert!(!budgets.write("a", MS).is_zero(), "over any number of connections");
        for number in 0..1_000_u32 {
            let _ = budgets.write(&format!("n{number}"), number * 1_000 * MS);
        }
        assert!(budgets.writes.len() < 5, "{}", budgets.writes.len());
    }
}
