//! The Secret objects of tokens of both kinds, in [`NAMESPACE`]. A kind names the type of its Secrets and the label by which they
//! are listed.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Preconditions};
use kube::{Api, Client};

use crate::pki::NAMESPACE;

pub(in crate::pki) fn api(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// A new object.
pub(in crate::pki) fn object(kind: &str, name: &str, data: BTreeMap<String, ByteString>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(kind.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// All objects of a kind.
pub(in crate::pki) async fn list(client: &Client, kind: &str) -> kube::Result<Vec<Secret>> {
    let all = ListParams::default().labels(&format!("{kind}=true"));
    Ok(api(client).list(&all).await?.items)
}

/// Deletes this object and no later one of its name. With `unchanged`, also only this version of it. False if it was gone already.
pub(in crate::pki) async fn delete(client: &Client, secret: &Secret, unchanged: bool) -> kube::Result<bool> {
    let (name, metadata) = (secret.metadata.name.as_deref().unwrap_or_default(), &secret.metadata);
    let resource_version = metadata.resource_version.clone().filter(|_| unchanged);
    let same = Preconditions { uid: metadata.uid.clone(), resource_version };
    match api(client).delete(name, &DeleteParams::default().preconditions(same)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes all objects of a kind that this holds for.
pub(in crate::pki) async fn clear(client: &Client, kind: &str, is_over: impl Fn(&Secret) -> bool) -> kube::Result<()> {
    for secret in list(client, kind).await?.iter().filter(|secret| is_over(secret)) {
        delete(client, secret, false).await?;
    }
    Ok(())
}
