//! The claims of ephemeral volumes: each has the name of pod and volume, belongs to the pod and goes with it (K8s
//! pkg/controller/volume/ephemeral). Decisions only.

use apimachinery::json::text;
use apimachinery::key::ObjectKey;
use serde_json::{Value, json};

use super::claim::controller_reference;
use super::index::controller_of;
use super::plan::{Action, Failure, Plan, Teller};
use super::pod::Pod;
use super::store::key_of;
use super::volume_claim::Claim;
use super::world::{Change, Kind, Task, World};

const COMPONENT: &str = "ephemeral_volume";
const REASON: &str = "FailedBinding";

/// The pods that need a claim after a change.
pub(crate) fn tasks(world: &World, change: &Change) -> Vec<Task> {
    let key = &change.seen.key;
    let task = |pod: &Pod| (Kind::Pod, key_of(&pod.metadata));
    match change.kind {
        Kind::Pod => world.pods.get(key).filter(|pod| lacks(world, pod)).map(task).into_iter().collect(),
        // A client deleted it, and the pod is still there.
        Kind::PersistentVolumeClaim if change.seen.gone => {
            world.pods.using(key).filter(|pod| lacks(world, pod)).map(task).collect()
        }
        _ => Vec::new(),
    }
}

fn lacks(world: &World, pod: &Pod) -> bool {
    let has = |volume: &String| found(world, pod, volume).is_some_and(|claim| is_for(claim, pod));
    !pod.is_deleting() && !pod.spec.claims.ephemeral.iter().all(has)
}

fn found<'a>(world: &'a World, pod: &Pod, volume: &str) -> Option<&'a Claim> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    world.claims.get(&ObjectKey { namespace, name: pod.claim_of(volume) })
}

/// Whether a claim was created for the pod: another pod or a user may have one of that name.
fn is_for(claim: &Claim, pod: &Pod) -> bool {
    controller_of(&claim.metadata).is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// The next claim of a pod, or why it cannot be created.
pub(crate) fn plan(world: &World, key: &ObjectKey, failure: Option<&Failure>) -> Plan {
    let Some(pod) = world.pods.get(key).filter(|pod| failure.is_none() && lacks(world, pod)) else {
        return Plan::default();
    };
    let teller = Teller::new(COMPONENT, Kind::Pod, &pod.metadata);
    for volume in &pod.spec.claims.ephemeral {
        let name = pod.claim_of(volume);
        match found(world, pod, volume) {
            Some(claim) if is_for(claim, pod) => continue,
            Some(_) => {
                let (namespace, pod) = (&key.namespace, &key.name);
                let words = format!(
                    "ephemeral volume {volume}: PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod \
                     is not owner)"
                );
                return Plan::default().tell(vec![teller.warning(REASON, words)]);
            }
            None => {}
        }
        let Some(template) = world.template(Kind::Pod, &pod.metadata) else {
            return Plan::one_by_one(vec![Action::read(Kind::Pod, &pod.metadata)]);
        };
        let volumes = template.spec.get("volumes");
        let Some(object) = claim(pod, &name, volume, &volumes) else { return Plan::default() };
        let mut action = Action::create(Kind::PersistentVolumeClaim, &key.namespace, object);
        action.failed = Some(teller.warning(REASON, format!("ephemeral volume {volume}: create PVC {name}: {{}}")));
        return Plan::one_by_one(vec![action]);
    }
    Plan::default()
}

/// The claim of a volume; `None` if the volumes do not name it.
fn claim(pod: &Pod, name: &str, volume: &str, volumes: &Value) -> Option<Value> {
    let all = volumes.as_array()?;
    let template = &all.iter().find(|one| text(one, "name") == volume)?["ephemeral"]["volumeClaimTemplate"];
    let metadata = &template["metadata"];
    Some(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {
        "name": name, "labels": metadata["labels"], "annotations": metadata["annotations"],
        "ownerReferences": [controller_reference(Kind::Pod, &pod.metadata)],
    }, "spec": template["spec"]}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::simulation::{Course, key};

    fn pod(name: &str) -> Value {
        let template = json!({"metadata": {"labels": {"app": "x"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
            {"name": "more", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "e", "emptyDir": {}}]);
        json!({"metadata": {"name": name}, "spec": {"containers": [], "volumes": volumes}})
    }

    fn course() -> Course {
        let mut course = Course::new(1, |_, _| {});
        course.calm = true;
        course
    }

    fn claims(course: &Course) -> Vec<String> {
        course.model.names(Kind::PersistentVolumeClaim).into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn ephemeral_volume_gets_a_claim_that_belongs_to_the_pod() {
        let mut course = course();
        let made = course.model.put(Kind::Pod, pod("web"));
        course.step(1);
        assert_eq!(claims(&course), ["web-more", "web-scratch"]);
        let claim = course.model.get(Kind::PersistentVolumeClaim, "web-scratch");
        assert_eq!(claim["metadata"]["labels"], json!({"app": "x"}));
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1Gi");
        let owner = &claim["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["controller"]), (&made["metadata"]["uid"], &json!(true)));
        course.model.remove(Kind::PersistentVolumeClaim, &key("web-scratch"));
        course.step(1);
        assert_eq!(claims(&course), ["web-more", "web-scratch"], "it is created again");
    }

    #[test]
    fn claim_of_another_owner_is_left_alone() {
        let mut course = course();
        let other = json!({"metadata": {"name": "web-scratch"}, "spec": {}, "status": {"phase": "Pending"}});
        course.model.put(Kind::PersistentVolumeClaim, other);
        course.model.put(Kind::Pod, pod("web"));
        course.step(1);
        course.step(30);
        assert_eq!(claims(&course), ["web-scratch"], "the first volume fails, and the second waits for it");
        let claim = course.model.get(Kind::PersistentVolumeClaim, "web-scratch");
        assert!(claim["metadata"]["ownerReferences"].is_null());
    }

    #[test]
    fn pod_that_is_to_go_gets_no_claim() {
        let mut course = course();
        let mut ending = pod("web");
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        ending["metadata"]["finalizers"] = json!(["example.com/own"]);
        ending["spec"]["nodeName"] = "n".into();
        course.model.put(Kind::Node, json!({"metadata": {"name": "n"}, "spec": {}}));
        course.model.put(Kind::Pod, ending);
        course.step(1);
        assert!(claims(&course).is_empty());
    }

    #[test]
    fn event_names_claim_and_pod() {
        use kube::runtime::watcher::Event;

        use crate::workloads::now::Now;
        use crate::workloads::world::Watched;

        let mut world = World::default();
        let mut put = |kind, object: Value| {
            let read = Watched::read(kind, Event::Apply(object)).unwrap();
            world.watched(read, Now::default());
        };
        let mut web = pod("web");
        web["metadata"]["namespace"] = "ns".into();
        put(Kind::Pod, web);
        put(Kind::PersistentVolumeClaim, json!({"metadata": {"name": "web-scratch", "namespace": "ns"}, "spec": {}}));
        let plan = plan(&world, &key("web"), None);
        let told = "ephemeral volume scratch: PVC ns/web-scratch was not created for pod ns/web (pod is not owner)";
        assert_eq!(
            (plan.actions.len(), plan.done[0].message.as_str(), plan.done[0].reason),
            (0, told, "FailedBinding")
        );
    }
}
