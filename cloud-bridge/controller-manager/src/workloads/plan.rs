//! The next actions of a controller, as values that others execute.

use std::time::Duration;

use apimachinery::key::ObjectKey;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::body::Body;
use super::store::{key_of, uid};
use super::world::Kind;

/// Maximum number of writes of one turn; Kubernetes creates 250 (`BurstReplicas`) or 500 pods at once, but here the
/// thread is shared. No plan has more creations of pods.
pub(crate) const WRITES: usize = 128;

/// The next step for one key. A controller is asked again as soon as it is done: it ends with a plan without actions.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) order: Order,
    /// Time after which to plan again, whatever happens.
    pub(crate) again: Option<Duration>,
    /// Events with the reason, before any action.
    pub(crate) told: Vec<Told>,
    /// Events after all actions; of a plan without actions, each time.
    pub(crate) done: Vec<Told>,
}

/// How the actions of a plan follow each other. The first one that fails ends it in each case.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    OneByOne,
    /// One, then two, then four at once: where one fails the others would, too (K8s `slowStartBatch`).
    SlowStart,
    AllAtOnce,
}

impl Plan {
    pub(crate) fn one_by_one(actions: Vec<Action>) -> Self {
        Self { actions, ..Self::default() }
    }

    pub(crate) fn slow_start(actions: Vec<Action>) -> Self {
        Self { actions, order: Order::SlowStart, ..Self::default() }
    }

    pub(crate) fn all_at_once(actions: Vec<Action>) -> Self {
        Self { actions, order: Order::AllAtOnce, ..Self::default() }
    }

    /// Returns the plan, which will be made again after this time.
    pub(crate) fn again(mut self, after: Option<Duration>) -> Self {
        self.again = after;
        self
    }

    /// Returns the plan, with events to emit once it is done.
    pub(crate) fn tell(mut self, told: Vec<Told>) -> Self {
        self.done = told;
        self
    }
}

/// One write, and its events.
#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) kind: Kind,
    /// New object: its namespace, and its name if the controller chooses it.
    pub(crate) key: ObjectKey,
    pub(crate) write: Write,
    /// Check of the API before the write.
    pub(crate) check: Option<Check>,
    /// The events of its success and of its failure.
    pub(crate) done: Option<Told>,
    pub(crate) failed: Option<Told>,
}

#[derive(Debug)]
pub(crate) enum Write {
    /// No write: the object is read for its template. The next plan uses the template.
    Read,
    Create(Body),
    /// The object with this uid; with a version only if it has that one still.
    Delete {
        uid: String,
        version: Option<String>,
        how: Deletion,
    },
    /// A JSON merge patch of the object, or of its subresource.
    Merge {
        subresource: Option<&'static str>,
        patch: Value,
    },
    /// A strategic merge patch of the object, or of its subresource.
    Strategic {
        subresource: Option<&'static str>,
        patch: Value,
    },
}

/// Handling of a deleted object and its dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// Its dependents follow it.
    Background,
    /// It follows its dependents.
    Foreground,
    /// It has no time to end: grace is 0. Only as it is known.
    Now,
}

/// An event on an object. `{}` in its message is the name of the written object, or the error.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) about: ObjectReference,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) component: &'static str,
}

/// Object and source of a controller's events.
#[derive(Debug, Clone)]
pub(crate) struct Teller {
    pub(crate) about: ObjectReference,
    pub(crate) component: &'static str,
}

impl Teller {
    pub(crate) fn new(component: &'static str, kind: Kind, meta: &ObjectMeta) -> Self {
        let about = ObjectReference {
            api_version: Some(kind.api_version()),
            kind: Some(kind.name()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: None,
        };
        Self { about, component }
    }

    pub(crate) fn normal(&self, reason: &'static str, message: impl Into<String>) -> Told {
        Told { about: self.about.clone(), warning: false, reason, message: message.into(), component: self.component }
    }

    pub(crate) fn warning(&self, reason: &'static str, message: impl Into<String>) -> Told {
        Told { warning: true, ..self.normal(reason, message) }
    }

    /// Creates a pod, with the events that all controllers have for it (K8s `PodControl`).
    pub(crate) fn create_pod(&self, namespace: &str, pod: impl Into<Body>) -> Action {
        Action {
            done: Some(self.normal("SuccessfulCreate", "Created pod: {}")),
            failed: Some(self.warning("FailedCreate", "Error creating: {}")),
            ..Action::create(Kind::Pod, namespace, pod)
        }
    }

    /// Deletes a pod, with the events that all controllers have for it.
    pub(crate) fn delete_pod(&self, pod: &ObjectMeta) -> Action {
        Action {
            done: Some(self.normal("SuccessfulDelete", "Deleted pod: {}")),
            failed: Some(self.warning("FailedDelete", "Error deleting: {}")),
            ..Action::delete(Kind::Pod, pod)
        }
    }
}

impl Action {
    /// The event about the write. An object of its name that exists is not an error: it was created before, or belongs
    /// to another owner and is handled as such.
    pub(crate) fn news(&self, result: &Result<Outcome, Failure>) -> Option<Told> {
        let (told, word) = match result {
            Ok(Outcome::Is(answer)) => (&self.done, answer.name.as_deref().unwrap_or(&self.key.name)),
            Ok(Outcome::Removed) => (&self.done, self.key.name.as_str()),
            Ok(Outcome::Gone) => return None,
            Err(failure) if failure.namespace_ends => return None,
            Err(failure) if failure.already_exists && !self.key.name.is_empty() => return None,
            Err(failure) => (&self.failed, failure.message.as_str()),
        };
        let told = told.as_ref()?;
        Some(Told { message: told.message.replace("{}", word), ..told.clone() })
    }

    /// The uid of the object that it removes, if it does.
    pub(crate) fn removes(&self) -> Option<&str> {
        match &self.write {
            Write::Delete { uid, .. } => Some(uid),
            _ => None,
        }
    }

    pub(crate) fn create(kind: Kind, namespace: &str, object: impl Into<Body>) -> Self {
        let object = object.into();
        let name = object.own()["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey { namespace: namespace.to_owned(), name };
        Self { kind, key, write: Write::Create(object), check: None, done: None, failed: None }
    }

    /// Reads an object for its template.
    pub(crate) fn read(kind: Kind, meta: &ObjectMeta) -> Self {
        Self { kind, key: key_of(meta), write: Write::Read, check: None, done: None, failed: None }
    }

    /// Whether it writes nothing.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.write, Write::Read)
    }

    pub(crate) fn delete(kind: Kind, meta: &ObjectMeta) -> Self {
        Self::delete_by(kind, meta, Deletion::Background)
    }

    pub(crate) fn delete_by(kind: Kind, meta: &ObjectMeta, how: Deletion) -> Self {
        let version = meta.resource_version.clone().filter(|_| how == Deletion::Now);
        let write = Write::Delete { uid: uid(meta).to_owned(), version, how };
        Self { kind, key: key_of(meta), write, check: None, done: None, failed: None }
    }

    /// Merges `patch` into the object, if it still is in the state that the controller knows.
    pub(crate) fn merge(kind: Kind, meta: &ObjectMeta, patch: Value) -> Self {
        Self::merge_into(kind, meta, None, patch)
    }

    /// Updates the status `old` to `new`, if the object is still in the known state. `None` if they are equal.
    pub(crate) fn status<S: Serialize>(kind: Kind, meta: &ObjectMeta, old: &S, new: &S) -> Option<Self> {
        let json = |status: &S| serde_json::to_value(status).unwrap_or_default();
        let patch = difference(&json(old), &json(new))?;
        Some(Self::merge_status(kind, meta, json!({"status": patch})))
    }

    /// Merges `patch` into the object by its status subresource, which raises no generation.
    pub(crate) fn merge_status(kind: Kind, meta: &ObjectMeta, patch: Value) -> Self {
        Self::merge_into(kind, meta, Some("status"), patch)
    }

    fn merge_into(kind: Kind, meta: &ObjectMeta, subresource: Option<&'static str>, mut patch: Value) -> Self {
        if let Some(metadata) = apimachinery::json::object_mut(&mut patch, "metadata") {
            metadata.insert("uid".to_owned(), meta.uid.clone().into());
            metadata.insert("resourceVersion".to_owned(), meta.resource_version.clone().into());
        }
        Self {
            kind,
            key: key_of(meta),
            write: Write::Merge { subresource, patch },
            check: None,
            done: None,
            failed: None,
        }
    }
}

/// An object that must exist, or must not, according to the API itself right before the write: the watch may be late
/// (K8s pkg/controller/controller_ref_manager.go `RecheckDeletionTimestamp`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    /// Uid that the object must have; `None` if no object of the name may exist.
    pub(crate) uid: Option<String>,
}

impl Check {
    /// Whether the answer, the object if there is one, is as it has to be.
    pub(crate) fn judge(&self, found: Option<&Value>) -> Result<(), Failure> {
        let meta = found.map(|object| &object["metadata"]);
        let text = |name: &str| meta.and_then(|meta| meta[name].as_str());
        let what = format!("{} {}/{}", self.kind.name(), self.key.namespace, self.key.name);
        let message = match (self.uid.as_deref(), text("uid"), text("deletionTimestamp")) {
            (None, None, _) => return Ok(()),
            (None, Some(_), _) => format!("{what} is there"),
            (Some(wanted), Some(uid), None) if uid == wanted => return Ok(()),
            (Some(wanted), Some(uid), Some(time)) if uid == wanted => format!("{what} has just been deleted at {time}"),
            (Some(wanted), uid, _) => {
                format!("original {what} is gone: got uid {}, wanted {wanted}", uid.unwrap_or("none"))
            }
        };
        Err(Failure { code: 409, message, ..Failure::default() })
    }
}

/// Why a write was not done.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The HTTP status; 0 if there was no answer.
    pub(crate) code: u16,
    pub(crate) message: String,
    /// Every creation will fail, because the namespace is being deleted.
    pub(crate) namespace_ends: bool,
    /// There is one of that name.
    pub(crate) already_exists: bool,
    /// The object that was to be created: its kind, and its name if it had one.
    pub(crate) creates: Option<(Kind, String)>,
}

impl Failure {
    /// Returns the failure, with the action it belongs to.
    pub(crate) fn of(mut self, action: &Action) -> Self {
        self.creates = matches!(action.write, Write::Create(_)).then(|| (action.kind, action.key.name.clone()));
        self
    }

    /// A conflict: another client wrote first, and the local state is outdated.
    pub(crate) fn is_stale(&self) -> bool {
        self.code == 409
    }

    /// Whether the object to change no longer exists; the watch is about to deliver that.
    pub(crate) fn is_of_the_past(&self) -> bool {
        self.code == 404
    }
}

/// Result of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The object as it is now.
    Is(Box<Answer>),
    /// The write removed it.
    Removed,
    /// The object did not exist.
    Gone,
}

impl Outcome {
    /// The object as read now; with its template if `template` is set.
    pub(crate) fn is(kind: Kind, template: bool, object: Value) -> Self {
        Self::Is(Box::new(Answer::read(kind, template, object)))
    }
}

/// The JSON merge patch (RFC 7386) from `old` to `new`; `None` if they are equal.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(before) => patch.extend(difference(before, value).map(|part| (name.clone(), part))),
            // Treats an empty list as absent: the API stores no such list, and the patch would be made again and again.
            None if value.as_array().is_some_and(Vec::is_empty) => {}
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_what_differs() {
        let differs = |old, new| difference(&old, &new);
        assert_eq!(differs(json!({"a": 1, "b": {}}), json!({"a": 1, "b": {}})), None);
        assert_eq!(
            differs(json!({"a": 1, "b": 2, "c": {"d": 3}}), json!({"a": 1, "c": {"d": 4}, "e": {}})),
            Some(json!({"b": null, "c": {"d": 4}, "e": {}}))
        );
        assert_eq!(differs(json!({}), json!({"conditions": []})), None, "no list and an empty one are the same");
        assert_eq!(differs(json!({"a": [1]}), json!({"a": []})), Some(json!({"a": []})));
    }

    #[test]
    fn that_a_name_is_taken_is_told_of_generated_names_only() {
        let teller = Teller::new("test", Kind::Job, &ObjectMeta::default());
        let taken = Failure { code: 409, already_exists: true, message: "taken".to_owned(), ..Failure::default() };
        let refused = Failure { code: 403, message: "no".to_owned(), ..Failure::default() };
        for (name, failure, wanted) in [
            (Some("a"), &taken, None),
            (None, &taken, Some("Error creating: taken")),
            (Some("a"), &refused, Some("Error creating: no")),
        ] {
            let action = teller.create_pod("ns", json!({"metadata": {"name": name}}));
            let told = action.news(&Err(failure.clone()));
            assert_eq!(told.as_ref().map(|told| told.message.as_str()), wanted, "{name:?}");
            assert_eq!(failure.clone().of(&action).creates, Some((Kind::Pod, name.unwrap_or_default().to_owned())));
        }
    }
}
