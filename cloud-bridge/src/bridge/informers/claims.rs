//! A PersistentVolumeClaim with the volume it is bound to, as one object for the node. Read by name and repeatedly
//! until it is bound: a node may get single claims and volumes, but not watch them (node authorizer).
//!
//! A claim whose volume has to be attached waits for the list of VolumeAttachments, and is told again after each change
//! of one of its own: on its way to a node it gets the node's attachment (`attached`).

use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::ObjectKey;
use kube::api::DynamicObject;
use kube::{Api, Client};
use sampan_json::SetField;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::news::{Subscription, What, failure};
use crate::bridge::attachments::{AttachmentWatch, Attachments, Changes};
use crate::bridge::pauses::Pauses;
use crate::bridge::requests::is_path_segment;
use crate::bridge::resource::{of_kind, resource};
use crate::bridge::slim::made_object;
use crate::bridge::told::kinds::Kind;
use crate::bridge::world::Round;

/// Pause before an unbound claim is read again, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Interval at which a bound claim is read: it changes only by its deletion.
const BOUND: Duration = Duration::from_secs(120);
/// Time after which a claim counts as unanswered while Nodes and VolumeAttachments are being read.
const PATIENCE: Duration = Duration::from_secs(15);
/// Changes of an attachment within this time are told together.
const SOON: Duration = Duration::from_millis(100);

/// What was read of a claim.
struct Look {
    what: What,
    /// It is bound, and its volume was read.
    bound: bool,
    attach: Attach,
}

/// Whether a volume has to be attached to the node before it is mounted.
enum Attach {
    /// The API did not answer.
    Unknown,
    No,
    /// It is one of a CSI driver, and no node mounts those.
    Unasked,
    /// The volume of this name has to be.
    Yes(String),
}

/// Follows until aborted. VolumeAttachments are of this round of readings or later.
pub(super) async fn follow_claim(client: Client, attachments: Arc<Attachments>, round: Round, to: Subscription) {
    let mut pauses = Pauses::new(AGAIN);
    let mut wanted = attachments.wanted();
    // The watch of attachments runs as long as this is held.
    let mut changes: Option<Changes> = None;
    loop {
        let is_wanted = *wanted.borrow_and_update();
        let Look { what, bound, attach } = look(&client, &to.key, is_wanted).await;
        let unasked = matches!(attach, Attach::Unasked);
        match attach {
            Attach::Unknown => {}
            Attach::No | Attach::Unasked => changes = None,
            Attach::Yes(volume) => {
                let watch = attachments.watch(round);
                changes = Some(watch.changes(&volume));
                while timeout(PATIENCE, read(&attachments, &watch, round)).await.is_err() {
                    if to.tell(What::Failed).await.is_none() {
                        return;
                    }
                }
            }
        }
        if to.tell(what).await.is_none() {
            return;
        }
        let pause = async { if bound { sleep(BOUND).await } else { pauses.wait().await } };
        tokio::select! {
            () = pause => {}
            () = next(&mut changes) => sleep(SOON).await,
            Ok(()) = wanted.changed(), if unasked => {}
        }
    }
}

/// Waits until Nodes and VolumeAttachments have been read.
async fn read(attachments: &Attachments, watch: &AttachmentWatch, round: Round) {
    attachments.nodes_read().await;
    watch.read(round).await;
}

/// Waits for a change of an attachment; for ever without a watch.
async fn next(changes: &mut Option<Changes>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

/// `csi`: whether a node mounts volumes of CSI drivers.
async fn look(client: &Client, key: &ObjectKey, csi: bool) -> Look {
    let claims: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &of_kind(Kind::Claim));
    let failed = |error: kube::Error| {
        log::warn!("asking for claim {}/{}: {error}", key.namespace, key.name);
        Look { what: failure(&error), bound: false, attach: Attach::Unknown }
    };
    let claim = match claims.get_opt(&key.name).await {
        Ok(Some(claim)) => claim,
        Ok(None) => return Look { what: What::Absent, bound: false, attach: Attach::No },
        Err(error) => return failed(error),
    };
    let name = claim.data["spec"]["volumeName"].as_str().unwrap_or_default().to_owned();
    let bound = !name.is_empty() && claim.data["status"]["phase"] == "Bound";
    let volume = if bound {
        let volumes: Api<DynamicObject> =
            Api::all_with(client.clone(), &resource("v1", "PersistentVolume", "persistentvolumes"));
        match volumes.get_opt(&name).await {
            Ok(volume) => volume.map(|volume| volume.data["spec"].clone()),
            Err(error) => return failed(error),
        }
    } else {
        None
    };
    let attach = match attach(client, &name, volume.as_ref(), csi).await {
        Ok(attach) => attach,
        Err(error) => return failed(error),
    };
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    let status = &claim.data["status"];
    let mut body = json!({
        "kind": Kind::Claim.name(),
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
        "spec": claim.data["spec"],
        "status": {"phase": status["phase"]},
        // Not part of the API's object: the spec of the volume, and its name.
        "volume": volume.map_or(Value::Null, |spec| json!({"name": name, "spec": spec})),
    });
    // The claim of an ephemeral volume is owned by its pod.
    if let Some(owners) = &claim.metadata.owner_references {
        body.set_at(&["metadata", "ownerReferences"], json!(owners));
    }
    // A file system grows by what the volume has more than the claim.
    if status["capacity"].is_object() {
        body.set_at(&["status", "capacity"], status["capacity"].clone());
    }
    let complete = bound && !body["volume"].is_null();
    Look { what: What::Present(made_object(key.clone(), uid, body)), bound: complete, attach }
}

/// Whether the volume has to be attached: its driver does not say otherwise (K8s pkg/volume/csi/csi_plugin.go,
/// `skipAttach`). `spec`: that of the volume.
async fn attach(client: &Client, volume: &str, spec: Option<&Value>, csi: bool) -> kube::Result<Attach> {
    let driver = spec.and_then(|spec| spec["csi"]["driver"].as_str());
    let Some(driver) = driver.filter(|driver| is_path_segment(driver)) else { return Ok(Attach::No) };
    if !csi {
        return Ok(Attach::Unasked);
    }
    let drivers: Api<DynamicObject> = Api::all_with(client.clone(), &of_kind(Kind::CsiDriver));
    let driver = match drivers.get_opt(driver).await {
        // An API that does not know the kind.
        Err(kube::Error::Api(status)) if status.is_forbidden() => None,
        found => found?,
    };
    let skips = driver.is_some_and(|driver| driver.data["spec"]["attachRequired"] == false);
    Ok(if skips { Attach::No } else { Attach::Yes(volume.to_owned()) })
}
