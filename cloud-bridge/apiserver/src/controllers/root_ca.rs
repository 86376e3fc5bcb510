//! What every namespace has for its service accounts: the ConfigMap with the certificate that pods trust the API by
//! (K8s pkg/controller/certificates/rootcacertpublisher).

use edge_protocol::json::SetField;
use jiff::Timestamp;
use serde_json::json;

use crate::auth::accounts::ROOT_CA;
use crate::state::Inner;
use crate::storage::{Store, StoreError};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Makes it, or puts the right certificate into it.
pub(crate) fn root_ca(inner: &Inner, store: &mut Store, namespace: &str) -> Result<(), StoreError> {
    let Some(accounts) = &inner.config.accounts else { return Ok(()) };
    let key = ObjectKey { namespace: namespace.to_owned(), name: ROOT_CA.to_owned() };
    let data = json!({"ca.crt": accounts.root_ca});
    let current = store.get("configmaps", &key)?;
    let map = match &current {
        Some(current) if current.value()["data"] == data => return Ok(()),
        Some(current) => {
            let mut map = current.value().clone();
            map.set("data", data);
            map
        }
        None => {
            let why = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
            let mut map = json!({
                "metadata": {"name": ROOT_CA, "namespace": namespace, "annotations": {"kubernetes.io/description": why}},
                "data": data,
            });
            meta::fill_new(&mut map, Timestamp::now());
            map
        }
    };
    store.write("configmaps", map, current.as_ref(), None)?;
    Ok(())
}
