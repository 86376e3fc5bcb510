//! Paths outside the resources: version, health, discovery, OpenAPI and the issuer of tokens.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::header::{ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use serde_json::Value;

use super::body::ApiBody;
use super::encoding::accept;
use super::response::{JSON, json, no_page, respond, typed};
use super::{discovery, openapi, pod_proxy};
use crate::auth::request_info::Query;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::state::documents::Document;
use apimachinery::flow::Flow;
use bytes::Bytes;

/// Media type that answers `…proto-openapi.spec.v2@v1.0+protobuf`: `@` is not allowed in a media type, and old clients
/// refuse it.
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const TEXT: &str = "text/plain; charset=utf-8";

/// GET of a path.
pub(crate) async fn answer(
    inner: &Inner,
    flow: &Flow,
    path: &str,
    parts: &Parts,
    query: &Query,
) -> ApiResult<Response<ApiBody>> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let segments = segments(path);
    match segments.as_slice() {
        ["version"] => return Ok(json(200, discovery::version().to_string())),
        [path @ ("healthz" | "livez" | "readyz"), checks @ ..] => {
            return Ok(health(path, checks, query).map_or_else(no_page, |text| typed(200, TEXT, text)));
        }
        [".well-known", "openid-configuration"] => return Ok(issuer(inner, parts)),
        ["openid", "v1", "jwks"] => {
            let keys = inner.config.accounts.as_ref().map(|accounts| accounts.jwks().to_string());
            return Ok(keys.map_or_else(no_page, |keys| typed(200, "application/jwk-set+json", keys)));
        }
        _ => {}
    }
    let accept = accept(&parts.headers);
    let form = (discovery::wants_aggregated(&accept), openapi::wants_protobuf(&accept));
    let found = kept(inner, flow, path, form).await?;
    Ok(found.map_or_else(no_page, |document| deliver(&document, &parts.headers)))
}

/// A document about what is served, made now if it is not kept. OpenAPI is made beside the thread: it has the schemas of all
/// definitions, of which there may be hundreds.
async fn kept(inner: &Inner, flow: &Flow, path: &str, form: (bool, bool)) -> ApiResult<Option<Document>> {
    let (all, parts) = (inner.registry.all(), segments(path));
    let name = name(&parts, form);
    let found = inner.documents.find(&all, &name);
    if found.is_some() {
        return Ok(found);
    }
    let keep = |made: &Document| inner.documents.keep(&all, name.clone(), made);
    if parts.first() != Some(&"openapi") {
        return Ok(document(&all, &parts, form).inspect(keep));
    }
    let turn = inner.limits.apart.turn(flow).await;
    // Requests that came together wait for one another.
    let found = inner.documents.find(&all, &name);
    if found.is_some() {
        return Ok(found);
    }
    let (of, path) = (all.clone(), path.to_owned());
    let (made, _turn) = turn.work(move || document(&of, &segments(&path), form)).await?;
    Ok(made.inspect(keep))
}

fn segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|segment| !segment.is_empty()).collect()
}

/// What a document is kept by. Not its path: with more slashes there are paths without number to one document of megabytes.
fn name(segments: &[&str], form: (bool, bool)) -> String {
    format!("{} {form:?}", segments.join("/"))
}

/// A document about what is served; `form`: aggregated discovery, and OpenAPI as protobuf.
fn document(resources: &[Arc<Resource>], segments: &[&str], form: (bool, bool)) -> Option<Document> {
    let (aggregated, protobuf) = form;
    let value: Value = match segments {
        ["api" | "apis"] if aggregated => {
            let text = discovery::aggregated(resources, segments == ["api"]).to_string() + "\n";
            return Some(Document::new(discovery::AGGREGATED_V2, text));
        }
        ["openapi", "v2"] if protobuf => return Some(Document::new(PROTOBUF_V2, openapi::v2_protobuf(resources))),
        [] => discovery::paths(resources),
        ["api"] => discovery::core_versions(""),
        ["apis"] => discovery::groups(resources),
        ["api", version] => discovery::resource_list(resources, "", version)?,
        ["apis", group] => discovery::group(resources, group)?,
        ["apis", group, version] => discovery::resource_list(resources, group, version)?,
        ["openapi", "v2"] => openapi::v2_json(resources),
        ["openapi", "v3"] => openapi::index(resources),
        ["openapi", "v3", "api", version] => openapi::group_document(resources, "", version)?,
        ["openapi", "v3", "apis", group, version] => openapi::group_document(resources, group, version)?,
        _ => return None,
    };
    // The API server encodes discovery as objects, OpenAPI and paths as raw JSON.
    let end = if matches!(segments.first(), Some(&("api" | "apis"))) { "\n" } else { "" };
    Some(Document::new(JSON, format!("{value}{end}")))
}

/// The document, or 304 for a client that has it.
fn deliver(document: &Document, headers: &HeaderMap) -> Response<ApiBody> {
    let asked = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let has = asked.flat_map(|value| value.split(',')).any(|tag| document.etag == tag.trim());
    let (code, body) = if has { (304, Bytes::new()) } else { (200, document.bytes.clone()) };
    let mut answer = respond(code, document.content_type, ApiBody::full(body));
    answer.headers_mut().insert(ETAG, document.etag.clone());
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    answer
}

/// What is checked, by the names of Kubernetes. `etcd` is the state file: no answer goes out before the disk has what it says.
const CHECKS: [&str; 2] = ["ping", "etcd"];

/// `ok`, or with `?verbose` a line for each check (K8s apiserver pkg/server/healthz): a server that answers is well. `None` for
/// a check that there is not.
fn health(path: &str, checks: &[&str], query: &Query) -> Option<String> {
    match checks {
        [] => {}
        [one] if CHECKS.contains(one) => return Some("ok".to_owned()),
        _ => return None,
    }
    if query.get("verbose").is_none() {
        return Some("ok".to_owned());
    }
    let excluded: BTreeSet<&str> = query.all("exclude").collect();
    let line = |check: &str| match excluded.contains(check) {
        true => format!("[+]{check} excluded: ok\n"),
        false => format!("[+]{check} ok\n"),
    };
    let mut text: String = CHECKS.into_iter().map(line).collect();
    let unknown = excluded.into_iter().filter(|name| !CHECKS.contains(name));
    let unknown: Vec<String> = unknown.map(|name| format!("{name:?}")).collect();
    if !unknown.is_empty() {
        let names = unknown.join(",");
        text += &format!("warn: some health checks cannot be excluded: no matches for {names}\n");
    }
    Some(text + &format!("{path} check passed\n"))
}

/// The document by which others find the keys of service account tokens (K8s pkg/serviceaccount/openidmetadata.go).
fn issuer(inner: &Inner, parts: &Parts) -> Response<ApiBody> {
    let Some(accounts) = &inner.config.accounts else { return no_page() };
    let host = Some(pod_proxy::host(parts)).filter(|host| !host.is_empty());
    let host = host.as_deref().unwrap_or("kubernetes.default.svc");
    json(200, accounts.issuer(&format!("https://{host}/openid/v1/jwks")).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_verbose_when_asked() {
        let told = |path: &str, checks: &[&str], query: &str| health(path, checks, &Query::parse(query));
        let all = "[+]ping ok\n[+]etcd ok\nlivez check passed\n";
        assert_eq!(told("livez", &[], "verbose").as_deref(), Some(all));
        assert_eq!(told("readyz", &[], "exclude=etcd").as_deref(), Some("ok"));
        let less = "[+]ping ok\n[+]etcd excluded: ok\nwarn: some health checks cannot be excluded: no matches for \
            \"a\",\"b\"\nreadyz check passed\n";
        assert_eq!(told("readyz", &[], "verbose&exclude=b&exclude=etcd&exclude=a").as_deref(), Some(less));
    }

    #[test]
    fn each_health_check_has_a_path() {
        let told = |checks: &[&str]| health("livez", checks, &Query::default());
        assert_eq!((told(&["ping"]), told(&["etcd"])), (Some("ok".to_owned()), Some("ok".to_owned())));
        assert_eq!((told(&["none"]), told(&["ping", "x"])), (None, None));
    }

    #[test]
    fn known_document_is_not_sent_again() {
        let document = Document::new(JSON, "{}");
        let mut headers = HeaderMap::new();
        let answer = deliver(&document, &headers);
        assert_eq!((answer.status().as_u16(), answer.body().bytes()), (200, 2));
        headers.insert(IF_NONE_MATCH, answer.headers()[ETAG].clone());
        let answer = deliver(&document, &headers);
        assert_eq!((answer.status().as_u16(), answer.body().bytes()), (304, 0));
        assert_eq!(answer.headers()[ETAG], document.etag);
    }

    #[test]
    fn document_is_kept_once_for_all_spellings_of_its_path() {
        let name = |path: &str| name(&segments(path), (false, false));
        assert_eq!(name("/openapi/////v2"), name("/openapi/v2"));
        assert_ne!(name("/openapi/v2"), name("/openapi/v3"));
    }

    #[test]
    fn documents_are_those_of_their_paths() {
        let all = crate::kinds::resources();
        let is = |path: &[&str]| document(&all, path, (false, false)).is_some();
        assert!(is(&[]) && is(&["api", "v1"]) && is(&["openapi", "v3", "apis", "apps", "v1"]) && !is(&["api", "v9"]));
        assert_eq!(
            (&discovery::version()["emulationMinor"], &discovery::version()["minCompatibilityMinor"]),
            (&"36".into(), &"35".into())
        );
        assert!(discovery::version()["platform"].as_str().is_some_and(|text| !text.contains('_')));
    }
}
