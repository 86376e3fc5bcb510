//! Protection of objects in use: a claim is kept while a pod uses it, a volume while it is bound. Both have a finalizer
//! from their creation on, which is removed here (K8s pkg/controller/volume/pvcprotection and pvprotection). Decisions
//! only.

use apimachinery::key::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::plan::{Action, Plan};
use super::store::key_of;
use super::world::{Change, Kind, Task, World};
use super::{volume, volume_claim};

/// The claims that may go because of a change of a pod, and claims and volumes that are to go.
pub(crate) fn tasks(world: &World, change: &Change) -> Vec<Task> {
    let key = &change.seen.key;
    match change.kind {
        Kind::Pod => {
            let claims = world.claims.in_namespace(&key.namespace).filter(|claim| claim.is_protected());
            let free = claims.map(|claim| key_of(&claim.metadata)).filter(|claim| !is_used(world, claim));
            free.map(|claim| (Kind::PersistentVolumeClaim, claim)).collect()
        }
        Kind::PersistentVolume if !change.seen.gone => vec![(Kind::PersistentVolume, key.clone())],
        _ => Vec::new(),
    }
}

/// Whether a pod uses a claim. A pod without a node does not count: no node starts a pod whose claim is being deleted.
fn is_used(world: &World, claim: &ObjectKey) -> bool {
    world.pods.using(claim).any(|pod| pod.spec.node_name.is_some())
}

/// Lets a claim go that no pod uses.
pub(crate) fn of_claim(world: &World, key: &ObjectKey) -> Plan {
    let Some(claim) = world.claims.get(key).filter(|claim| claim.is_protected()) else { return Plan::default() };
    if is_used(world, key) {
        return Plan::default();
    }
    Plan::one_by_one(vec![release(Kind::PersistentVolumeClaim, &claim.metadata, volume_claim::PROTECTION)])
}

/// Removes the protection of an unbound volume.
pub(crate) fn of_volume(world: &World, key: &ObjectKey) -> Plan {
    let volume = world.volumes.get(key).filter(|volume| volume.is_protected() && !volume.is_bound());
    let Some(volume) = volume else { return Plan::default() };
    Plan::one_by_one(vec![release(Kind::PersistentVolume, &volume.metadata, volume::PROTECTION)])
}

fn release(kind: Kind, meta: &ObjectMeta, finalizer: &str) -> Action {
    let left: Vec<&String> = meta.finalizers.iter().flatten().filter(|one| *one != finalizer).collect();
    Action::merge(kind, meta, json!({"metadata": {"finalizers": left}}))
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::Value;

    use super::*;
    use crate::workloads::now::Now;
    use crate::workloads::simulation::{Course, key};
    use crate::workloads::world::Watched;

    fn deleted(finalizer: &str, phase: &str) -> Value {
        json!({"metadata": {"name": "data", "finalizers": [finalizer, "example.com/own"],
            "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}, "status": {"phase": phase}})
    }

    fn finalizers(course: &Course, kind: Kind) -> Value {
        course.model.get(kind, "data")["metadata"]["finalizers"].clone()
    }

    #[test]
    fn a_claim_goes_with_the_last_pod_on_a_node_that_uses_it() {
        let mut course = Course::new(1, |_, _| {});
        course.calm = true;
        let pod = |name: &str, node: Option<&str>, claim: &str| {
            let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
            json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [], "volumes": [volume]}})
        };
        for pod in [pod("user", Some("node"), "data"), pod("waiting", None, "data"), pod("other", Some("node"), "more")]
        {
            course.model.put(Kind::Pod, pod);
        }
        course.model.put(Kind::PersistentVolumeClaim, deleted(volume_claim::PROTECTION, "Bound"));
        course.step(1);
        assert_eq!(
            finalizers(&course, Kind::PersistentVolumeClaim),
            json!([volume_claim::PROTECTION, "example.com/own"])
        );
        course.model.end(Kind::Pod, &key("user"));
        course.step(1);
        assert_eq!(finalizers(&course, Kind::PersistentVolumeClaim), json!(["example.com/own"]));
    }

    #[test]
    fn change_of_a_pod_concerns_claims_that_no_pod_uses() {
        let (mut world, now) = (World::default(), Now::default());
        let mut written = |kind, object| {
            let read = Watched::read(kind, Event::Apply(object)).unwrap();
            world.watched(read, now).pop()
        };
        written(Kind::PersistentVolumeClaim, deleted(volume_claim::PROTECTION, "Bound"));
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let spec = json!({"nodeName": "node", "containers": [], "volumes": [volume]});
        let change = written(Kind::Pod, json!({"metadata": {"name": "user", "uid": "u"}, "spec": spec}));
        assert!(tasks(&world, &change.unwrap()).is_empty());
        let change = world.removed(Kind::Pod, &ObjectKey::cluster("user"), "u");
        let claim = (Kind::PersistentVolumeClaim, ObjectKey::cluster("data"));
        assert_eq!(tasks(&world, &change.unwrap()), [claim]);
    }

    #[test]
    fn a_volume_goes_when_nobody_has_it() {
        let mut course = Course::new(1, |_, _| {});
        course.calm = true;
        course.model.put(Kind::PersistentVolume, deleted(volume::PROTECTION, "Bound"));
        course.step(1);
        assert_eq!(finalizers(&course, Kind::PersistentVolume), json!([volume::PROTECTION, "example.com/own"]));
        course
            .model
            .change(Kind::PersistentVolume, &key("data"), |volume| volume["status"]["phase"] = "Released".into());
        course.step(1);
        assert_eq!(finalizers(&course, Kind::PersistentVolume), json!(["example.com/own"]));
    }
}
