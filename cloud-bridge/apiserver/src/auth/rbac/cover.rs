//! Which rights of some rules others do not give (K8s component-helpers/auth/rbac/validation/policy_comparator.go,
//! pkg/registry/rbac/validation/policy_compact.go).

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{Rule, url_matches};
use super::words::Words;

/// Maximum number of compared words for one answer: some 50 ms. A small body may contain a rule that stands for
/// millions of single rights.
const WORK_MAX: usize = 8_000_000;

/// What one right costs at the least: it is kept when it is missing.
const EACH_MIN: usize = 64;

/// Maximum length of a list of missing rights, in bytes.
const SHOWN_MAX: usize = 16 * 1024;

/// The rules are too many to be compared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A single right: one verb on one resource, of one name or of all, or on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str>, verb: &'a str },
    Url { url: &'a str, verb: &'a str },
}

/// The single rights of a rule.
fn rights(rule: &Rule) -> impl Iterator<Item = Right<'_>> {
    let names = move || -> Box<dyn Iterator<Item = Option<&str>> + '_> {
        if rule.names.is_empty() { Box::new(std::iter::once(None)) } else { Box::new(rule.names.iter().map(Some)) }
    };
    let resources = rule.groups.iter().flat_map(move |group| {
        rule.resources.iter().flat_map(move |resource| {
            rule.verbs
                .iter()
                .flat_map(move |verb| names().map(move |name| Right::Resource { group, resource, name, verb }))
        })
    });
    let urls = rule.urls.iter().flat_map(move |url| rule.verbs.iter().map(move |verb| Right::Url { url, verb }));
    resources.chain(urls)
}

fn resource_covers(words: &Words, resource: &str) -> bool {
    let of_all = |sub: &str| words.iter().any(|word| word.strip_prefix("*/") == Some(sub));
    words.has(resource) || resource.split_once('/').is_some_and(|(_, sub)| of_all(sub))
}

fn covers(owner: &Rule, right: Right<'_>) -> bool {
    match right {
        Right::Resource { group, resource, name, verb } => {
            owner.verbs.has(verb)
                && owner.groups.has(group)
                && resource_covers(&owner.resources, resource)
                && (owner.names.is_empty() || name.is_some_and(|name| owner.names.iter().any(|one| one == name)))
        }
        Right::Url { url, verb } => {
            owner.verbs.has(verb)
                && owner.names.is_empty()
                && owner.urls.iter().any(|pattern| url_matches(pattern, url))
        }
    }
}

/// The rights of `servants` that no rule of `owners` grants, in order.
///
/// # Errors
/// There are too many to check each.
pub(crate) fn uncovered<'a>(owners: &[&Rule], servants: &'a [Rule]) -> Result<Vec<Right<'a>>, TooMany> {
    let each: usize = owners.iter().map(|rule| rule.len()).sum::<usize>().max(EACH_MIN);
    let mut left = WORK_MAX;
    let mut missing = Vec::new();
    // A rule for everything needs one comparison for any number of rights.
    let covers_all = owners.iter().any(|owner| all(owner));
    for servant in servants {
        if covers_all && servant.urls.is_empty() {
            continue;
        }
        for right in rights(servant) {
            left = left.checked_sub(each).ok_or(TooMany)?;
            if !owners.iter().any(|owner| covers(owner, right)) {
                missing.push(right);
            }
        }
    }
    Ok(missing)
}

/// Whether a rule gives every right on every resource.
fn all(rule: &Rule) -> bool {
    let every = |words: &Words| words.iter().any(|word| word == "*");
    every(&rule.verbs) && every(&rule.groups) && every(&rule.resources) && rule.names.is_empty()
}

/// Returns one rule for each right.
pub(crate) fn as_rules(rights: &[Right<'_>]) -> Vec<Rule> {
    rights.iter().map(|right| right.rule()).collect()
}

impl Right<'_> {
    fn rule(self) -> Rule {
        let one = |word: &str| Words::from_iter([word]);
        match self {
            Self::Resource { group, resource, name, verb } => Rule {
                verbs: one(verb),
                groups: one(group),
                resources: one(resource),
                names: name.map(one).unwrap_or_default(),
                urls: Words::default(),
            },
            Self::Url { url, verb } => Rule { verbs: one(verb), urls: one(url), ..Rule::default() },
        }
    }
}

/// Missing rights in the format of messages: verbs of one resource together, a line for each.
pub(crate) fn shown(missing: &[Right<'_>]) -> String {
    let mut verbs: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    let (mut lines, mut length) = (BTreeSet::new(), 0);
    for right in missing {
        match *right {
            Right::Resource { group, resource, name, verb } => {
                verbs.entry((group, resource, name)).or_default().push(verb);
            }
            Right::Url { .. } if length > SHOWN_MAX => {}
            Right::Url { .. } => {
                let line = right.rule().to_string();
                length += line.len();
                lines.insert(line);
            }
        }
    }
    for ((group, resource, name), verbs) in verbs {
        if length > SHOWN_MAX {
            break;
        }
        let mut rule = Right::Resource { group, resource, name, verb: "" }.rule();
        rule.verbs = verbs.into_iter().collect();
        let line = rule.to_string();
        length += line.len();
        lines.insert(line);
    }
    let mut text = lines.into_iter().collect::<Vec<_>>().join("\n");
    if let Some(end) = text.char_indices().map(|(at, _)| at).find(|at| *at > SHOWN_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
