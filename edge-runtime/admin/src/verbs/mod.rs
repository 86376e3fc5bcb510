//! The verbs of this program, one file each. `edge-runtime` has their names for its help (`edge_runtime::cli::ADMIN_VERBS`).

mod confirm;
mod order;
mod pods;
mod upgrade;

use edge_runtime::cli::verb::Verb;

/// In the order of `edge-runtime --help`; helpers, without a description, last.
pub(crate) const VERBS: &[Verb] = &[upgrade::VERB, confirm::VERB, order::VERB, pods::VERB];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_runtime_names_what_there_is_here() {
        let own = VERBS.iter().filter(|verb| !verb.is_helper()).map(|verb| (verb.name, verb.about));
        assert_eq!(own.collect::<Vec<_>>(), edge_runtime::cli::ADMIN_VERBS);
    }
}
