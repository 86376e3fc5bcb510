//! Kubernetes Events (core/v1): made from drafts, and put into the outbox with other reports.

use edge_protocol::message::{ObjectKey, Report};
use edge_protocol::names::event_name;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;

use super::context::Context;
use crate::pod::clock::{Mono, Now};
use crate::pod::record::{ContainerKind, PodRecord};
use crate::pod::step::EventDraft;
use crate::store::{Fact, StoreError};

/// `source.component`: what users filter by, so the kubelet's own.
const COMPONENT: &str = "kubelet";

impl Context {
    pub(super) fn warn_about_pod(&mut self, uid: &str, reason: &'static str, message: String) {
        let draft = EventDraft::pod(true, reason, message);
        if let Err(error) = self.pod_event(uid, &draft) {
            log::error!("{error}");
        }
    }

    pub(super) fn warn_about_container(
        &mut self,
        uid: &str,
        container: &str,
        reason: &'static str,
        message: String,
    ) -> Result<(), StoreError> {
        let draft = self.about_container(uid, container, true, reason, message);
        self.pod_event(uid, &draft)
    }

    pub(super) fn about_container(
        &self,
        uid: &str,
        container: &str,
        warning: bool,
        reason: &'static str,
        message: String,
    ) -> EventDraft {
        let record = self.pods.get(uid).and_then(|entry| entry.record.containers.get(container));
        let kind = record.map_or(ContainerKind::App, |record| record.kind);
        EventDraft::container(warning, reason, message, kind, container)
    }

    pub(super) fn pod_event(&mut self, uid: &str, draft: &EventDraft) -> Result<(), StoreError> {
        let Some(entry) = self.pods.get(uid) else { return Ok(()) };
        let now = self.clock.now();
        let event = about_pod(&entry.record, entry.mirror_uid.as_deref(), draft, &self.config.node_name, &now);
        self.queue_event(event)
    }

    pub(super) fn node_event(&mut self, warning: bool, reason: &str, message: &str) -> Result<(), StoreError> {
        let event = about_node(&self.config.node_name, warning, reason, message, &self.clock.now());
        self.queue_event(event)
    }

    /// Stores an event and sends it, unless there were too many of its kind.
    pub(super) fn queue_event(&mut self, event: Value) -> Result<(), StoreError> {
        let Some(event) = self.correlated(event) else { return Ok(()) };
        let (report, settled) = (Report::Event { event }, self.settled_reports());
        let id = self.store.write(|writer| {
            settled.iter().try_for_each(|row| writer.acknowledged(*row))?;
            writer.report(&report)
        })?;
        self.queue_reports(vec![(id, report)]);
        Ok(())
    }

    /// Rows of the outbox that the next commit is to delete: events that a later one has replaced, and what the bridge has.
    pub(super) fn settled_reports(&mut self) -> Vec<u64> {
        let mut rows = self.correlator.dropped();
        rows.extend(self.acknowledged.take());
        rows
    }

    /// Deletes acknowledged reports that no other commit has deleted.
    pub(super) fn delete_acknowledged(&mut self) -> Result<(), StoreError> {
        let rows = self.acknowledged.take();
        if rows.is_empty() {
            return Ok(());
        }
        self.store.write(|writer| rows.iter().try_for_each(|row| writer.acknowledged(*row)))
    }

    /// The same after they have waited long enough. Returns that time.
    pub(super) fn delete_acknowledged_due(&mut self, now: Mono) -> Result<Option<Mono>, StoreError> {
        match self.acknowledged.due() {
            Some(due) if due <= now => self.delete_acknowledged().map(|()| None),
            due => Ok(due),
        }
    }

    /// Returns the event to store together with deleting `settled_reports()`; `None` if there were too many.
    pub(super) fn correlated(&mut self, event: Value) -> Option<Value> {
        let (now, offline) = (self.mono(), !self.outgoing.is_connected());
        let store = &self.store;
        let event = self.correlator.take(event, now, offline, |row| match store.outbox_row(row) {
            Ok(Some(Report::Event { event })) => Some(event),
            _ => None,
        });
        if let Some(event) = &event {
            self.event_log.add(event);
        }
        event
    }

    /// Reports just committed under these numbers.
    pub(super) fn queue_reports(&mut self, reports: Vec<(u64, Report)>) {
        if !self.outgoing.is_connected() {
            for (row, report) in &reports {
                if let Report::Event { event } = report {
                    self.correlator.stored(event, *row);
                }
            }
        }
        self.outgoing.queue(reports.into_iter());
    }

    /// One event for all that were dropped while no bridge took them.
    pub(super) fn tell_dropped(&mut self) -> Result<(), StoreError> {
        let count = self.store.fact(Fact::Dropped)?.unwrap_or_default();
        if count.is_empty() || count == "0" {
            return Ok(());
        }
        let text = format!("{count} events were dropped, oldest first, while no bridge could be reached");
        self.node_event(true, "EventsDropped", &text)?;
        self.store.write(|writer| writer.set_fact(Fact::Dropped, "0"))
    }

    /// Drops events that have waited for too long.
    pub(super) fn expire_events(&mut self, now: Mono) -> Result<(), StoreError> {
        if self.outgoing.is_time_to_expire(now) && self.store.has_events()? {
            let now_s = i64::try_from(now.as_duration().as_secs()).unwrap_or(i64::MAX);
            self.store.write(|writer| writer.expire(now_s))?;
        }
        Ok(())
    }

    /// Stores a report and sends it.
    pub(super) fn report(&mut self, report: Report) -> Result<(), StoreError> {
        let id = self.store.write(|writer| writer.report(&report))?;
        self.queue_reports(vec![(id, report)]);
        Ok(())
    }
}

/// An event about a pod. `api_uid` is the pod's uid in the API (the mirror's for a static pod), if there is one.
pub(super) fn about_pod(record: &PodRecord, api_uid: Option<&str>, draft: &EventDraft, node: &str, now: &Now) -> Value {
    let path = draft.field_path.clone();
    let involved = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(record.namespace.clone()),
        name: Some(record.name.clone()),
        uid: Some(api_uid.unwrap_or(&record.uid).into()),
        field_path: (!path.is_empty()).then_some(path),
        resource_version: None,
    };
    event(involved, draft.warning, &draft.reason, &draft.message, node, now)
}

/// An event about this node, in namespace `default` as the kubelet's.
pub(super) fn about_node(node: &str, warning: bool, reason: &str, message: &str, now: &Now) -> Value {
    let involved = ObjectReference {
        kind: Some("Node".into()),
        name: Some(node.into()),
        uid: Some(node.into()),
        ..ObjectReference::default()
    };
    event(involved, warning, reason, message, node, now)
}

/// An event about an object of another kind: its API version, key and uid; whether it is a warning, reason and message.
pub(super) fn about_object(
    (api_version, key, uid): (&str, &ObjectKey, &str),
    (warning, reason, message): (bool, &str, &str),
    node: &str,
    now: &Now,
) -> Value {
    let involved = ObjectReference {
        api_version: Some(api_version.into()),
        kind: Some(key.kind.clone()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    };
    event(involved, warning, reason, message, node, now)
}

fn event(involved: ObjectReference, warning: bool, reason: &str, message: &str, node: &str, now: &Now) -> Value {
    let time = Time(now.wall);
    // client-go names events OBJECT.HEX-TIME. All decisions of a turn have one time, and two containers may share the
    // other parts.
    let path = involved.field_path.as_deref().unwrap_or_default();
    let unique = crate::pod::id::sha256_hex(format!("{path}/{reason}/{message}").as_bytes());
    let unique = format!("{:x}{}", now.wall.as_nanosecond(), unique.get(..8).unwrap_or_default());
    let name = event_name(involved.name.as_deref().unwrap_or_default(), &unique);
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(involved.namespace.clone().unwrap_or_else(|| "default".into())),
            ..ObjectMeta::default()
        },
        involved_object: involved,
        reason: Some(reason.into()),
        message: Some(message.into()),
        type_: Some(if warning { "Warning" } else { "Normal" }.into()),
        source: Some(EventSource { component: Some(COMPONENT.into()), host: Some(node.into()) }),
        first_timestamp: Some(time.clone()),
        last_timestamp: Some(time),
        count: Some(1),
        reporting_component: Some(COMPONENT.into()),
        reporting_instance: Some(node.into()),
        ..Event::default()
    };
    serde_json::to_value(event).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests;
