//! What the page shows, as it is known now: nodes with their links and pods, and what has changed. Pure: news in, rows out.
//!
//! | file | owns |
//! |---|---|
//! | `facts` | what a Node object says |
//! | `pod`, `pods` | which pods are where, and in which state |
//! | `search` | which of all pods match a filter |
//! | `shown` | what is shown of one node, and its timeline |
//! | `rows` | rows as JSON, in parts of bounded size |

mod facts;
mod pod;
mod pods;
mod rows;
mod search;
mod shown;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use sampan_page::{Change, Kind};

use crate::bridge::overview::LinkView;
use facts::Facts;
pub(crate) use facts::own_version;
pub(super) use facts::{PageNode, cut};
pub(super) use pod::{Phase, PodSeen};
use pods::Pods;
pub(super) use search::Search;
use shown::{Shown, seconds};

/// Everything that is shown.
#[derive(Debug, Default)]
pub(super) struct Board {
    nodes: HashMap<Arc<str>, Shown>,
    pods: Pods,
    /// Other bridges may have nodes of the same cluster.
    replicated: bool,
    /// The API answers.
    reachable: bool,
    /// Number of the newest look at all links.
    look: u64,
    /// Since changes were last taken.
    changed: HashSet<Arc<str>>,
    gone: HashSet<Arc<str>>,
    reach_changed: bool,
}

impl Board {
    pub(super) fn new(replicated: bool) -> Self {
        Self { replicated, reachable: true, ..Self::default() }
    }

    /// A Node object was added or changed.
    pub(super) fn node(&mut self, node: &PageNode, now: SystemTime) {
        let Some(name) = node.metadata.name.as_deref() else { return };
        let facts = Facts::of(node);
        let shown = self.nodes.entry(name.into()).or_default();
        if shown.facts.as_ref() == Some(&facts) {
            return;
        }
        shown.note_facts(&facts, seconds(now));
        shown.facts = Some(facts);
        self.touch(name, now);
    }

    pub(super) fn node_gone(&mut self, name: &str) {
        let Some(shown) = self.nodes.get_mut(name) else { return };
        shown.facts = None;
        match shown.link {
            Some(_) => drop(self.changed.insert(name.into())),
            None => self.forget(name),
        }
    }

    /// All Node objects that there are.
    pub(super) fn nodes_listed(&mut self, listed: &HashSet<String>) {
        let lost = self.nodes.iter().filter(|(name, shown)| shown.facts.is_some() && !listed.contains(&***name));
        for name in lost.map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>() {
            self.node_gone(&name);
        }
    }

    pub(super) fn pod(&mut self, pod: PodSeen<'_>, now: SystemTime) {
        let touched = self.pods.seen(pod);
        self.pods_touched(touched, now);
    }

    pub(super) fn pod_gone(&mut self, namespace: &str, name: &str, now: SystemTime) {
        let touched = self.pods.gone(namespace, name);
        self.pods_touched(touched, now);
    }

    pub(super) fn list_pods(&mut self) {
        self.pods.list();
    }

    pub(super) fn pods_listed(&mut self, now: SystemTime) {
        let touched = self.pods.listed();
        self.pods_touched(touched, now);
    }

    /// Whether the API answers.
    pub(super) fn reachable(&mut self, reachable: bool) {
        self.reach_changed |= std::mem::replace(&mut self.reachable, reachable) != reachable;
    }

    /// A look at all links begins.
    pub(super) fn look(&mut self) {
        self.look += 1;
    }

    pub(super) fn link(&mut self, name: &str, link: LinkView, now: SystemTime) {
        let look = self.look;
        match self.nodes.get_mut(name) {
            Some(shown) => {
                shown.look = look;
                let before = shown.link.replace(link);
                // Traffic on a connection is not a change of it.
                let same = before.is_some_and(|old| (old.since, old.elsewhere) == (link.since, link.elsewhere));
                if !same || (link.since.is_none() && before != Some(link)) {
                    self.touch(name, now);
                }
            }
            None => {
                self.nodes.insert(name.into(), Shown { link: Some(link), look, ..Shown::default() });
                self.touch(name, now);
            }
        }
    }

    /// That was the look at all links: of the others the bridge knows none.
    pub(super) fn looked(&mut self, now: SystemTime) {
        let (look, lost) = (self.look, |shown: &Shown, look| shown.link.is_some() && shown.look != look);
        let lost = self.nodes.iter().filter(|(_, shown)| lost(shown, look)).map(|(name, _)| Arc::clone(name));
        for name in lost.collect::<Vec<_>>() {
            let Some(shown) = self.nodes.get_mut(&name) else { continue };
            shown.link = None;
            match shown.facts {
                Some(_) => self.touch(&name, now),
                None => self.forget(&name),
            }
        }
    }

    /// What has changed since this was last asked, as JSON; none for nothing.
    pub(super) fn take(&mut self, now: SystemTime) -> Option<String> {
        let (changed, gone) = (std::mem::take(&mut self.changed), std::mem::take(&mut self.gone));
        let reach_changed = std::mem::take(&mut self.reach_changed);
        if changed.is_empty() && gone.is_empty() && !reach_changed {
            return None;
        }
        Some(self.text(changed.iter(), gone.iter().map(|name| &**name).collect(), false, now))
    }

    /// Discards the changes: no browser is watching.
    pub(super) fn skip(&mut self) {
        self.changed.clear();
        self.gone.clear();
        self.reach_changed = false;
    }

    /// Whether this node is shown.
    pub(super) fn has(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// What has changed about a node.
    pub(super) fn timeline(&self, name: &str) -> Vec<Change> {
        self.nodes.get(name).map(|shown| shown.timeline.changes()).unwrap_or_default()
    }

    fn pods_touched(&mut self, touched: impl IntoIterator<Item = pods::Touched>, now: SystemTime) {
        for (name, restarts) in touched {
            let Some(shown) = self.nodes.get_mut(&name) else { continue };
            if restarts > 0 {
                let restarts = u32::try_from(restarts).unwrap_or(u32::MAX);
                shown.timeline.note(seconds(now), Kind::Restarts, restarts);
            }
            self.touch(&name, now);
        }
    }

    /// Something about the node is new.
    fn touch(&mut self, name: &str, now: SystemTime) {
        let (at, replicated, counts) = (seconds(now), self.replicated, self.pods.of(name));
        let Some(shown) = self.nodes.get_mut(name) else { return };
        let link = shown.link_shown(replicated);
        let first = !std::mem::replace(&mut shown.met, true);
        if first || link != shown.shown {
            shown.note_link(link, at, first);
        }
        let pods = (counts.ready, counts.wanted);
        if std::mem::replace(&mut shown.pods, pods) != pods {
            shown.timeline.note(at, Kind::Pods, Kind::pods(pods.0, pods.1));
        }
        self.gone.remove(name);
        self.changed.insert(name.into());
    }

    fn forget(&mut self, name: &str) {
        self.nodes.remove(name);
        self.changed.remove(name);
        self.gone.insert(name.into());
    }
}

#[cfg(test)]
mod tests;
