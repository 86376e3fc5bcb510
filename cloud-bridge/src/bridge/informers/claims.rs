//! A PersistentVolumeClaim with the volume it is bound to, as one object for the node. Read by name and repeatedly
//! until it is bound: a node may get single claims and volumes, but not watch them (node authorizer).

use std::time::Duration;

use edge_protocol::message::ObjectKey;
use kube::api::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::news::{Subscription, What, failure};
use crate::bridge::pauses::Pauses;
use crate::bridge::resource::{of_kind, resource};
use crate::bridge::slim::made_object;
use crate::bridge::told::kinds::Kind;

/// Pause before an unbound claim is read again, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Interval at which a bound claim is read: it changes only by its deletion.
const BOUND: Duration = Duration::from_secs(120);

/// Follows until aborted.
pub(super) async fn follow_claim(client: Client, to: Subscription) {
    let mut pauses = Pauses::new(AGAIN);
    loop {
        let (what, bound) = look(&client, &to.key).await;
        if to.tell(what).await.is_none() {
            return;
        }
        if bound {
            tokio::time::sleep(BOUND).await;
        } else {
            pauses.wait().await;
        }
    }
}

async fn look(client: &Client, key: &ObjectKey) -> (What, bool) {
    let claims: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &of_kind(Kind::Claim));
    let failed = |error: kube::Error| {
        log::warn!("asking for claim {}/{}: {error}", key.namespace, key.name);
        (failure(&error), false)
    };
    let claim = match claims.get_opt(&key.name).await {
        Ok(Some(claim)) => claim,
        Ok(None) => return (What::Absent, false),
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
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    let body = json!({
        "kind": Kind::Claim.name(),
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
        "spec": claim.data["spec"],
        "status": {"phase": claim.data["status"]["phase"]},
        // Not part of the API's object: the spec of the volume, and its name.
        "volume": volume.map_or(Value::Null, |spec| json!({"name": name, "spec": spec})),
    });
    let complete = bound && !body["volume"].is_null();
    (What::Present(made_object(key.clone(), uid, body)), complete)
}
