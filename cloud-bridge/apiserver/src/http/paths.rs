//! Everything that is no resource: version, health, discovery and OpenAPI.

use std::sync::Arc;

use http::Response;
use serde_json::Value;

use super::body::ApiBody;
use super::{discovery, openapi};
use super::{json, no_page, typed};
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;

/// What the API server answers to `…proto-openapi.spec.v2@v1.0+protobuf`: `@` is no character of a media type,
/// and old clients refuse it.
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// GET of a path.
pub(crate) fn answer(inner: &Arc<Inner>, path: &str, method: &str, accept: &str) -> ApiResult<Response<ApiBody>> {
    if !matches!(method, "GET" | "HEAD") {
        return Err(ApiError::method_not_allowed());
    }
    let resources = inner.registry.all();
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let found = |value: Option<Value>| Ok(value.map_or_else(no_page, |v| json(200, v.to_string())));
    match segments.as_slice() {
        [] => found(Some(discovery::paths(&resources))),
        ["version"] => found(Some(discovery::version())),
        ["healthz" | "livez" | "readyz", ..] => Ok(typed(200, "text/plain; charset=utf-8", "ok")),
        ["api"] if discovery::wants_aggregated(accept) => {
            Ok(typed(200, discovery::AGGREGATED_V2, discovery::aggregated(&resources, true).to_string()))
        }
        ["apis"] if discovery::wants_aggregated(accept) => {
            Ok(typed(200, discovery::AGGREGATED_V2, discovery::aggregated(&resources, false).to_string()))
        }
        ["api"] => found(Some(discovery::core_versions(""))),
        ["apis"] => found(Some(discovery::groups(&resources))),
        ["api", version] => found(discovery::resource_list(&resources, "", version)),
        ["apis", group] => found(discovery::group(&resources, group)),
        ["apis", group, version] => found(discovery::resource_list(&resources, group, version)),
        ["openapi", "v2"] if openapi::wants_protobuf(accept) => {
            Ok(typed(200, PROTOBUF_V2, openapi::v2_protobuf(&resources)))
        }
        ["openapi", "v2"] => found(Some(openapi::v2_json(&resources))),
        ["openapi", "v3"] => found(Some(openapi::index(&resources))),
        ["openapi", "v3", "api", version] => found(openapi::group_document(&resources, "", version)),
        ["openapi", "v3", "apis", group, version] => found(openapi::group_document(&resources, group, version)),
        _ => Ok(no_page()),
    }
}
