//! The verbs of this program, one file each.

use edge_runtime::cli::SHOWN as OF_THE_DAEMON;
use edge_runtime::cli::verb::{Shown, Verb};

use crate::{doctor, events, page, top};

mod complete;
pub(crate) mod completion;
mod config;
mod confirm;
mod describe;
mod devices;
mod exec;
mod fetch;
mod first_boot;
mod images;
mod inspect;
mod join;
mod logs;
mod man;
mod order;
mod pods;
mod print_config;
mod progress;
mod ps;
mod release;
mod reset;
mod restart;
mod status;
mod upgrade;
mod version;

pub(crate) const VERBS: &[Verb] = &[
    join::VERB,
    status::VERB,
    ps::VERB,
    logs::VERB,
    exec::VERB,
    describe::VERB,
    inspect::VERB,
    restart::VERB,
    release::VERB,
    devices::VERB,
    images::VERB,
    fetch::PULL,
    fetch::IMPORT,
    doctor::VERB,
    top::VERB,
    events::VERB,
    page::VERB,
    completion::VERB,
    upgrade::VERB,
    version::VERB,
    confirm::VERB,
    config::VERB,
    reset::VERB,
    first_boot::VERB,
    man::VERB,
    order::VERB,
    progress::VERB,
    pods::VERB,
    print_config::VERB,
    complete::VERB,
];

/// All verbs for people, of both programs. One that both have is shown as this program has it.
pub(crate) fn shown() -> Vec<Shown> {
    let of_the_daemon = OF_THE_DAEMON.into_iter().filter(|verb| VERBS.iter().all(|own| own.name != verb.name));
    VERBS.iter().map(Verb::shown).chain(of_the_daemon).filter(|verb| !verb.is_helper()).collect()
}

pub(crate) fn find_own(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.name == name)
}

/// A verb of this program, or one for people of the daemon's.
pub(crate) fn find(name: &str) -> Option<Shown> {
    find_own(name).map(Verb::shown).or_else(|| shown().into_iter().find(|verb| verb.name == name))
}
