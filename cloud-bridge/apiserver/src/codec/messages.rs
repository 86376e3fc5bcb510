//! The shapes of the built-in kinds: the fields of each message, in JSON and in protobuf. The protobuf decoder and the
//! OpenAPI documents read them; this module knows neither.
//!
//! `messages.txt` is written by `scripts/proto-messages`. Each line is one message: its name, then its fields as
//! `NUMBER=NAME:TYPE`. An empty name is an inlined message. A `!` marks a field that is kept even when it is zero, `*`
//! a list and `%` a map with string keys; `%*` is a map of lists.
//!
//! Types: `s` string, `i` integer, `d` number, `b` boolean, `y` bytes, `q` quantity, `o` integer or string, `t` and `u`
//! times in whole seconds and in microseconds, `f` and `r` JSON as bytes, `@NAME` a message. Unions of a schema: `x` a
//! schema or a boolean, `l` one or several schemas, `w` a schema or names.
//!
//! The name of a message outside the core and meta groups begins with its group, and then its version unless that is
//! `v1`: `coordination.Lease`, `autoscaling.v2.MetricSpec`.

use std::collections::HashMap;
use std::sync::LazyLock;

const MESSAGES: &str = include_str!("messages.txt");

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// Empty for an inlined message.
    pub(crate) name: &'static str,
    /// Whether zero differs from a missing value.
    pub(crate) keep_zero: bool,
    /// The type with its `*` or `%`.
    pub(crate) kind: &'static str,
}

/// The fields of one message, in the order of their numbers.
pub(crate) type Message = &'static [Field];

/// All messages by name, read from the text at the first use.
static INDEX: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let parsed = |line: &'static str| {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        (name, fields(rest))
    };
    MESSAGES.lines().map(parsed).collect()
});

/// Returns a message by name.
pub(crate) fn message(name: &str) -> Option<Message> {
    INDEX.get(name).map(Vec::as_slice)
}

/// Names of all messages.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    INDEX.keys().copied()
}

/// The message of a kind.
pub(crate) fn message_name(group: &str, version: &str, kind: &str) -> String {
    // Options may be labelled with the group of the request they belong to.
    if group.is_empty() || kind == "DeleteOptions" {
        return kind.to_owned();
    }
    let group = group.split('.').next().unwrap_or_default();
    if version == "v1" { format!("{group}.{kind}") } else { format!("{group}.{version}.{kind}") }
}

/// Reads the fields of a message from its line.
pub(crate) fn fields(line: &'static str) -> Vec<Field> {
    let read = |field: &'static str| {
        let (number, rest) = field.split_once('=')?;
        let (name, kind) = rest.split_once(':')?;
        let plain = kind.strip_prefix('!');
        Some(Field { number: number.parse().ok()?, name, keep_zero: plain.is_some(), kind: plain.unwrap_or(kind) })
    };
    line.split(' ').filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_and_type_that_is_named_is_known() {
        for name in names() {
            for field in message(name).expect("the message itself") {
                let kind = field.kind.trim_start_matches(['*', '%']);
                let known = match kind.strip_prefix('@') {
                    Some(inner) => message(inner).is_some(),
                    None => "sidbyqotufrxlw".contains(kind) && kind.len() == 1,
                };
                assert!(known, "{name}.{}: {}", field.name, field.kind);
            }
        }
    }
}
