//! Objects of the cloud on their way into the store: which can be applied, one durable commit for a batch, and the
//! objects of the store at the daemon's start.
//!
//! Knows nothing of running pods, of the link or of time; the daemon and the simulation use the same code.

use sampan_json::SetField;
use std::collections::{BTreeMap, HashSet};

use edge_protocol::edge::Change;
use edge_protocol::message::{Object, ObjectDigest, ObjectKey, Report};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::pod::record::{PodRecord, PodSource};
use crate::pod::refusal::Refusal;
use crate::pod::spec::{MIRROR, annotation};
use crate::pod::support::unknown_field;
use crate::store::{Fact, Store, StoreError};

/// Effect of a batch on the pods here, in order.
#[derive(Debug)]
pub enum Applied {
    /// The newest object of a pod; a refusal if this build's types do not know one of its fields.
    Pod(Box<Pod>, Option<Refusal>),
    Other(ObjectKey),
    /// The object with this uid is gone.
    Gone(ObjectKey, String),
}

/// A batch that is durably in the store.
#[derive(Debug)]
pub struct Batch {
    /// What to acknowledge.
    pub seq: u64,
    pub applied: Vec<Applied>,
    /// Objects that cannot be applied, and why; of each the store keeps what it had.
    pub refused: Vec<(ObjectDigest, String)>,
    /// Put into the outbox with the same commit, by row.
    pub reports: Vec<(u64, Report)>,
    /// A complete list ends with it: what the store does not have is not wanted.
    pub complete: bool,
}

/// One durable commit for the batch, its position included. Acknowledge and act only after this. `manifest_of` gives
/// the manifest of a pod that still runs, by uid: it must stay stoppable after its object is gone. None for no changes.
///
/// # Errors
/// The commit fails (a full disk): nothing of the batch is in the store.
pub fn commit(
    store: &mut Store,
    stream: &str,
    changes: Vec<Change>,
    manifest_of: &dyn Fn(&str) -> Option<Value>,
) -> Result<Option<Batch>, StoreError> {
    let Some(last) = changes.last() else { return Ok(None) };
    let (seq, position) = (last.seq(), last.position(stream));
    let complete = changes.iter().any(|change| matches!(change, Change::SyncComplete { .. }));
    let mut rows = Vec::new();
    let (mut applied, mut refused, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        match change {
            Change::Put { object, .. } => match readable(&object) {
                Ok(effect) => {
                    applied.push(effect);
                    rows.push(Ok(object));
                }
                Err(reason) => {
                    if is_ending(&object) {
                        match ending(store, &object) {
                            Some((salvaged, pod)) => {
                                applied.push(Applied::Pod(Box::new(pod), None));
                                rows.push(Ok(salvaged));
                            }
                            None => gone.push(pod_gone(&object.digest)),
                        }
                    }
                    refused.push((object.digest, reason));
                }
            },
            Change::Delete { key, uid, .. } => {
                applied.push(Applied::Gone(key.clone(), uid.clone()));
                rows.push(Err((key, uid)));
            }
            Change::SyncComplete { absent, .. } => {
                for digest in absent {
                    applied.push(Applied::Gone(digest.key.clone(), digest.uid.clone()));
                    rows.push(Err((digest.key, digest.uid)));
                }
            }
        }
    }
    let dead = rows.iter().filter_map(|row| row.as_ref().err()).filter(|(key, _)| key.kind == "Pod");
    let keep: Vec<(&str, Value)> = dead.filter_map(|(_, uid)| Some((uid.as_str(), manifest_of(uid)?))).collect();
    let ids = store.write_durable(|writer| {
        for (uid, manifest) in &keep {
            writer.put_manifest(uid, manifest)?;
        }
        for row in &rows {
            match row {
                Ok(object) => writer.put_object(object)?,
                Err((key, uid)) => writer.delete_object(key, uid)?,
            }
        }
        // Without a position (an unfinished list) the next connection must list again: an older one would
        // resume behind changes of another bridge.
        let (stream, seq) = position.clone().map_or_else(Default::default, |at| (at.stream, at.seq.to_string()));
        writer.set_fact(Fact::Stream, &stream)?;
        writer.set_fact(Fact::LastSequence, &seq)?;
        if complete {
            writer.clear_fact(Fact::Incomplete)?;
        }
        gone.iter().map(|report| writer.report(report)).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(Some(Batch { seq, applied, refused, reports: ids.into_iter().zip(gone).collect(), complete }))
}

/// A pod that is being deleted: whether it can be read or not, it must end.
fn is_ending(object: &Object) -> bool {
    object.digest.key.kind == "Pod" && object.body["metadata"]["deletionTimestamp"].is_string()
}

/// The stored state of this pod, with the deletion entered. Its digest is cleared, so that a list brings the body
/// again. `None` if there is nothing to stop.
fn ending(store: &Store, object: &Object) -> Option<(Object, Pod)> {
    let ObjectKey { kind, namespace, name } = &object.digest.key;
    let mut body = store.object(kind, namespace, name).ok().flatten()?;
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        body.set_at(&["metadata", field], object.body["metadata"][field].clone());
    }
    let digest = ObjectDigest { digest: String::new(), ..object.digest.clone() };
    let salvaged = Object { digest, body };
    match readable(&salvaged) {
        Ok(Applied::Pod(pod, _)) => Some((salvaged, *pod)),
        _ => None,
    }
}

fn pod_gone(digest: &ObjectDigest) -> Report {
    let ObjectKey { namespace, name, .. } = digest.key.clone();
    Report::PodGone { namespace, name, uid: digest.uid.clone() }
}

/// Whether this build can read the object at all; a reason otherwise.
fn readable(object: &Object) -> Result<Applied, String> {
    let key = &object.digest.key;
    if key.kind != "Pod" {
        return Ok(Applied::Other(key.clone()));
    }
    let pod: Pod = serde_json::from_value(object.body.clone()).map_err(|error| format!("not a v1 Pod: {error}"))?;
    // They become names of folders and cgroups.
    for (field, text) in [("uid", &object.digest.uid), ("namespace", &key.namespace), ("name", &key.name)] {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        if text.is_empty() || text.len() > 253 || text.starts_with('.') || !text.bytes().all(plain) {
            return Err(format!("metadata.{field} {text:?} is no Kubernetes name"));
        }
    }
    let meta = &pod.metadata;
    let announced = (Some(&object.digest.uid), Some(&key.namespace), Some(&key.name));
    if (meta.uid.as_ref(), meta.namespace.as_ref(), meta.name.as_ref()) != announced {
        return Err(format!(
            "its metadata is not what was announced, {}/{} {}",
            key.namespace, key.name, object.digest.uid
        ));
    }
    let refusal = unknown_field(&object.body, &pod);
    Ok(Applied::Pod(Box::new(pod), refusal))
}

/// A pod with a record.
#[derive(Debug)]
pub struct Recorded {
    pub pod: Pod,
    pub record: PodRecord,
    /// The object is no longer in the store: its tombstone was committed, perhaps just before the daemon died and
    /// before any component was notified. The cloud does not repeat it.
    pub gone: bool,
}

/// The pods that the store knows.
#[derive(Debug, Default)]
pub struct Restored {
    /// Pods with a record: they may have containers, whether their object is still wanted or not.
    pub recorded: Vec<Recorded>,
    /// Pods that were sent and never had a turn.
    pub wanted: Vec<(Pod, Option<Refusal>)>,
    /// Pods that may be running but cannot be managed, by uid, with the reason: their row does not parse,
    /// or they have none in a store that [is incomplete](Store::is_incomplete), so that they may have ended long ago.
    pub kept: BTreeMap<String, String>,
    /// Other rows that could not be read, for the log. The cloud sends them again, or they are lost.
    pub lost: Vec<String>,
}

/// Reads every pod, running or wanted.
///
/// # Errors
/// SQLite fails.
pub fn restore(store: &Store) -> Result<Restored, StoreError> {
    let (objects, unreadable) = store.objects_of("Pod")?;
    let (stored, bad) = store.pods()?;
    // By its row, not by its body: an object that cannot be read is not gone.
    let held: HashSet<String> = store.held()?.into_iter().filter(|o| o.key.kind == "Pod").map(|o| o.uid).collect();
    let left_out = |error: &StoreError| format!("{error}; left out until the cloud sends it again");
    let mut restored = Restored { lost: unreadable.iter().map(left_out).collect(), ..Restored::default() };
    restored.kept = bad.into_iter().map(|(uid, error)| (uid, error.to_string())).collect();
    let parse = |body| serde_json::from_value::<Pod>(body).ok();
    let mut wanted: BTreeMap<String, (Pod, Option<Refusal>)> = BTreeMap::new();
    for body in objects {
        let Some(pod) = parse(body.clone()) else { continue };
        let refusal = unknown_field(&body, &pod);
        wanted.insert(pod.metadata.uid.clone().unwrap_or_default(), (pod, refusal));
    }
    for pod in stored {
        let manifest = match pod.record.source {
            PodSource::Api => wanted.remove(&pod.record.uid).map(|(pod, _)| pod).or_else(|| parse(pod.manifest)),
            PodSource::Static => parse(pod.manifest),
        };
        match manifest {
            Some(manifest) => {
                let gone = pod.record.source == PodSource::Api && !held.contains(&pod.record.uid);
                restored.recorded.push(Recorded { pod: manifest, record: pod.record, gone });
            }
            None => {
                let (namespace, name) = (pod.record.namespace, pod.record.name);
                restored.kept.insert(pod.record.uid, format!("pod {namespace}/{name} has no readable manifest"));
            }
        }
    }
    wanted.retain(|uid, _| !restored.kept.contains_key(uid));
    if store.is_incomplete()? {
        let unrecorded = |uid| (uid, "what is recorded of it is lost".to_owned());
        // The API's copies of static pods have no record anyway.
        let lost: Vec<String> = wanted
            .iter()
            .filter(|(_, (pod, _))| annotation(pod, MIRROR).is_none())
            .map(|(uid, _)| uid.clone())
            .collect();
        wanted.retain(|_, (pod, _)| annotation(pod, MIRROR).is_some());
        restored.kept.extend(lost.into_iter().map(unrecorded));
    }
    restored.wanted.extend(wanted.into_values());
    Ok(restored)
}

#[cfg(test)]
mod tests;
