//! `nodes/NAME/proxy/PATH`: data of a node's kubelet, read through the API.

use http::request::Parts;
use http::{Method, Response};

use super::body::ApiBody;
use super::response::typed;
use crate::registry::context::Context;
use crate::registry::subresource::pod;
use crate::resource::status::{ApiError, ApiResult};
use kubelet_api::read;
use kubelet_api::request::{self, KubeletRequest, RequestError};

/// Answers a GET.
///
/// # Errors
/// The node or path does not exist, or the node is offline.
pub(crate) async fn answer(ctx: &Context<'_>, parts: &Parts) -> ApiResult<Response<ApiBody>> {
    drop(ctx.current(&ctx.store())?);
    let path = format!("/{}", ctx.path.rest);
    let path = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let uri = path.parse().map_err(|_| ApiError::bad_request(format!("{path:?} is no path")))?;
    if parts.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    let asked = match request::parse(&parts.method, &uri) {
        Ok(KubeletRequest::Logs { .. } | KubeletRequest::Connect { .. }) => {
            return Err(ApiError::bad_request("ask for the pod's own subresource: log, exec, attach, portforward"));
        }
        Ok(asked) => asked,
        Err(RequestError::BadRequest(problem)) => return Err(ApiError::bad_request(problem)),
        Err(RequestError::BadMethod) => return Err(ApiError::method_not_allowed()),
        Err(RequestError::NotFound) => return Err(ApiError::no_resource()),
    };
    let backend = ctx.inner.backend.get().ok_or_else(|| ApiError::unavailable("no node is connected"))?;
    let read = read::read(backend.as_ref(), &ctx.path.name, &asked).await;
    let (kind, body) = read.map_err(|error| pod::backend_error(&error))?;
    Ok(typed(200, kind, body))
}
