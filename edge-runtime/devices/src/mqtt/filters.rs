//! Filters beside the fixed ones that the broker should be subscribed to; they change during a connection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Shared {
    wanted: RefCell<BTreeSet<String>>,
    /// Rises with each change.
    version: Cell<u64>,
    changed: Notify,
}

/// Shared between the users of the filters and the connection.
#[derive(Clone, Debug, Default)]
pub struct Filters(Rc<Shared>);

/// Changes of subscriptions to send to the broker.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) more: Vec<String>,
    pub(super) less: Vec<String>,
}

impl Filters {
    /// These, and no others.
    pub fn set(&self, filters: BTreeSet<String>) {
        if *self.0.wanted.borrow() != filters {
            *self.0.wanted.borrow_mut() = filters;
            self.0.version.set(self.0.version.get() + 1);
            self.0.changed.notify_one();
        }
    }

    /// The present filters.
    pub(super) fn wanted(&self) -> BTreeSet<String> {
        self.0.wanted.borrow().clone()
    }

    /// Waits until something else is wanted than when `version` was.
    pub(super) async fn changed(&self, version: u64) {
        while self.0.version.get() == version {
            self.0.changed.notified().await;
        }
    }

    /// Returns the changes since `said`, which becomes the wanted set, and the version of that set.
    pub(super) fn take(&self, said: &mut BTreeSet<String>) -> (u64, Difference) {
        let wanted = self.0.wanted.borrow();
        let more = wanted.difference(said).cloned().collect();
        let less = said.difference(&wanted).cloned().collect();
        said.clone_from(&wanted);
        (self.0.version.get(), Difference { more, less })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_filters_are_returned_once() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let (filters, mut said) = (Filters::default(), BTreeSet::new());
        filters.set(set(&["a", "b"]));
        let (version, difference) = filters.take(&mut said);
        assert_eq!(difference, Difference { more: vec!["a".into(), "b".into()], less: vec![] });
        filters.set(set(&["a", "b"]));
        assert_eq!(filters.take(&mut said), (version, Difference::default()));
        filters.set(set(&["b", "c"]));
        let (_, difference) = filters.take(&mut said);
        assert_eq!(difference, Difference { more: vec!["c".into()], less: vec!["a".into()] });
    }
}
