//! Attributes of a request for admission (K8s apiserver `admission.Attributes`).

use std::sync::Arc;

use crate::auth::request_info::ResourcePath;
use crate::resource::Resource;
use crate::state::Inner;
use apimachinery::user::UserInfo;

/// A request on an object, without its verb and its body.
pub(crate) struct Attributes<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) user: &'a UserInfo,
    pub(crate) resource: Arc<Resource>,
    pub(crate) path: &'a ResourcePath,
}
