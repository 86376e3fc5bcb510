//! The objects that decide about attachments, followed. No decisions.

use std::sync::Arc;

use apimachinery::json::{flag, present};
use apimachinery::meta;
use apimachinery::pace::in_slices;
use futures::stream::SelectAll;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::Client;
use kube::api::ApiResource;
use kube::runtime::watcher::Event;
use serde_json::Value;

use super::object::{Attachment, Node, Pod, Volume, path};
use crate::pods::{self, Pods};
use crate::watch;

/// Kinds that the controller reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Attachment,
    Driver,
    Node,
    Pod,
    Volume,
}

pub(super) const KINDS: [Kind; 5] = [Kind::Attachment, Kind::Driver, Kind::Node, Kind::Pod, Kind::Volume];

/// The part of an object that is kept; nothing of those that do not matter here.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Object {
    Attachment(Option<Attachment>),
    /// Whether volumes of the driver are attached.
    Driver(bool),
    Node(Node),
    Pod(Option<Pod>),
    Volume(Option<Volume>),
}

/// An object with its name; of a pod, `NAMESPACE/NAME`.
pub(super) type Named = (String, Object);

pub(super) type Seen = (Kind, Result<Event<Named>, String>);

/// Waits until there is a volume of a CSI driver. A site without one pays for no other watch.
pub(super) async fn until_needed(client: &Client) {
    let kind = ApiResource::erase::<core::PersistentVolume>(&());
    let mut volumes = Box::pin(in_slices(watch::values(client, &kind)));
    while let Some(event) = volumes.next().await {
        match event {
            Ok(Event::Apply(volume) | Event::InitApply(volume)) if Volume::read(&volume).is_some() => return,
            Ok(_) => {}
            Err(error) => log::warn!("attachments: watching volumes: {error}"),
        }
    }
    std::future::pending().await
}

/// Follows all kinds.
pub(super) fn all(client: &Client, pods: &Pods) -> impl Stream<Item = Seen> + Send + use<> {
    let mut all = SelectAll::new();
    all.push(pods.follow().map(|event| (Kind::Pod, mapped(event, |pod| of_pod(&pod)))).boxed());
    for kind in KINDS {
        let resource = match kind {
            Kind::Attachment => ApiResource::erase::<VolumeAttachment>(&()),
            Kind::Driver => ApiResource::erase::<CSIDriver>(&()),
            Kind::Node => ApiResource::erase::<core::Node>(&()),
            Kind::Volume => ApiResource::erase::<core::PersistentVolume>(&()),
            Kind::Pod => continue,
        };
        let events = in_slices(watch::values(client, &resource));
        let read = move |object: Value| read(kind, &object);
        all.push(events.map(move |event| (kind, event.and_then(|event| mapped(event, read)))).boxed());
    }
    all
}

fn mapped<A>(event: Event<A>, read: impl FnOnce(A) -> Named) -> Result<Event<Named>, String> {
    watch::map(event, |object| Ok(read(object))).map_err(|misfit| misfit.to_string())
}

fn read(kind: Kind, object: &Value) -> Named {
    let part = match kind {
        Kind::Attachment => Object::Attachment(Attachment::read(object)),
        Kind::Driver => {
            let needed = &object["spec"];
            Object::Driver(present(needed, "attachRequired").is_none() || flag(needed, "attachRequired"))
        }
        Kind::Node => Object::Node(Node::read(object)),
        Kind::Volume => Object::Volume(Volume::read(object)),
        Kind::Pod => Object::Pod(None),
    };
    (meta::text(object, "name").to_owned(), part)
}

/// A pod on a node, with claims. A terminated one needs no volume.
fn of_pod(pod: &Arc<pods::Pod>) -> Named {
    let pod = &pod.working;
    let meta = &pod.metadata;
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let (node, claims) = (pod.spec.node_name.as_deref().unwrap_or_default(), &pod.spec.claims.all);
    let kept = (!node.is_empty() && !claims.is_empty() && !pod.is_terminal()).then(|| Pod {
        uid: meta.uid.clone().unwrap_or_default(),
        node: node.to_owned(),
        claims: claims.iter().map(|claim| path(namespace, claim)).collect(),
    });
    (path(namespace, name), Object::Pod(kept))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn driver_attaches_unless_it_says_otherwise() {
        for (spec, attaches) in
            [(json!({}), true), (json!({"attachRequired": true}), true), (json!({"attachRequired": false}), false)]
        {
            let driver = json!({"metadata": {"name": "d"}, "spec": spec});
            assert_eq!(read(Kind::Driver, &driver), ("d".to_owned(), Object::Driver(attaches)));
        }
    }

    #[test]
    fn pod_without_claim_or_node_or_future_is_not_kept() {
        let kept = |node: &str, phase: &str, volumes: Value| {
            let object = json!({"metadata": {"namespace": "ns", "name": "a", "uid": "u"},
                "spec": {"nodeName": node, "containers": [], "volumes": volumes}, "status": {"phase": phase}});
            let pod = pods::Pod::read(&object, 1).unwrap();
            let (name, object) = of_pod(&Arc::new(pod));
            assert_eq!(name, "ns/a");
            object
        };
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
        let claims = vec!["ns/data".to_owned(), "ns/a-e".to_owned()];
        let pod = Pod { uid: "u".into(), node: "n".into(), claims };
        assert_eq!(kept("n", "Running", volumes.clone()), Object::Pod(Some(pod)));
        for (node, phase, volumes) in
            [("", "Pending", volumes.clone()), ("n", "Succeeded", volumes), ("n", "Running", json!([]))]
        {
            assert_eq!(kept(node, phase, volumes), Object::Pod(None));
        }
    }
}
