//! Starts of containers with image volumes.

use serde_json::json;

use super::super::event::{ImageFailure, PodEvent};
use super::super::record::ContainerState;
use super::super::testing::{Sim, pod};
use super::super::{notice, transition};

fn ready(name: &str, image: &str) -> PodEvent {
    PodEvent::ImageReady { container: name.into(), image_id: image.into() }
}

fn sim() -> Sim {
    let mount = |name: &str| json!([{"name": name, "mountPath": "/v"}]);
    let mut sim = Sim::new(pod(json!({
        "containers": [{"name": "c", "image": "img:1", "volumeMounts": mount("data")},
            {"name": "d", "image": "img:1", "volumeMounts": mount("data")},
            {"name": "e", "image": "img:1"}],
        "volumes": [{"name": "data", "image": {"reference": "data:1"}},
            {"name": "unused", "image": {"reference": "nowhere:1"}},
            {"name": "other", "emptyDir": {}}],
    })));
    sim.turn();
    sim
}

#[test]
fn volumes_come_before_the_containers_that_mount_them() {
    let mut sim = sim();
    assert_eq!(sim.sandbox_ready(), ["image data:1", "image data:1", "start e 0"]);
    sim.images.push("data:1".into());
    assert_eq!(sim.tell(ready("c", "r@sha256:1")), ["start c 0"]);
    assert_eq!(sim.tell(ready("d", "r@sha256:2")), ["start d 0"]);
    assert_eq!(sim.record.image_volumes["data"], "r@sha256:1", "one content for all containers");
    assert_eq!(sim.record.containers["c"].image_id, "sha256:img:1");

    for name in ["c", "d", "e"] {
        sim.started(name);
    }
    assert_eq!(sim.exited("c", 1), ["start c 1", "remove c 0"], "not resolved again");
    sim.images.retain(|image| image != "data:1");
    sim.started("c");
    sim.exited("c", 1);
    assert_eq!(sim.wait(10), ["image data:1"], "it has gone from the node");
}

#[test]
fn an_image_at_hand_is_not_pulled_and_a_policy_is_followed() {
    let mut local = sim();
    local.images.push("data:1".into());
    assert_eq!(local.sandbox_ready(), ["start c 0", "start d 0", "start e 0"]);
    let already = "Pulled: Container image \"data:1\" already present on machine and can be accessed by the pod";
    assert_eq!(local.events.iter().filter(|event| *event == already).count(), 1);
    assert_eq!(local.record.image_volumes["data"], "sha256:data:1");

    let mut always = sim();
    always.images.push("data:1".into());
    let volumes = always.pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
    volumes[0].image.as_mut().unwrap().pull_policy = Some("Always".into());
    assert_eq!(always.sandbox_ready(), ["image data:1", "image data:1", "start e 0"]);
}

#[test]
fn missing_image_volume_delays_its_container() {
    let mut sim = sim();
    sim.sandbox_ready();
    let (container, message) = ("c".to_owned(), "no such image".to_owned());
    let event = PodEvent::ImageFailed { container, failure: ImageFailure::Pull, message };
    let told = notice::about(&sim.record, &event);
    assert_eq!((told[0].field_path.as_str(), told[0].reason.as_str()), ("", "Failed"));
    assert_eq!(told[0].message, "Failed to pull image \"data:1\": no such image");
    assert_eq!((&*told[1].field_path, &*told[1].message), ("spec.containers{c}", "Error: ErrImagePull"));
    sim.tell(event);
    assert_eq!(sim.waiting("c"), ("ErrImagePull".into(), "no such image".into()));
    sim.wait(3);
    let text = "Back-off pulling image \"data:1\": ErrImagePull: no such image";
    assert_eq!(sim.waiting("c"), ("ImagePullBackOff".into(), text.into()));
    assert_eq!(sim.wait(7), ["image data:1"]);

    // As an older build wrote it, and after a restart in the middle.
    let old = serde_json::from_value(json!({"state": "Pulling", "reason": "ErrImagePull"})).unwrap();
    assert!(matches!(old, ContainerState::Pulling { volume: None, .. }));
    let live = std::collections::BTreeMap::new();
    let resumed = PodEvent::Resumed { live, sandbox_exists: true };
    sim.record = transition::apply(sim.record.clone(), resumed, &sim.now());
    assert!(sim.turn().contains(&"image data:1".to_owned()));
}
