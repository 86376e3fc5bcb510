//! Amounts that all clients share, and the part that one of them may have. Pure but for the count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::flow::Flow;

/// A limited amount. A quarter of it is reserved for components of the cluster.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    each: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    flows: HashMap<Arc<str>, usize>,
}

impl Shares {
    /// `most` for all flows, and `each` for one.
    pub fn new(most: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { most, each, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a share; `None` if the flow or all flows have too much. A flow without a share may exceed its part at
    /// once, because some answers are larger than that. A share of nothing is never refused.
    pub fn take(self: &Arc<Self>, flow: &Flow, amount: usize) -> Option<Share> {
        let mut share = Share { shares: Arc::clone(self), flow: flow.clone(), amount: 0 };
        share.grow(amount).then_some(share)
    }

    /// Whether a share of this amount could be taken now.
    pub fn has(&self, flow: &Flow, amount: usize) -> bool {
        self.fits(&self.taken(), flow, 0, amount)
    }

    fn fits(&self, taken: &Taken, flow: &Flow, own: usize, amount: usize) -> bool {
        let Some(name) = flow.name() else { return true };
        let before = taken.flows.get(name).copied().unwrap_or_default();
        let limit = if flow.is_system() { self.most } else { self.most - self.most / 4 };
        let alone = before == own;
        let fits = |before: usize, most: usize| before.saturating_add(amount) <= most || (alone && before < most);
        fits(before, self.each) && fits(taken.all, limit)
    }

    fn add(&self, flow: &Flow, own: usize, amount: usize) -> bool {
        let Some(name) = flow.name().filter(|_| amount > 0) else { return true };
        let mut taken = self.taken();
        if !self.fits(&taken, flow, own, amount) {
            return false;
        }
        taken.all += amount;
        *taken.flows.entry(Arc::clone(name)).or_default() += amount;
        true
    }
}

/// A part that is given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    flow: Flow,
    amount: usize,
}

impl Share {
    /// Takes more; false if the limit is reached.
    #[must_use]
    pub fn grow(&mut self, amount: usize) -> bool {
        let added = self.shares.add(&self.flow, self.amount, amount);
        self.amount += if added { amount } else { 0 };
        added
    }

    /// Gives a part back, at most the whole share.
    pub fn shrink(&mut self, amount: usize) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        let Some(name) = self.flow.name().filter(|_| amount > 0) else { return };
        let mut taken = self.shares.taken();
        taken.all -= amount;
        if let Some(own) = taken.flows.get_mut(name) {
            *own -= amount;
            if *own == 0 {
                taken.flows.remove(name);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::UserInfo;

    fn flow(name: &str) -> Flow {
        Flow::of(&UserInfo::new(name, ["system:authenticated"]))
    }

    #[test]
    fn accounts_of_a_namespace_share_one_part() {
        let shares = Shares::new(100, 10);
        let first = shares.take(&flow("system:serviceaccount:a:x"), 10);
        assert!(first.is_some() && shares.take(&flow("system:serviceaccount:a:y"), 1).is_none());
        assert!(shares.take(&flow("system:serviceaccount:ab:x"), 1).is_some());
        drop(first);
        assert!(shares.take(&flow("system:serviceaccount:a:y"), 10).is_some());
        let taken = shares.taken();
        assert_eq!((taken.all, taken.flows.len()), (0, 0));
    }

    #[test]
    fn system_components_have_a_reserve() {
        let shares = Shares::new(100, 25);
        let taken: Vec<Share> = (0..9).filter_map(|n| shares.take(&flow(&format!("user-{n}")), 25)).collect();
        assert_eq!(taken.len(), 3);
        assert!(shares.take(&flow("system:serviceaccount:a:x"), 1).is_none());
        assert!(shares.take(&flow("system:serviceaccount:kube-system:dns"), 5).is_some());
        assert!(shares.take(&flow("system:kube-scheduler"), 20).is_some());
        assert!(shares.take(&Flow::of(&UserInfo::master("admin")), 1000).is_some());
    }

    #[test]
    fn one_large_share_is_possible_and_no_second() {
        let shares = Shares::new(100, 10);
        let mut large = shares.take(&flow("eve"), 1).unwrap();
        assert!(large.grow(49) && !large.grow(1) && shares.take(&flow("eve"), 1).is_none());
        assert!(!shares.has(&flow("eve"), 1) && shares.has(&flow("bob"), 10));
        assert!(shares.take(&flow("bob"), 10).is_some());
    }

    #[test]
    fn part_of_a_share_is_given_back() {
        let shares = Shares::new(100, 10);
        let mut first = shares.take(&flow("eve"), 10).unwrap();
        assert!(shares.take(&flow("eve"), 4).is_none());
        first.shrink(4);
        let second = shares.take(&flow("eve"), 4);
        assert!(second.is_some() && !first.grow(1));
        first.shrink(1000);
        assert_eq!(shares.taken().all, 4, "no more than its own");
        drop((first, second));
        assert!(shares.taken().flows.is_empty());
    }

    #[test]
    fn share_of_nothing_is_not_refused_and_leaves_nothing() {
        let shares = Shares::new(100, 10);
        let mut large = shares.take(&flow("eve"), 50).unwrap();
        assert!(large.grow(0), "a large answer that encoding does not make larger");
        assert!(shares.take(&flow("eve"), 0).is_some(), "a watch during a large answer");
        drop((large, shares.take(&flow("bob"), 0)));
        assert!(shares.taken().flows.is_empty());
    }
}
