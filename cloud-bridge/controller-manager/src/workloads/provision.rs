//! Claims that need a new volume: an annotation tells the provisioner of their class, as soon as it is known where a
//! pod needs it (K8s pkg/controller/volume/persistentvolume `provisionClaim`); volumes of `sampan.dev/local` are
//! created here. Binding is done elsewhere. Decisions only.

use std::time::Duration;

use apimachinery::key::ObjectKey;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;

use super::plan::{Action, Failure, Plan, Teller, Told};
use super::store::{key_of, uid};
use super::volume_claim::{Claim, SELECTED_NODE};
use super::world::{Change, Kind, Task, World};
use crate::local_volumes::{self, Order};

const COMPONENT: &str = "persistentvolume-controller";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";

/// Delay that lets the binder use an existing volume before a new one is created.
const AFTER_BINDING: Duration = Duration::from_millis(200);

/// The claims to process after a change, and their delays.
pub(crate) fn tasks(world: &World, change: &Change) -> Vec<(Task, Duration)> {
    let key = &change.seen.key;
    let waiting = |key: ObjectKey| {
        // For one that has its node nothing is bound that is not made for it.
        let placed = world.claims.get(&key).is_some_and(|claim| claim.selected_node().is_some());
        ((Kind::PersistentVolumeClaim, key), if placed { Duration::ZERO } else { AFTER_BINDING })
    };
    match change.kind {
        Kind::PersistentVolumeClaim if !change.seen.gone => vec![waiting(key.clone())],
        Kind::Pod => {
            let pod = world.pods.get(key).filter(|pod| pod.spec.node_name.is_some());
            let names = pod.into_iter().flat_map(|pod| &pod.spec.claims.all);
            let keys = names.map(|name| ObjectKey { namespace: key.namespace.clone(), name: name.clone() });
            let unplaced = |claim: &Claim| claim.waits() && claim.selected_node().is_none();
            keys.filter(|key| world.claims.get(key).is_some_and(unplaced)).map(waiting).collect()
        }
        Kind::StorageClass if !change.seen.gone => {
            let of_class = world.claims.all().filter(|claim| claim.waits() && claim.class() == key.name);
            of_class.map(|claim| waiting(key_of(&claim.metadata))).collect()
        }
        _ => Vec::new(),
    }
}

/// The next step for a claim: notify the provisioner, or report why that is impossible.
pub(crate) fn plan(world: &World, key: &ObjectKey, failure: Option<&Failure>) -> Plan {
    let Some(claim) = world.claims.get(key).filter(|claim| failure.is_none() && claim.waits()) else {
        return Plan::default();
    };
    let teller = Teller::new(COMPONENT, Kind::PersistentVolumeClaim, &claim.metadata);
    let name = claim.class();
    if name.is_empty() {
        let words = "no persistent volumes available for this claim and no storage class is set";
        return Plan::default().tell(vec![teller.normal("FailedBinding", words)]);
    }
    let Some(class) = world.storage_classes.get(&ObjectKey::cluster(name)) else {
        let words = format!("storageclass.storage.k8s.io {name:?} not found");
        return Plan::default().tell(vec![teller.warning("ProvisioningFailed", words)]);
    };
    if waits_for_pod(class) && claim.selected_node().is_none() {
        if let Some(node) = named_node(world, key, class) {
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            return Plan::one_by_one(vec![Action::merge(Kind::PersistentVolumeClaim, &claim.metadata, patch)]);
        }
        let words = "waiting for first consumer to be created before binding";
        return Plan::default().tell(vec![teller.normal("WaitForFirstConsumer", words)]);
    }
    if class.provisioner.starts_with("kubernetes.io/") {
        let words = format!("no volume plugin matched name: {}", class.provisioner);
        return Plan::default().tell(vec![teller.warning("ProvisioningFailed", words)]);
    }
    let told = told(claim, &class.provisioner, &teller);
    if told.actions.is_empty() && class.provisioner == local_volumes::PROVISIONER {
        return make(world, claim, class, &teller);
    }
    told
}

/// Creates the volume of a claim on the node that was selected for it.
fn make(world: &World, claim: &Claim, class: &StorageClass, teller: &Teller) -> Plan {
    let component = local_volumes::PROVISIONER;
    let teller = Teller { component, ..teller.clone() };
    let failed = |words: String| Plan::default().tell(vec![teller.warning("ProvisioningFailed", words)]);
    let Some(node) = claim.selected_node() else {
        return failed(format!("provisioner {component} needs volumeBindingMode WaitForFirstConsumer"));
    };
    let uid = uid(&claim.metadata);
    if world.volumes.get(&ObjectKey::cluster(&local_volumes::name(uid))).is_some() {
        return Plan::default();
    }
    // The scheduler chooses another one.
    if world.nodes.get(&ObjectKey::cluster(node)).is_none() {
        return failed(format!("node {node:?} is not there any more"));
    }
    let key = key_of(&claim.metadata);
    let order = Order { claim: (&key.namespace, &key.name, uid), spec: &claim.spec.json(), class: &json!(class), node };
    let volume = match local_volumes::volume(&order) {
        Ok(volume) => volume,
        Err(why) => return failed(why),
    };
    let mut action = Action::create(Kind::PersistentVolume, "", volume);
    action.done = Some(teller.normal(
        "ProvisioningSucceeded",
        format!("Successfully provisioned volume {{}} on node {node}; its size is not enforced"),
    ));
    action.failed = Some(teller.warning("ProvisioningFailed", "Error saving volume: {}"));
    Plan::one_by_one(vec![action])
}

/// The node that a pod with the claim names itself, past the scheduler, which else chooses it: a local volume can be made
/// there. Kubernetes leaves such a pod waiting forever; manifests for KubeEdge name their node.
fn named_node(world: &World, claim: &ObjectKey, class: &StorageClass) -> Option<String> {
    if class.provisioner != local_volumes::PROVISIONER {
        return None;
    }
    let pods = world.pods.using(claim).filter(|pod| pod.is_active());
    let mut nodes = pods.filter_map(|pod| pod.spec.node_name.as_deref());
    nodes.find(|node| world.nodes.get(&ObjectKey::cluster(node)).is_some()).map(str::to_owned)
}

fn waits_for_pod(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The claim names its provisioner.
fn told(claim: &Claim, provisioner: &str, teller: &Teller) -> Plan {
    if [PROVISIONER, OLD_PROVISIONER].iter().all(|name| claim.annotation(name) == Some(provisioner)) {
        return Plan::default();
    }
    let patch = json!({"metadata": {"annotations": {PROVISIONER: provisioner, OLD_PROVISIONER: provisioner}}});
    let mut action = Action::merge(Kind::PersistentVolumeClaim, &claim.metadata, patch);
    action.failed = Some(teller.warning("ProvisioningFailed", "Error saving claim: {}"));
    action.done = Some(external(teller, provisioner));
    Plan::one_by_one(vec![action])
}

fn external(teller: &Teller, provisioner: &str) -> Told {
    let words = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    );
    teller.normal("ExternalProvisioning", words)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::workloads::simulation::{Course, key};

    fn course() -> Course {
        let mut course = Course::new(1, |_, _| {});
        course.calm = true;
        for (name, provisioner, mode) in [
            ("now", "example.com/disks", "Immediate"),
            ("later", "example.com/disks", "WaitForFirstConsumer"),
            ("none", "kubernetes.io/no-provisioner", "Immediate"),
        ] {
            let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
            course.model.put(Kind::StorageClass, class);
        }
        course
    }

    fn claim(name: &str, class: &str, more: &Value) -> Value {
        let mut spec = json!({"storageClassName": class});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}})
    }

    fn annotations(course: &Course, name: &str) -> Value {
        course.model.get(Kind::PersistentVolumeClaim, name)["metadata"]["annotations"].clone()
    }

    #[test]
    fn pod_that_names_its_node_gets_a_local_volume() {
        let mut course = course();
        let class = json!({"metadata": {"name": "local"}, "provisioner": local_volumes::PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer"});
        course.model.put(Kind::StorageClass, class);
        course.model.put(Kind::Node, json!({"metadata": {"name": "a"}, "spec": {}}));
        let modes = json!({"accessModes": ["ReadWriteOnce"]});
        for (name, class) in [("ours", "local"), ("theirs", "later"), ("absent", "local"), ("unplaced", "local")] {
            course.model.put(Kind::PersistentVolumeClaim, claim(name, class, &modes));
            let node = match name {
                "absent" => json!("no-such-node"),
                "unplaced" => Value::Null,
                _ => json!("a"),
            };
            let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
            let spec = json!({"nodeName": node, "containers": [], "volumes": volumes});
            course.step(1);
            course.model.put(Kind::Pod, json!({"metadata": {"name": format!("pod-{name}")}, "spec": spec}));
        }
        course.step(1);
        course.step(1);
        assert_eq!(annotations(&course, "ours")[SELECTED_NODE], "a");
        for name in ["theirs", "absent", "unplaced"] {
            assert_eq!(annotations(&course, name)[SELECTED_NODE], Value::Null, "{name}");
        }
        assert_eq!(course.model.of(Kind::PersistentVolume).count(), 1);
    }

    #[test]
    fn the_provisioner_of_a_class_is_told_once_it_is_known_where() {
        let mut course = course();
        let bound = json!({"volumeName": "pv"});
        for (name, class, more) in [
            ("now", "now", json!({})),
            ("later", "later", json!({})),
            ("none", "none", json!({})),
            ("missing", "missing", json!({})),
            ("plain", "", json!({})),
            ("bound", "now", bound),
        ] {
            course.model.put(Kind::PersistentVolumeClaim, claim(name, class, &more));
        }
        course.step(1);
        course.step(1);
        let told = json!({PROVISIONER: "example.com/disks", OLD_PROVISIONER: "example.com/disks"});
        assert_eq!(annotations(&course, "now"), told);
        for name in ["later", "none", "missing", "plain", "bound"] {
            assert_eq!(annotations(&course, name), Value::Null, "{name}");
        }
        course.model.change(Kind::PersistentVolumeClaim, &key("later"), |claim| {
            claim["metadata"]["annotations"] = json!({SELECTED_NODE: "a"});
        });
        let class = json!({"metadata": {"name": "missing"}, "provisioner": "example.com/disks"});
        course.model.put(Kind::StorageClass, class);
        course.step(1);
        course.step(1);
        assert_eq!(annotations(&course, "later")[PROVISIONER], "example.com/disks");
        assert_eq!(annotations(&course, "missing")[PROVISIONER], "example.com/disks", "its class came");
        let class = json!({"metadata": {"name": "local"}, "provisioner": local_volumes::PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer"});
        course.model.put(Kind::StorageClass, class);
        course
            .model
            .put(Kind::PersistentVolumeClaim, claim("ours", "local", &json!({"accessModes": ["ReadWriteOnce"]})));
        course.step(1);
        let volumes = |course: &Course| course.model.of(Kind::PersistentVolume).cloned().collect::<Vec<_>>();
        assert!(volumes(&course).is_empty());
        course.model.change(Kind::PersistentVolumeClaim, &key("ours"), |claim| {
            claim["metadata"]["annotations"] = json!({SELECTED_NODE: "a"});
        });
        course.step(1);
        assert!(volumes(&course).is_empty(), "there is no such node");
        course.model.put(Kind::Node, json!({"metadata": {"name": "a"}, "spec": {}}));
        course.model.change(Kind::PersistentVolumeClaim, &key("ours"), |claim| {
            claim["metadata"]["labels"] = json!({"looked": "again"});
        });
        course.step(1);
        course.step(1);
        let made = volumes(&course);
        assert_eq!((made.len(), &made[0]["spec"]["claimRef"]["name"]), (1, &json!("ours")));
        let version = |course: &Course| course.model.get(Kind::PersistentVolumeClaim, "now")["metadata"].clone();
        let before = version(&course);
        course.step(30);
        assert_eq!(version(&course), before, "once");
    }
}
