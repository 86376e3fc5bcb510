//! The API in the simulation: objects by name, a number for each write, and the pending events of the watches.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use apimachinery::key::ObjectKey;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::key;
use super::patch::{is_empty, merge, status, strategic};
use crate::workloads::plan::{Action, Deletion, Failure, Outcome, Write};
use crate::workloads::world::Kind;

type Name = (Kind, ObjectKey);

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<Name, Value>,
    version: u64,
    /// Each kind has its own watch, and each lags for itself.
    news: BTreeMap<Kind, VecDeque<(bool, Value)>>,
    pub(super) now: i64,
    /// The scales of custom controllers, by name.
    pub(crate) scales: BTreeMap<String, i64>,
    /// How far the clock was set.
    turned: i64,
    /// How many writes of controllers there were.
    pub(crate) writes: usize,
    /// How often they read a template.
    pub(crate) reads: usize,
    /// The API keeps the objects of this kind as they are, whatever is written.
    pub(crate) ignores: Option<Kind>,
    /// The API creates no objects of this kind.
    pub(crate) refuses: Option<Kind>,
    /// Pods are made without labels and owners, as a hostile admission would have it.
    pub(crate) strips_pods: bool,
    /// Numbers that a check compares with later ones.
    pub(crate) notes: RefCell<BTreeMap<String, i64>>,
}

impl Model {
    pub(crate) fn clock(&self) -> Timestamp {
        Timestamp::from_second(1_720_000_000 + self.now + self.turned).unwrap()
    }

    /// Sets the wall clock forward by this many seconds.
    pub(crate) fn turn_clock(&mut self, seconds: i64) {
        self.turned += seconds;
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> &Value {
        &self.objects[&(kind, key(name))]
    }

    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |((one, _), _)| *one == kind).map(|(_, object)| object)
    }

    pub(crate) fn names(&self, kind: Kind) -> Vec<ObjectKey> {
        self.objects.keys().filter(|(one, _)| *one == kind).map(|(_, key)| key.clone()).collect()
    }

    /// Stores an object as a client does; the generation counts changes of the spec.
    pub(crate) fn put(&mut self, kind: Kind, mut object: Value) -> Value {
        self.version += 1;
        let version = self.version;
        let stamp = self.clock().to_string();
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] =
                format!("{}{version}", object["metadata"]["generateName"].as_str().unwrap()).into();
        }
        if !matches!(kind, Kind::Node | Kind::PersistentVolume | Kind::StorageClass) {
            object["metadata"]["namespace"] = "ns".into();
        }
        // As the API, which stores no list without entries.
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            status.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        }
        // By default pods are on a node that exists: those of a deleted one are removed.
        if kind == Kind::Pod && object["spec"]["nodeName"] == "node" && !self.has_node("node") {
            let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            self.put(Kind::Node, json!({"metadata": {"name": "node"}, "spec": {}, "status": status}));
        }
        let name = (kind, key(object["metadata"]["name"].as_str().unwrap()));
        let before = self.objects.get(&name);
        let generation = before.map_or(0, |before| before["metadata"]["generation"].as_i64().unwrap());
        let changed = before.is_none_or(|before| before["spec"] != object["spec"]);
        object["metadata"]["generation"] = (generation + i64::from(changed)).into();
        if before.is_none() {
            object["metadata"]["uid"] = format!("uid-{version}").into();
            object["metadata"]["creationTimestamp"] = stamp.into();
        }
        object["metadata"]["resourceVersion"] = version.to_string().into();
        self.objects.insert(name, object.clone());
        self.tell(kind, false, object.clone());
        object
    }

    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.objects.contains_key(&(Kind::Node, key(name)))
    }

    fn tell(&mut self, kind: Kind, gone: bool, object: Value) {
        self.news.entry(kind).or_default().push_back((gone, object));
    }

    /// The kinds with pending events.
    pub(super) fn telling(&self) -> Vec<Kind> {
        self.news.iter().filter(|(_, news)| !news.is_empty()).map(|(kind, _)| *kind).collect()
    }

    /// Whether the watch of a kind has pending events.
    pub(crate) fn is_late(&self, kind: Kind) -> bool {
        self.telling().contains(&kind)
    }

    /// The next event of a kind: whether it is a deletion, and the object.
    pub(super) fn next_news(&mut self, kind: Kind) -> Option<(bool, Value)> {
        self.news.get_mut(&kind)?.pop_front()
    }

    pub(super) fn forget_news(&mut self) {
        self.news.clear();
    }

    pub(crate) fn change(&mut self, kind: Kind, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
        let mut object = self.objects[&(kind, key.clone())].clone();
        change(&mut object);
        self.put(kind, object);
    }

    pub(crate) fn remove(&mut self, kind: Kind, key: &ObjectKey) {
        if let Some(mut object) = self.objects.remove(&(kind, key.clone())) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            self.tell(kind, true, object);
        }
    }

    /// The node to which a pod is or may be bound, if it is online: an offline node does not act.
    pub(super) fn node_of(&self, pod: &Value) -> Option<String> {
        let term = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let tied = &term["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
        let Some(name) = pod["spec"]["nodeName"].as_str().or(tied.as_str()) else { return Some("node".to_owned()) };
        let node = self.objects.get(&(Kind::Node, key(name)));
        let ready = node.map(|node| &node["status"]["conditions"][0]["status"]);
        (name == "node" && ready.is_none() || ready.is_some_and(|ready| ready == "True")).then(|| name.to_owned())
    }

    /// Deletes an object that nothing but a finalizer holds.
    pub(crate) fn end(&mut self, kind: Kind, key: &ObjectKey) {
        let Some(object) = self.objects.get(&(kind, key.clone())) else { return };
        if is_empty(&object["metadata"]["finalizers"]) {
            self.remove(kind, key);
        } else if object["metadata"]["deletionGracePeriodSeconds"] != 0 {
            let stamp = self.clock().to_string();
            self.change(kind, key, |object| {
                let metadata = object["metadata"].as_object_mut().unwrap();
                metadata.entry("deletionTimestamp").or_insert(stamp.into());
                metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
            });
        }
    }

    /// Deletes an owner and orphans its dependents (`--cascade=orphan`): they lose the reference first.
    pub(crate) fn orphan(&mut self, kind: Kind, dependents: Kind, key: &ObjectKey) {
        let stamp = self.clock().to_string();
        self.change(kind, key, |object| object["metadata"]["deletionTimestamp"] = stamp.into());
        let uid = self.objects[&(kind, key.clone())]["metadata"]["uid"].clone();
        for name in self.names(dependents) {
            if self.objects[&(dependents, name.clone())]["metadata"]["ownerReferences"][0]["uid"] == uid {
                self.change(dependents, &name, |object| object["metadata"]["ownerReferences"] = json!([]));
            }
        }
        self.remove(kind, key);
    }

    pub(super) fn do_action(&mut self, action: &Action) -> Result<Outcome, Failure> {
        let is = |object: Value| Outcome::is(action.kind, action.is_read(), object);
        if action.is_read() {
            self.reads += 1;
            let object = self.objects.get(&(action.kind, key(&action.key.name)));
            let gone = Failure { code: 404, message: "not found".to_owned(), ..Failure::default() };
            return object.cloned().map(is).ok_or(gone);
        }
        self.writes += 1;
        if let Some(check) = &action.check {
            check.judge(self.objects.get(&(check.kind, key(&check.key.name))))?;
        }
        let failed = |code, message: &str| Err(Failure { code, message: message.to_owned(), ..Failure::default() });
        let place = key(&action.key.name);
        let name = (action.kind, place.clone());
        if let Write::Create(object) = &action.write {
            if self.refuses == Some(action.kind) {
                return failed(403, "no");
            }
            if self.objects.contains_key(&name) {
                return failed(409, "already exists");
            }
            let mut object = object.value();
            if self.strips_pods && action.kind == Kind::Pod {
                object["metadata"] = json!({"generateName": "stripped-"});
            }
            return Ok(is(self.put(action.kind, object)));
        }
        let Some(before) = self.objects.get(&name).cloned() else {
            let deletes = matches!(action.write, Write::Delete { .. });
            return if deletes { Ok(Outcome::Gone) } else { failed(404, "not found") };
        };
        if self.ignores == Some(action.kind) {
            return Ok(is(before));
        }
        match &action.write {
            Write::Read | Write::Create(_) => unreachable!("done above"),
            Write::Delete { uid, .. } if before["metadata"]["uid"] != **uid => failed(409, "another uid"),
            Write::Delete { version: Some(version), .. } if before["metadata"]["resourceVersion"] != **version => {
                failed(409, "changed meanwhile")
            }
            Write::Delete { how, .. }
                if action.kind == Kind::Pod && *how != Deletion::Now && !before["spec"]["nodeName"].is_null() =>
            {
                let stamp = self.clock().to_string();
                self.change(action.kind, &place, |pod| pod["metadata"]["deletionTimestamp"] = stamp.into());
                Ok(is(self.objects[&name].clone()))
            }
            Write::Delete { .. } => {
                self.end(action.kind, &place);
                Ok(self.objects.get(&name).map_or(Outcome::Removed, |object| is(object.clone())))
            }
            Write::Merge { subresource, patch } => {
                if patch["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] {
                    return failed(409, "changed meanwhile");
                }
                let mut after = before.clone();
                merge(&mut after, patch);
                if subresource.is_some() {
                    after["spec"] = before["spec"].clone();
                } else {
                    after["status"] = before["status"].clone();
                }
                Ok(is(self.put(action.kind, after)))
            }
            Write::Strategic { patch, .. }
                if !patch["metadata"]["resourceVersion"].is_null()
                    && patch["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] =>
            {
                failed(409, "changed meanwhile")
            }
            Write::Strategic { subresource: Some(_), patch } => {
                let mut after = before.clone();
                status(&mut after["status"], &patch["status"]);
                Ok(is(self.put(action.kind, after)))
            }
            Write::Strategic { patch, .. } => {
                let mut after = before.clone();
                strategic(&mut after["metadata"], &patch["metadata"]);
                let after = self.put(action.kind, after);
                let meta = &after["metadata"];
                if meta["deletionGracePeriodSeconds"] == 0 && is_empty(&meta["finalizers"]) {
                    self.remove(action.kind, &action.key);
                }
                Ok(is(after))
            }
        }
    }
}
