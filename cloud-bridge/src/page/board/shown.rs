//! What the page shows of one node, and its timeline. Pure.

use std::time::{SystemTime, UNIX_EPOCH};

use sampan_page::{Kind, Timeline};

use super::facts::Facts;
use crate::bridge::overview::LinkView;

/// A node on the page.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) facts: Option<Facts>,
    /// The link as this bridge knows it, if it does.
    pub(super) link: Option<LinkView>,
    /// The look that showed it last.
    pub(super) look: u64,
    /// What is shown of it; `met` after the first time.
    pub(super) shown: Link,
    pub(super) met: bool,
    pub(super) pods: (u32, u32),
    pub(super) timeline: Timeline,
}

/// 0 down, 1 up, 2 at another bridge; since when (seconds since 1970, 0 for not known).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link(pub(super) u8, pub(super) i64);

impl Shown {
    pub(super) fn link_shown(&self, replicated: bool) -> Link {
        let at = |time: Option<SystemTime>| time.map_or(0, |time| i64::from(seconds(time)));
        let ready = self.facts.as_ref().is_some_and(|facts| facts.ready == 1);
        match self.link {
            Some(link) if link.since.is_some() => Link(1, at(link.since)),
            Some(link) if link.elsewhere && ready => Link(2, 0),
            Some(link) => Link(0, at(link.last_seen)),
            None if replicated && ready => Link(2, 0),
            None => Link(0, 0),
        }
    }

    pub(super) fn note_link(&mut self, link: Link, at: u32, first: bool) {
        let old = std::mem::replace(&mut self.shown, link);
        let up = u32::try_from(link.1).unwrap_or(at);
        // Between two looks the connection was another one.
        if !first && old.0 == 1 && link.0 == 1 {
            self.timeline.note(up, Kind::Link, 0);
        }
        if first || old.0 != link.0 || link.0 == 1 {
            self.timeline.note(if link.0 == 1 && !first { up } else { at }, Kind::Link, link.0.into());
        }
    }

    pub(super) fn note_facts(&mut self, new: &Facts, at: u32) {
        let none = Facts::default();
        let (old, first) = (self.facts.as_ref().unwrap_or(&none), self.facts.is_none());
        let pairs = [
            (Kind::Ready, old.ready, new.ready),
            (Kind::Upgrade, old.upgrade, new.upgrade),
            (Kind::Troubles, old.troubles, new.troubles),
            (Kind::Storage, old.storage, new.storage),
        ];
        let version = !first && old.version != new.version;
        for (kind, _, value) in pairs.into_iter().filter(|(_, before, after)| before != after) {
            self.timeline.note(at, kind, value.into());
        }
        if version {
            self.timeline.note(at, Kind::Version, 0);
        }
    }
}

/// Since 1970.
pub(super) fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    u32::try_from(since).unwrap_or(u32::MAX)
}
