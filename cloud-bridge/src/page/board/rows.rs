//! Rows as JSON for the page's scripts and for programs, in parts of bounded size.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Board;
use super::facts::Facts;
use super::pods::Pods;
use super::shown::Shown;

/// Bytes of a row besides its texts, about.
const NUMBERS: usize = 64;

/// A row in the form of the page's scripts: see `words.js`.
#[derive(Serialize)]
struct Row<'a>(&'a str, u8, i64, u8, u32, u32, u64, u8, u8, u8, u8, &'a str, &'a str, i64, &'a str);

#[derive(Serialize)]
struct Rows<'a> {
    /// Milliseconds since 1970, by this host.
    at: u64,
    api: bool,
    rows: Vec<Row<'a>>,
    /// There are more rows behind these.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<&'a str>,
}

impl Board {
    /// Names of nodes behind `after`, the last first: [`Board::part`] takes them from the end.
    pub(in crate::page) fn names(&self, after: &str) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.nodes.keys().filter(|name| &***name > after).cloned().collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        names
    }

    /// The next rows, as JSON: about `most` bytes, at least one row. Takes their names from `left`.
    pub(in crate::page) fn part(&self, left: &mut Vec<Arc<str>>, most: usize, now: SystemTime) -> String {
        let (mut names, mut room) = (Vec::new(), most);
        while room > 0
            && let Some(name) = left.pop()
        {
            room = room.saturating_sub(self.nodes.get(&name).map_or(0, |shown| shown.size(&name)));
            names.push(name);
        }
        self.text(names.iter(), Vec::new(), !left.is_empty(), now)
    }

    pub(super) fn text<'a>(
        &'a self,
        names: impl Iterator<Item = &'a Arc<str>>,
        gone: Vec<&'a str>,
        more: bool,
        now: SystemTime,
    ) -> String {
        let rows = names.filter_map(|name| Some(self.nodes.get(name)?.row(name, &self.pods))).collect();
        let at = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let rows = Rows { at: u64::try_from(at).unwrap_or_default(), api: self.reachable, rows, more, gone };
        // Text and numbers: nothing that JSON could not say.
        serde_json::to_string(&rows).unwrap_or_default()
    }
}

impl Shown {
    fn size(&self, name: &str) -> usize {
        let texts = self.facts.as_ref().map_or(0, |f| f.version.len() + f.architecture.len() + f.labels.len());
        NUMBERS + name.len() + texts
    }

    fn row<'a>(&'a self, name: &'a str, pods: &Pods) -> Row<'a> {
        let counts = pods.of(name);
        let (version, architecture, labels) =
            self.facts.as_ref().map(|f| (&*f.version, &*f.architecture, &*f.labels)).unwrap_or_default();
        let number = |of: fn(&Facts) -> u8| self.facts.as_ref().map(of).unwrap_or_default();
        Row(
            name,
            self.shown.0,
            self.shown.1,
            number(|f| f.ready),
            counts.ready,
            counts.wanted,
            counts.restarts,
            number(|f| f.troubles),
            number(|f| f.storage),
            number(|f| f.upgrade),
            number(|f| f.held),
            version,
            architecture,
            self.facts.as_ref().map_or(0, |f| f.created),
            labels,
        )
    }
}
