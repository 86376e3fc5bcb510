//! The node's data on the page, and its changes. Pure: facts in, parts of the page out.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use sampan_page::{Kind, TROUBLES, Timeline};
use serde_json::{Value, json};

use super::look::Facts;
use super::pods::{self, seconds};
use super::problems::problems;
use super::tables;
use crate::top::look::Look;
use crate::top::view::{Order, View};

/// Events that are shown, and bytes of one's message.
const EVENTS: (usize, usize) = (200, 500);

#[derive(Default)]
pub(super) struct Board {
    timeline: Timeline,
    seen: Option<Seen>,
    used: Option<Look>,
}

/// Subject of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    link: u8,
    ready: u8,
    troubles: u8,
    storage: u8,
    upgrade: u8,
    version: String,
    pods: (u32, u32),
    /// Starts after the first, by pod and container.
    restarts: BTreeMap<(String, String), u32>,
}

impl Board {
    /// The parts of the page by name, each JSON.
    pub(super) fn take(&mut self, mut facts: Facts) -> Vec<(&'static str, String)> {
        let used = facts.kept.as_mut().and_then(|kept| kept.used.take());
        let view = used.as_ref().map(|now| View::of(self.used.as_ref().unwrap_or(now), now, Order::Name));
        let seen = seen(&facts, self.seen.as_ref());
        self.note(&facts, &seen);
        let parts = vec![
            ("row", row(&facts, &seen)),
            ("problems", json!(problems(&facts))),
            ("timeline", json!(self.timeline.changes())),
            ("events", events(&facts)),
            ("pods", pods::rows(&facts, view.as_ref())),
            ("conditions", conditions(&facts)),
            ("use", json!(tables::used(&facts, view.as_ref()))),
            ("upgrade", json!(tables::upgrade(&facts))),
            ("link", json!(tables::link(&facts))),
            ("system", json!(tables::system(&facts))),
            ("devices", json!(tables::devices(&facts))),
        ];
        self.seen = Some(seen);
        self.used = used;
        parts.into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }

    fn note(&mut self, facts: &Facts, new: &Seen) {
        let Some(old) = self.seen.take() else { return self.begin(facts, new) };
        let at = facts.now;
        let pairs = [
            (Kind::Link, old.link, new.link),
            (Kind::Ready, old.ready, new.ready),
            (Kind::Upgrade, old.upgrade, new.upgrade),
            (Kind::Troubles, old.troubles, new.troubles),
            (Kind::Storage, old.storage, new.storage),
        ];
        for (kind, _, value) in pairs.into_iter().filter(|(_, before, after)| before != after) {
            self.timeline.note(at, kind, value.into());
        }
        if !old.version.is_empty() && old.version != new.version {
            self.timeline.note(at, Kind::Version, 0);
        }
        if old.pods != new.pods {
            self.timeline.note(at, Kind::Pods, Kind::pods(new.pods.0, new.pods.1));
        }
        let more = |(key, now): (&(String, String), &u32)| {
            now.saturating_sub(old.restarts.get(key).copied().unwrap_or_default())
        };
        let restarts = new.restarts.iter().map(more).sum::<u32>();
        if restarts > 0 {
            self.timeline.note(at, Kind::Restarts, restarts);
        }
    }

    /// Reconstructs the time before the first look: since when the present state lasts, and the last ends of
    /// containers.
    fn begin(&mut self, facts: &Facts, new: &Seen) {
        let since = |names: &[&str]| {
            let found = all(facts).iter().filter(|one| names.contains(&one.type_.as_str()));
            found.filter_map(changed).max().unwrap_or(facts.now).min(facts.now)
        };
        let mut known = vec![(facts.now, Kind::Pods, Kind::pods(new.pods.0, new.pods.1))];
        known.push((link_since(facts).unwrap_or(facts.now), Kind::Link, new.link.into()));
        known.push((since(&["Ready"]), Kind::Ready, new.ready.into()));
        if new.troubles != 0 {
            known.push((since(&TROUBLES.map(|(name, _)| name)), Kind::Troubles, new.troubles.into()));
        }
        if new.storage != 0 {
            known.push((since(&["StorageHealthy"]), Kind::Storage, new.storage.into()));
        }
        if new.upgrade != 0 {
            known.push((since(&["Upgraded"]), Kind::Upgrade, new.upgrade.into()));
        }
        let records = facts.kept.iter().flat_map(|kept| &kept.pods).map(|(record, _)| record);
        let again = records.flat_map(|record| record.containers.values()).filter(|container| container.attempt > 0);
        let ends = again.filter_map(|container| seconds(container.last.as_ref()?.finished_at));
        known.extend(ends.filter(|at| *at <= facts.now).map(|at| (at, Kind::Restarts, 1)));
        known.sort_by_key(|(at, ..)| *at);
        for (at, kind, value) in known {
            self.timeline.note(at, kind, value);
        }
    }
}

/// The present state; unreadable parts keep their last value, which is not a change.
fn seen(facts: &Facts, last: Option<&Seen>) -> Seen {
    let runs = facts.daemon.pid.is_some();
    let mut seen = last.cloned().unwrap_or_default();
    (seen.link, seen.ready) = (u8::from(runs && facts.link.connected), 0);
    if let Some(kept) = &facts.kept {
        let verdict = |name: &str| match status(&kept.conditions, name) {
            "True" => 1,
            "False" => 2,
            _ => 0,
        };
        let bits = TROUBLES.iter().enumerate().filter(|(_, (name, bad))| status(&kept.conditions, name) == *bad);
        seen.troubles = bits.fold(0, |all, (at, _)| all | 1 << at);
        (seen.storage, seen.upgrade) = (verdict("StorageHealthy"), verdict("Upgraded"));
        seen.pods = pods::counts(kept);
        let records = kept.pods.iter().map(|(record, _)| record);
        let each = records
            .flat_map(|pod| pod.containers.iter().map(|(name, one)| ((pod.uid.clone(), name.clone()), one.attempt)));
        seen.restarts = each.collect();
    }
    if runs {
        // Uses the daemon's own answer; without an answer it is not ready.
        seen.ready = facts.daemon.ready.map_or(0, |ready| if ready { 1 } else { 2 });
    }
    if let Some(version) = tables::label(&facts.daemon.metrics, "sampan_node_info", "version") {
        version.clone_into(&mut seen.version);
    }
    seen
}

/// A row in the form of the page with all nodes: see `words.js`.
fn row(facts: &Facts, seen: &Seen) -> Value {
    let restarts: u64 = seen.restarts.values().map(|count| u64::from(*count)).sum();
    json!([
        facts.name.as_deref().unwrap_or("this node"),
        seen.link,
        link_since(facts).unwrap_or_default(),
        seen.ready,
        seen.pods.0,
        seen.pods.1,
        restarts,
        seen.troubles,
        seen.storage,
        seen.upgrade,
        0,
        seen.version,
        facts.architecture,
        0,
        "",
    ])
}

/// When (seconds since 1970), whether it is a warning, object, reason, message, how often; the newest first.
fn events(facts: &Facts) -> Value {
    let text = |value: &Value, most: usize| {
        let text = value.as_str().unwrap_or_default();
        text.get(..text.floor_char_boundary(most)).unwrap_or_default().to_owned()
    };
    let newest = facts.events.iter().rev().take(EVENTS.0).map(|event| {
        let of = &event["involvedObject"];
        let object = match (of["kind"].as_str(), of["namespace"].as_str()) {
            (Some("Pod"), Some(namespace)) => format!("{namespace}/{}", text(&of["name"], 253)),
            _ => "node".to_owned(),
        };
        let at: Option<Timestamp> = event["lastTimestamp"].as_str().and_then(|at| at.parse().ok());
        json!([
            at.and_then(seconds),
            event["type"] == "Warning",
            object,
            text(&event["reason"], 128),
            text(&event["message"], EVENTS.1),
            event["count"].as_u64().unwrap_or(1),
        ])
    });
    newest.collect()
}

fn conditions(facts: &Facts) -> Value {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let each =
        |one: &NodeCondition| json!([one.type_, one.status, text(&one.reason), text(&one.message), changed(one)]);
    all(facts).iter().map(each).collect()
}

fn all(facts: &Facts) -> &[NodeCondition] {
    facts.kept.as_ref().map(|kept| kept.conditions.as_slice()).unwrap_or_default()
}

fn status<'a>(conditions: &'a [NodeCondition], name: &str) -> &'a str {
    conditions.iter().find(|one| one.type_ == name).map(|one| one.status.as_str()).unwrap_or_default()
}

fn changed(condition: &NodeCondition) -> Option<u32> {
    seconds(condition.last_transition_time.as_ref()?.0)
}

/// Time since the last change of the link; unknown if the daemon does not run.
fn link_since(facts: &Facts) -> Option<u32> {
    let since: Timestamp = facts.link.since.parse().ok()?;
    facts.daemon.pid.and(seconds(since)).map(|since| since.min(facts.now))
}

/// Interval of updates while a browser shows the page, and otherwise.
pub(super) const LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

#[cfg(test)]
mod tests;
