//! A claim as far as controllers look at it: whose it is.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Claim {
    pub(crate) metadata: ObjectMeta,
}

apimachinery::read_as!(Claim, core::PersistentVolumeClaim);
