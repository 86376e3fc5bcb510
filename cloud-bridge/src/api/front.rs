//! Everything that is no resource: version, health, discovery and OpenAPI.

use std::sync::Arc;

use http::Response;
use serde_json::Value;

use super::body::ApiBody;
use super::error::{ApiError, ApiResult};
use super::http::{json, typed};
use super::server::Inner;
use super::{discovery, openapi};

/// The Kubernetes version whose behaviour is served.
pub(super) const VERSION: &str = "v1.36.0";

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// GET of a path.
pub(super) fn answer(inner: &Arc<Inner>, path: &str, method: &str, accept: &str) -> ApiResult<Response<ApiBody>> {
    if !matches!(method, "GET" | "HEAD") {
        return Err(ApiError::method_not_allowed());
    }
    let resources = inner.registry.all();
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let found = |value: Option<Value>| value.map(|v| json(200, v.to_string())).ok_or_else(ApiError::no_resource);
    match segments.as_slice() {
        [] => found(Some(discovery::paths(&resources))),
        ["version"] => found(Some(discovery::version(VERSION))),
        ["healthz" | "livez" | "readyz", ..] => Ok(typed(200, "text/plain; charset=utf-8", "ok")),
        ["api"] if discovery::wants_aggregated(accept) => {
            Ok(typed(200, AGGREGATED, discovery::aggregated(&resources, true).to_string()))
        }
        ["apis"] if discovery::wants_aggregated(accept) => {
            Ok(typed(200, AGGREGATED, discovery::aggregated(&resources, false).to_string()))
        }
        ["api"] => found(Some(discovery::core_versions(""))),
        ["apis"] => found(Some(discovery::groups(&resources))),
        ["api", version] => found(discovery::resource_list(&resources, "", version)),
        ["apis", group] => found(discovery::group(&resources, group)),
        ["apis", group, version] => found(discovery::resource_list(&resources, group, version)),
        ["openapi", "v2"] if openapi::wants_protobuf(accept) => {
            Ok(typed(200, openapi::PROTOBUF_V2, openapi::v2_protobuf(&resources)))
        }
        ["openapi", "v2"] => found(Some(openapi::v2_json(&resources))),
        ["openapi", "v3"] => found(Some(openapi::index(&resources))),
        ["openapi", "v3", "api", version] => found(openapi::group_document(&resources, "", version)),
        ["openapi", "v3", "apis", group, version] => found(openapi::group_document(&resources, group, version)),
        _ => Err(ApiError::no_resource()),
    }
}
