//! The subresources to which a client connects: `pods/exec`, `pods/attach`, `pods/portforward`. Selects the pod and
//! container as the API server does; `streaming` handles the rest.

use std::sync::Arc;

use http::Response;
use http::request::Parts;

use super::body::ApiBody;
use crate::auth::Attributes;
use crate::registry::context::Context;
use crate::registry::subresource::pod;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use apimachinery::flow::Flow;
use apimachinery::shares::Share;
use kubelet_api::streaming::options::{self, Dialect};
use kubelet_api::streaming::{self, ErrorResponse, StreamRequest};

/// Answers 101, or why not. The session keeps its place.
pub(crate) async fn connect(
    inner: &Arc<Inner>,
    ctx: &Context<'_>,
    attributes: &Attributes,
    parts: &Parts,
    (flow, place): (&Flow, Share),
) -> ApiResult<Response<ApiBody>> {
    if !matches!(ctx.verb.as_str(), "get" | "create") {
        return Err(ApiError::method_not_allowed());
    }
    // A WebSocket can only GET; to read a pod is not to run something in it
    // (K8s pkg/registry/core/pod/rest/subresources.go, AuthorizePodWebsocketUpgradeCreatePermission).
    let create = Attributes { verb: "create".to_owned(), ..attributes.clone() };
    inner.authorizer.authorize(ctx.user, &create)?;
    let query = parts.uri.query().unwrap_or_default();
    let subresource = ctx.path.subresource.as_str();
    let (pod, container) = pod::place(ctx, flow, subresource != "portforward")?;
    let work = match subresource {
        "portforward" => StreamRequest::PortForward,
        _ => {
            let options = options::session(Dialect::Api, &container, query, subresource == "exec");
            StreamRequest::Session(options.map_err(ApiError::bad_request)?)
        }
    };
    let backend = inner.backend.get().ok_or_else(|| ApiError::unavailable("no node is connected"))?;
    match streaming::upgrade(Arc::clone(backend), pod, work, parts, place).await {
        Ok(response) => Ok(response.map(|()| ApiBody::full(Vec::new()))),
        Err(problem) => Err(refusal(problem)),
    }
}

pub(crate) fn refusal(problem: ErrorResponse) -> ApiError {
    let mut error = match problem.code.as_u16() {
        503 => ApiError::unavailable(problem.text),
        500 => ApiError::internal(problem.text),
        _ => ApiError::bad_request(problem.text),
    };
    match problem.code.as_u16() {
        403 => (error.code, error.reason) = (403, "Forbidden"),
        404 => (error.code, error.reason) = (404, "NotFound"),
        429 => (error.code, error.reason) = (429, "TooManyRequests"),
        _ => {}
    }
    error
}
