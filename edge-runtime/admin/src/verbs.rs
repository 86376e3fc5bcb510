//! The verbs of this program, one file each. `edge-runtime` has their names for its help (`cli::ADMIN_VERBS`).

use edge_runtime::cli::SHOWN as OF_THE_DAEMON;
use edge_runtime::cli::verb::{Shown, Verb};

use crate::{completion, doctor, events, man, page, top};

mod confirm;
mod devices;
mod exec;
mod first_boot;
mod images;
mod inspect;
mod join;
mod logs;
mod order;
mod pods;
mod print_config;
mod ps;
mod status;
mod upgrade;

pub(crate) const VERBS: &[Verb] = &[
    join::VERB,
    status::VERB,
    ps::VERB,
    logs::VERB,
    exec::VERB,
    inspect::VERB,
    devices::VERB,
    images::VERB,
    doctor::VERB,
    top::VERB,
    events::VERB,
    page::VERB,
    completion::VERB,
    upgrade::VERB,
    confirm::VERB,
    first_boot::VERB,
    man::VERB,
    order::VERB,
    pods::VERB,
    print_config::VERB,
];

/// All that people are shown, of both programs, in the order of `--help`.
pub(crate) fn shown() -> Vec<Shown> {
    OF_THE_DAEMON.into_iter().chain(VERBS.iter().map(Verb::shown)).filter(|verb| !verb.is_helper()).collect()
}

#[cfg(test)]
mod tests {
    use edge_runtime::cli::ADMIN_VERBS;

    use super::*;

    #[test]
    fn the_daemon_knows_the_name_of_each_and_says_the_same_of_it() {
        for verb in VERBS.iter().filter(|verb| !verb.is_helper()) {
            assert!(ADMIN_VERBS.contains(&(verb.name, verb.about)), "{} in cli/admin.rs", verb.name);
            assert!(OF_THE_DAEMON.iter().all(|other| other.name != verb.name), "{} is there twice", verb.name);
        }
    }
}
