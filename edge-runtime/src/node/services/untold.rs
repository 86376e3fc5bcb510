//! Which Services the DNS helper is still to be told of.

use std::collections::BTreeSet;

use crate::net::services::table::ServiceName;

/// Maximum number of Services in a message of changes; beyond it all are sent.
const MOST: usize = 512;

/// Services whose present state the DNS helper does not have.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Untold {
    #[default]
    All,
    Of(BTreeSet<ServiceName>),
}

impl Untold {
    pub(super) fn add(&mut self, names: impl IntoIterator<Item = ServiceName>) {
        let Self::Of(untold) = self else { return };
        untold.extend(names);
        if untold.len() > MOST {
            *self = Self::All;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_all_services_are_sent() {
        let name = |number: usize| ("ns".to_owned(), number.to_string());
        let mut untold = Untold::Of(BTreeSet::new());
        untold.add((0..MOST).map(name));
        untold.add((0..MOST).map(name));
        assert!(matches!(&untold, Untold::Of(names) if names.len() == MOST), "each counts once");
        untold.add([]);
        assert_ne!(untold, Untold::All);
        untold.add([name(MOST)]);
        assert_eq!(untold, Untold::All);
        untold.add([name(0)]);
        assert_eq!(untold, Untold::All, "a further one does not reduce them");
    }
}
