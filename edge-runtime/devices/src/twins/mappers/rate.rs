//! How often mappers may register: each registration costs a look at all devices, so one pod that registers without end must not keep
//! others waiting.

use sampan_sys::vec_map::VecMap;

/// Time in which a pod regains one registration, in milliseconds.
const REGISTRATION: u64 = 500;
/// Number of registrations of a pod at once: all of its mappers after a start.
const AT_ONCE: u64 = super::mapper::MOST as u64 + 8;
/// Pods with a budget of their own; those beyond share one.
const PODS: usize = 64;

/// Registrations that a pod has used, and when they were last counted.
#[derive(Debug, Default)]
struct Spent {
    number: u64,
    counted: u64,
}

impl Spent {
    const fn free(&mut self, now: u64) {
        let freed = now.saturating_sub(self.counted) / REGISTRATION;
        self.number = self.number.saturating_sub(freed);
        self.counted += freed * REGISTRATION;
    }
}

/// Budgets by uid of the pod; empty for processes of the node.
#[derive(Debug, Default)]
pub(super) struct Rate(VecMap<String, Spent>);

impl Rate {
    /// Whether a pod may register now, which counts.
    pub(super) fn may_register(&mut self, now: u64, pod: &str) -> bool {
        if self.0.len() >= PODS && !self.0.contains_key(pod) {
            self.0.values_mut().for_each(|spent| spent.free(now));
            self.0.retain(|_, spent| spent.number > 0);
        }
        let pod = if self.0.len() >= PODS && !self.0.contains_key(pod) { "" } else { pod };
        let spent = self.0.get_or_insert_with(pod.to_owned(), || Spent { number: 0, counted: now });
        spent.free(now);
        let may = spent.number < AT_ONCE;
        spent.number += u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_registers_without_end_holds_up_itself_alone() {
        let mut rate = Rate::default();
        assert_eq!((0..1_000).filter(|_| rate.may_register(0, "bad")).count() as u64, AT_ONCE);
        assert!(rate.may_register(0, "good") && rate.may_register(0, ""));
        assert!(!rate.may_register(REGISTRATION - 1, "bad") && rate.may_register(REGISTRATION, "bad"));
        assert!(!rate.may_register(REGISTRATION, "bad"));
    }

    #[test]
    fn budgets_of_pods_are_bounded() {
        let mut rate = Rate::default();
        for pod in 0..1_000 {
            rate.may_register(0, &pod.to_string());
        }
        assert!(rate.0.len() <= PODS + 1);
        assert!(rate.may_register(1_000_000, "new") && rate.0.len() == 1, "what is free again is forgotten");
    }
}
