//! Events for the pods whose volumes are attached, or not. Pure.

use k8s_openapi::api::core::v1::ObjectReference;

use super::object::Pod;
use super::plan::Blocked;
use super::state::{News, State};
use crate::events::event::Event;

const COMPONENT: &str = "attachdetach-controller";
const FAILED: &str = "FailedAttachVolume";

/// Events for the pods that wait for an attachment (K8s pkg/volume/util/operationexecutor, `generateVolumeMsg`).
pub(super) fn of_attachment(state: &State, name: &str, news: &News) -> Vec<Event> {
    let Some(attachment) = state.attachments.get(name) else { return Vec::new() };
    let Some(volume) = state.volumes.get(&attachment.volume) else { return Vec::new() };
    let pods = state.pods_on(&attachment.node).filter(|(_, pod)| pod.claims.contains(&volume.claim));
    let named = &attachment.volume;
    let event = |(key, pod): (&str, &Pod)| match news {
        News::Attached => {
            let message = format!("AttachVolume.Attach succeeded for volume {named:?} ");
            about(key, pod, "Normal", "SuccessfulAttachVolume", message)
        }
        News::Failed(why) => {
            let message = format!("AttachVolume.Attach failed for volume {named:?} : {why}");
            about(key, pod, "Warning", FAILED, message)
        }
    };
    pods.map(event).collect()
}

/// Events for the pods whose volume is attached elsewhere.
pub(super) fn of_blocked(state: &State, blocked: &Blocked) -> Vec<Event> {
    let pods = blocked.pods.iter().filter_map(|key| Some((key, state.pods.get(key)?)));
    pods.map(|(key, pod)| about(key, pod, "Warning", FAILED, blocked.message.clone())).collect()
}

fn about(key: &str, pod: &Pod, kind: &'static str, reason: &'static str, message: String) -> Event {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    };
    Event { about, kind, reason, message, component: COMPONENT, action: None }
}

#[cfg(test)]
mod tests {
    use super::super::object::{Attachment, Volume};
    use super::*;

    #[test]
    fn pods_with_the_volume_on_the_node_hear_of_it() {
        let mut state = State::default();
        let volume = Volume { claim: "ns/data".into(), ..Volume::default() };
        state.volume("pv", Some(volume));
        for (name, node, claim) in [("ns/a", "n", "ns/data"), ("ns/b", "m", "ns/data"), ("ns/c", "n", "ns/more")] {
            let pod = Pod { uid: format!("u-{name}"), node: node.into(), claims: vec![claim.into()] };
            state.pod(name, Some(pod));
        }
        let attachment = Attachment { node: "n".into(), volume: "pv".into(), ..Attachment::default() };
        state.attachment("csi-1", Some(attachment));
        let told = of_attachment(&state, "csi-1", &News::Failed("no such disk".into()));
        assert_eq!((told.len(), told[0].reason, told[0].kind), (1, FAILED, "Warning"));
        assert_eq!(told[0].message, "AttachVolume.Attach failed for volume \"pv\" : no such disk");
        assert_eq!((told[0].about.name.as_deref(), told[0].about.uid.as_deref()), (Some("a"), Some("u-ns/a")));
        assert_eq!(of_attachment(&state, "csi-1", &News::Attached)[0].reason, "SuccessfulAttachVolume");
        let pods = vec!["ns/b".to_owned(), "ns/gone".to_owned()];
        let blocked = Blocked { name: "csi-2".into(), pods, message: "Multi-Attach error".into() };
        assert_eq!(of_blocked(&state, &blocked).len(), 1);
    }
}
