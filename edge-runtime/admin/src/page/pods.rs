//! The pods as the page shows them. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use sampan_pod::record::PodRecord;
use serde_json::{Value, json};

use super::look::{Facts, Kept};
use crate::progress::pulls;
use crate::progress::show::Seen;
use crate::top::show::{bytes, tenths};
use crate::top::view::View;

/// Ready ones, and those that have not ended.
pub(super) fn counts(kept: &Kept) -> (u32, u32) {
    let statuses = || kept.pods.iter().map(|(_, status)| status).filter(|status| !has_ended(status));
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    (number(statuses().filter(|status| is_ready(status)).count()), number(statuses().count()))
}

/// Namespace, name, phase, whether it is ready, restarts, since when, why it is not what it should be, CPU, memory; by name.
pub(super) fn rows(facts: &Facts, view: Option<&View>) -> Value {
    let used = |uid: &str| view.and_then(|view| view.pods.iter().find(|one| one.pod.uid == uid));
    let mut rows: Vec<_> = facts.kept.iter().flat_map(|kept| &kept.pods).collect();
    rows.sort_by_key(|(record, _)| (&record.namespace, &record.name));
    let each = rows.into_iter().map(|(record, status)| {
        let used = used(&record.uid);
        let restarts: u64 = record.containers.values().map(|one| u64::from(one.attempt)).sum();
        let phase = match record.deletion {
            Some(_) => "Terminating",
            None => status.phase.as_deref().unwrap_or("Pending"),
        };
        json!([
            record.namespace,
            record.name,
            phase,
            is_ready(status),
            restarts,
            seconds(record.started_at),
            why(record, status, &facts.pulls),
            used.and_then(|one| one.milli).map(tenths),
            used.and_then(|one| one.pod.memory_bytes).map(bytes),
        ])
    });
    each.collect()
}

fn has_ended(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

fn why(record: &PodRecord, status: &PodStatus, pulls: &[(String, Seen)]) -> String {
    let is_for = |what: &str| record.containers.values().any(|container| pulls::is_for(container, what));
    if let Some(pull) = pulls.iter().find(|(what, _)| is_for(what)) {
        return format!("pulling {}", pulls::line(pull));
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waiting = containers.filter_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.as_deref()).next();
    status.reason.as_deref().or(waiting).unwrap_or_default().to_owned()
}

/// Seconds since 1970.
pub(super) fn seconds(at: Timestamp) -> Option<u32> {
    u32::try_from(at.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use sampan_pod::record::{ContainerRecord, ContainerState};

    use super::*;

    #[test]
    fn pod_that_waits_for_a_pull_shows_its_progress() {
        let (reason, message) = (String::new(), String::new());
        let state = ContainerState::Pulling { reason, message, volume: None };
        let container = ContainerRecord { image: "web:1".into(), state, ..ContainerRecord::default() };
        let record = PodRecord { containers: [("c".to_owned(), container)].into(), ..PodRecord::default() };
        let status = PodStatus { reason: Some("Pending".into()), ..PodStatus::default() };
        let of = |name: &str| (name.to_owned(), Seen { layers: vec![(10, true), (30, false)], partial: 10 });
        assert_eq!(why(&record, &status, &[of("docker.io/library/web:2")]), "Pending");
        let shown = why(&record, &status, &[of("docker.io/library/web:2"), of("docker.io/library/web:1")]);
        assert_eq!(shown, "pulling docker.io/library/web:1: layer 2 of 2, 50 %, 20 B of 40 B");
    }
}
