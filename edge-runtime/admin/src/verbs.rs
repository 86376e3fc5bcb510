//! The verbs of this program. `edge-runtime` has their names for its help (`cli::ADMIN_VERBS`).

mod confirm;
mod first_boot;
mod join;
mod man;
mod order;
mod pods;
mod upgrade;

use edge_runtime::cli::SHOWN as OF_THE_DAEMON;
use edge_runtime::cli::verb::{Shown, Verb};

use crate::{completion, doctor, events, top};

/// In the order of `edge-runtime --help`; helpers, without a description, last.
pub(crate) const VERBS: &[Verb] = &[
    join::VERB,
    first_boot::VERB,
    doctor::VERB,
    top::VERB,
    events::VERB,
    upgrade::VERB,
    confirm::VERB,
    completion::VERB,
    man::VERB,
    order::VERB,
    pods::VERB,
];

/// All that a person types after `edge-runtime`: what joins first, then the daemon's program, then the rest of this one.
pub(crate) fn shown() -> Vec<Shown> {
    let (first, rest) = VERBS.split_at(1);
    let [first, rest] = [first, rest].map(|verbs| verbs.iter().map(Verb::shown));
    first.chain(OF_THE_DAEMON).chain(rest).filter(|verb| !verb.is_helper()).collect()
}

#[cfg(test)]
mod tests {
    use edge_runtime::cli::ADMIN_VERBS;

    use super::*;

    #[test]
    fn the_daemon_knows_the_name_of_each_and_says_the_same_of_it() {
        let own = VERBS.iter().filter(|verb| !verb.is_helper()).map(|verb| (verb.name, verb.about));
        assert_eq!(own.collect::<Vec<_>>(), ADMIN_VERBS);
        assert!(VERBS.iter().all(|verb| OF_THE_DAEMON.into_iter().all(|other| other.name != verb.name)));
    }
}
