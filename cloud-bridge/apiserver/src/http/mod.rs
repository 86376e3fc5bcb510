//! From an HTTP request to an answer: impersonation, authorization, routing, negotiation, headers.

mod arrival;
mod binary;
pub(crate) mod body;
pub(crate) mod connect;
pub mod discovery;
mod encoding;
pub(crate) mod leases;
mod links;
mod lists;
pub(crate) mod node_proxy;
pub mod openapi;
pub(crate) mod output;
pub(crate) mod paths;
pub(crate) mod pod_proxy;
mod response;
pub(crate) mod server;
mod status;
pub(crate) mod watch;

use crate::registry::managed_fields::writer::Writer;
use crate::registry::subresource::{scale, token};
use body::BodyError;
use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use jiff::Timestamp;
use serde_json::Value;

use super::auth::{Attributes, impersonation};
use super::resource::{Hooks, Resource, Serves};
use super::state::Inner;
use super::state::apart;
use crate::auth::request_info::{Query, ResourcePath, Target, target};
use crate::registry::answer::Answer;
use crate::registry::context::Context;
use crate::registry::perform::write;
use crate::registry::{self, create, delete, draft, list, patch, update};
use crate::resource::cel::Asked;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::aside;
use apimachinery::pace::is_large;
use apimachinery::shares::Share;
use body::ApiBody;
use output::Form;

use crate::codec::yaml::Document;
use crate::codec::{parse, protobuf};
use crate::registry::subresource::{eviction, finalize, pod};
use crate::registry::{account, metrics, reviews};
use apimachinery::flow::Flow;
use apimachinery::user::UserInfo;
use encoding::{Encoding, YAML};
use kubelet_api::streaming;
use response::{JSON, json, no_page, respond, typed};

/// The largest request body, as the API server has it.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;

/// The content types of objects, and of custom ones.
const OBJECTS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const CUSTOM: &str = "application/json, application/yaml";

/// A request that its user may make. Its body, which may be large, is read only now.
pub(crate) struct Permitted {
    user: UserInfo,
    query: Query,
    target: Target,
    attributes: Attributes,
    /// What the answer takes as long as it lasts is counted for this one.
    flow: Flow,
    encoding: Encoding,
    /// What its client accepts, with JSON in the place of the encoding.
    accepted: String,
}

/// Decides on a request of an identified user by all but its body.
///
/// # Errors
/// 403 and what is wrong with the impersonation.
pub(crate) fn permit(inner: &Inner, user: &UserInfo, flow: &Flow, parts: &Parts) -> ApiResult<Permitted> {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let target = target(parts.uri.path());
    let watching = query.flag("watch");
    let attributes = Attributes::new(parts.method.as_str(), &target, watching, query.text("fieldSelector"));
    let acting = impersonation::impersonate(&inner.authorizer, user, &attributes, &parts.headers)?;
    let user = acting.unwrap_or_else(|| user.clone());
    inner.authorizer.authorize(&user, &attributes)?;
    let (encoding, accepted) = encoding::chosen(&encoding::accept(&parts.headers));
    Ok(Permitted { user, query, target, attributes, flow: flow.clone(), encoding, accepted })
}

impl Permitted {
    /// How large the body may be.
    pub(crate) fn body_max(&self) -> usize {
        match &self.target {
            Target::Resource(path) if reviews::is(path) => reviews::BODY_MAX,
            _ => MAX_BODY,
        }
    }

    /// Whether the body is read. Kubernetes ignores the body of a GET, except on the way to a pod through a proxy.
    pub(crate) fn has_body(&self, method: &Method) -> bool {
        !matches!(*method, Method::GET | Method::HEAD) || self.attributes.path.subresource == "proxy"
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Whether the answer is encoded as its client asks. Answers through a proxy are not objects of this API.
    fn encodes(&self) -> bool {
        match &self.target {
            Target::Resource(path) => path.subresource != "proxy",
            Target::Path(path) => self.encoding == Encoding::Yaml && path.starts_with("/api"),
        }
    }
}

/// Revision of the object that a read shows.
#[derive(Debug, Clone, Copy)]
struct Shown(u64);

/// Answers a permitted request. The answer counts for `share`, with its first byte and until its last is sent; what the body,
/// which counts for `arriving`, becomes as JSON counts there.
pub(crate) async fn answer(
    inner: &Arc<Inner>,
    permitted: &Permitted,
    parts: &Parts,
    (body, arriving): (Bytes, &mut Share),
    share: &mut Share,
) -> Response<ApiBody> {
    let answer = route(inner, permitted, parts, (body, arriving)).await;
    let mut response = answer.unwrap_or_else(|error| failure(&error));
    let shown = response.extensions_mut().remove::<Shown>();
    // It may wait to be encoded.
    let bytes = response.body().bytes();
    if !share.grow(bytes) {
        response = failure(&ApiError::busy());
    } else if permitted.encodes() {
        let encoding = permitted.encoding;
        response = if encoding != Encoding::Json && is_large(bytes) {
            let turns = &inner.limits.apart;
            let encoded = apart::run(turns, &permitted.flow, move || encoding::encoded(response, encoding)).await;
            encoded.unwrap_or_else(|error| failure(&error))
        } else {
            encoding::encoded(response, encoding)
        };
    }
    if !share.grow(response.body().bytes().saturating_sub(bytes)) {
        response = failure(&ApiError::busy());
    }
    // The answer waits until all writes before it are on disk: a client, writer or reader, must not act on a state that
    // a power cut could still take back. An object that is read depends on no later write. Renewals of Leases are on no disk.
    let written = inner.store().written();
    match inner.durable.reached(shown.map_or(written, |Shown(rev)| rev.min(written))).await {
        Ok(()) => response,
        Err(error) => failure(&ApiError::internal(error)),
    }
}

/// A Status answer.
pub fn failure(error: &ApiError) -> Response<ApiBody> {
    let mut response = json(error.code, status::line(&error.status()));
    if let Some(seconds) = error.details["retryAfterSeconds"].as_i64() {
        response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
    }
    response
}

/// An answer of one object, which ends with a newline as Go's encoder makes it.
fn object(code: u16, value: &Value) -> Response<ApiBody> {
    json(code, if value["kind"] == "Status" { status::line(value) } else { format!("{value}\n") })
}

fn header<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> &'a str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

/// The body of a request as JSON.
struct Sent {
    json: Bytes,
    content_type: String,
    /// What strict reading says of the text.
    strict: Option<String>,
}

/// The body as JSON, and its content type. Typed Go clients send protobuf for built-in kinds. `kind` names the object in errors;
/// its values may take so much `memory`.
fn body_as_json(
    method: &Method,
    content_type: &str,
    body: Bytes,
    most: usize,
    kind: &str,
    memory: usize,
) -> ApiResult<Sent> {
    let sent = |json, strict| Sent { json, content_type: JSON.to_owned(), strict };
    match encoding::media(content_type) {
        _ if body.is_empty() => {}
        protobuf::MEDIA_TYPE => {
            return match protobuf::decode_within(&body, memory) {
                Ok(object) => Ok(sent(object.to_string().into(), None)),
                Err(protobuf::DecodeError::UnknownKind { .. }) => Err(ApiError::unsupported_media_type(OBJECTS)),
                Err(error) => Err(ApiError::bad_request(error.to_string())),
            };
        }
        // For patches Kubernetes knows other types.
        YAML if *method != Method::PATCH => {
            // In the words of YAMLToJSON, which apply wraps into others.
            let bare = |why: String| why.replacen("error converting YAML to JSON: ", "", 1);
            let refuse = |why: String| {
                let why = bare(why);
                ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why}"))
            };
            // It is read twice.
            let document = Document::read_within(&body, memory / 2).map_err(refuse)?;
            // Aliases can make much of a short text.
            let json = document.value.to_string();
            if json.len() > most {
                return Err(ApiError::too_large(most));
            }
            return Ok(sent(json.into(), document.strict().err().map(bare)));
        }
        _ => {}
    }
    Ok(Sent { json: body, content_type: content_type.to_owned(), strict: None })
}

async fn route(
    inner: &Arc<Inner>,
    permitted: &Permitted,
    parts: &Parts,
    (body, arriving): (Bytes, &mut Share),
) -> ApiResult<Response<ApiBody>> {
    let Permitted { user, query, target, attributes, encoding, accepted, .. } = permitted;
    let encoding = *encoding;
    let path = match target {
        Target::Path(path) => return paths::answer(inner, &permitted.flow, path, parts, query).await,
        Target::Resource(path) => path,
    };
    let resource = inner.registry.find(&path.group, &path.version, &path.resource);
    // What a body says counts only where something is served: before that, Kubernetes' mux answers.
    if resource.is_none() && !reviews::is(path) {
        return not_served(inner, path);
    }
    if attributes.verb == "create" {
        admissible(resource.as_deref())?;
    }
    let serves = resource.as_deref().and_then(|resource| resource.subresource(&path.subresource));
    // The body to a proxied pod is not an object of this API.
    let sent = if serves == Some(Serves::PodProxy) { body.clone() } else { Bytes::new() };
    let body = if sent.is_empty() { body } else { Bytes::new() };
    let kind = resource.as_deref().map_or(path.resource.as_str(), |resource| &resource.kind);
    let memory = resource.as_deref().map_or(parse::TENANT_MEMORY_MAX, Resource::body_memory);
    let (method, most, kind) = (parts.method.clone(), permitted.body_max(), kind.to_owned());
    let sent_as = header(&parts.headers, &CONTENT_TYPE).to_owned();
    let came = body.len();
    // A short text may repeat much in YAML.
    let aside = match encoding::media(&sent_as) {
        YAML => true,
        protobuf::MEDIA_TYPE => is_large(came),
        _ => false,
    };
    let read = move || body_as_json(&method, &sent_as, body, most, &kind, memory);
    let read = if aside { apart::run(&inner.limits.apart, &permitted.flow, read).await? } else { read() };
    let Sent { json: body, content_type, strict } = read?;
    // Aliases and escapes can make much of a short text, and it may wait for its draft.
    if !arriving.grow(body.len().saturating_sub(came)) {
        return Err(ApiError::busy());
    }
    if reviews::is(path) && Form::negotiate(accepted, query)? != Form::Json {
        // A review has no metadata that could be shown alone, and makes no rows.
        return Err(ApiError::not_acceptable());
    }
    if let Some(answer) = reviews::answer(inner, user, path, parts.method.as_str(), &body)? {
        return Ok(object(201, &answer));
    }
    // The definition may have changed while the body was read, or gone.
    let resource = inner.registry.find(&path.group, &path.version, &path.resource);
    let Some(resource) = resource else { return not_served(inner, path) };
    check_scope(&resource, path)?;
    let mut ctx = Context {
        inner,
        user,
        flow: &permitted.flow,
        resource: Arc::clone(&resource),
        path,
        query,
        verb: attributes.verb.clone(),
        now: Timestamp::now(),
        warnings: resource.strategy().deprecation().into_iter().collect(),
        writer: Writer::new(query.text("fieldManager"), header(&parts.headers, &USER_AGENT), &path.subresource),
        strict,
        cel: Asked::default(),
        aside: draft::Aside::default(),
        foresees: false,
        awaits_account: false,
    };
    if matches!(resource.hooks, Hooks::Measured) {
        return Ok(object(200, &metrics::answer(&ctx, &permitted.flow).await?));
    }
    match resource.subresource(&path.subresource) {
        Some(Serves::Connect) => {
            let place = inner.limits.enter(&permitted.flow, attributes).ok_or_else(ApiError::busy)?;
            return connect::connect(inner, &ctx, attributes, parts, (&permitted.flow, place)).await;
        }
        Some(Serves::PodProxy) => {
            let of = (&permitted.flow, attributes);
            return pod_proxy::answer(inner, &ctx, parts, sent, of).await;
        }
        Some(Serves::Proxy) => return node_proxy::answer(&ctx, parts).await,
        Some(Serves::Log) => return log(inner, &ctx, parts, (&permitted.flow, attributes)).await,
        _ => {}
    }
    let form = Form::negotiate(accepted, query)?;
    let binary = encoding == Encoding::Protobuf;
    if form == Form::Json && resource.is_custom() && binary {
        return Err(ApiError::not_acceptable());
    }
    if attributes.verb == "watch" {
        // YAML has no frames (K8s apimachinery pkg/runtime/serializer/codec_factory.go).
        if encoding == Encoding::Yaml {
            return Err(ApiError::not_acceptable());
        }
        let stream = watch::open(&ctx, inner, form, &permitted.flow)?;
        if streaming::wants_socket(parts) && encoding == Encoding::Json {
            return watch::over_socket(inner, stream, parts, (&permitted.flow, attributes));
        }
        if binary {
            return Ok(respond(200, binary::WATCH, ApiBody::stream(binary::framed(stream))));
        }
        return Ok(respond(200, JSON, ApiBody::stream(stream)));
    }
    let all = attributes.verb == "deletecollection" && path.subresource.is_empty();
    let answer = if all && (!resource.namespaced || !path.namespace.is_empty()) {
        delete::delete_collection(&mut ctx, &body, &permitted.flow).await
    } else {
        account::awaited(&mut ctx, |ctx| verb(ctx, &attributes.verb, &content_type, &body)).await
    };
    let answer = answer.map(|answer| encode(inner, permitted, &ctx, form, answer));
    let mut response = answer.unwrap_or_else(|error| failure(&error));
    warn(&mut response, &ctx.warnings);
    Ok(response)
}

fn not_served(inner: &Inner, path: &ResourcePath) -> ApiResult<Response<ApiBody>> {
    let served = inner.registry.all().iter().any(|r| r.group == path.group && r.version == path.version);
    if served { Err(ApiError::no_resource()) } else { Ok(no_page()) }
}

/// Whether objects of a built-in kind may be created at all: what the body says of one does not count then.
fn admissible(resource: Option<&Resource>) -> ApiResult<()> {
    let built_in = resource.filter(|resource| !resource.is_custom());
    let refusal = built_in.and_then(|resource| Some((resource, resource.strategy().refusal()?)));
    refusal.map_or(Ok(()), |(resource, why)| Err(ApiError::forbidden(resource, "", why)))
}

/// Namespaced resources need a namespace for everything but lists over all; others must have none.
fn check_scope(resource: &Resource, path: &ResourcePath) -> ApiResult<()> {
    let in_namespace = !path.namespace.is_empty();
    if (in_namespace && !resource.namespaced) || (resource.namespaced && !in_namespace && !path.name.is_empty()) {
        return Err(ApiError::no_resource());
    }
    let sub = path.subresource.as_str();
    if !sub.is_empty() && !resource.has_subresource(sub) {
        return Err(ApiError::no_resource());
    }
    Ok(())
}

fn verb(ctx: &mut Context<'_>, verb: &str, content_type: &str, body: &Bytes) -> ApiResult<Answer> {
    let media = encoding::media(content_type).to_owned();
    if matches!(verb, "create" | "update") && !matches!(media.as_str(), "" | JSON | "*/*") {
        let accepted = if ctx.resource.is_custom() { CUSTOM } else { OBJECTS };
        return Err(ApiError::unsupported_media_type(accepted));
    }
    if !ctx.path.subresource.is_empty() {
        return subresource(ctx, verb, &media, body);
    }
    let in_place = !ctx.resource.namespaced || !ctx.path.namespace.is_empty();
    let named = !ctx.path.name.is_empty();
    let sent = draft::Sent { body: body.clone(), media };
    match verb {
        "get" => registry::get(ctx),
        "list" if ctx.path.namespace.is_empty() || ctx.resource.namespaced => list::list(ctx),
        "create" if !named && in_place => write(ctx, sent, create::draft),
        "update" if named => write(ctx, sent, update::draft),
        "patch" if named => write(ctx, sent, patch::draft),
        "delete" => delete::delete(ctx, body),
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn subresource(ctx: &mut Context<'_>, verb: &str, media: &str, body: &Bytes) -> ApiResult<Answer> {
    let sent = || draft::Sent { body: body.clone(), media: media.to_owned() };
    match (verb, ctx.resource.subresource(&ctx.path.subresource)) {
        ("get", Some(Serves::Part)) => registry::get(ctx),
        ("update", Some(Serves::Part)) => write(ctx, sent(), update::draft),
        ("patch", Some(Serves::Part)) => write(ctx, sent(), patch::draft),
        ("create", Some(Serves::Binding)) => pod::bind(ctx, body),
        ("create", Some(Serves::Eviction)) => eviction::evict(ctx, body),
        ("create", Some(Serves::Token)) => token::create(ctx, body),
        ("update", Some(Serves::Finalize)) => finalize::finalize(ctx, body),
        (_, Some(Serves::Scale)) => scale::scale(ctx, verb, media, body),
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn encode(
    inner: &Arc<Inner>,
    permitted: &Permitted,
    ctx: &Context<'_>,
    form: Form,
    answer: Answer,
) -> Response<ApiBody> {
    let resource = &ctx.resource;
    match answer {
        Answer::Stored(code, stored) => {
            let mut body = output::stored(resource, form, &stored, ctx.now);
            body.push(b'\n');
            let mut response = json(code, body);
            if ctx.verb == "get" {
                response.extensions_mut().insert(Shown(stored.rev));
            }
            if stored.is_large_tree() {
                aside::REQUESTS.discard(stored);
            }
            response
        }
        Answer::List(listed) => json(200, lists::whole(resource, form, &listed, ctx.now)),
        Answer::Large(large) => {
            let (inner, resource, flow) = (Arc::clone(inner), Arc::clone(resource), permitted.flow.clone());
            let pages = lists::Pages { inner, resource, large, form, flow, now: ctx.now };
            respond(200, JSON, ApiBody::list(pages.stream()))
        }
        Answer::Plain(code, value) => object(code, &value),
    }
}

/// How long one warning, and all warnings of an answer, may be; as the API server cuts them.
const WARNING_MAX: usize = 256;
const WARNINGS_MAX: usize = 4096;

/// RFC 7234 warnings, as the API server sends them.
fn warn(response: &mut Response<ApiBody>, warnings: &[String]) {
    let mut told: HashSet<&String> = HashSet::new();
    let mut length = 0;
    for text in warnings.iter().filter(|text| told.insert(text)) {
        let cut: String = text.chars().take(WARNING_MAX).collect();
        length += cut.len();
        if length > WARNINGS_MAX {
            return;
        }
        let quoted = cut.replace('\\', "\\\\").replace('"', "\\\"").replace(['\r', '\n'], " ");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append("warning", value);
        }
    }
}

async fn log(
    inner: &Arc<Inner>,
    ctx: &Context<'_>,
    parts: &Parts,
    (flow, attributes): (&Flow, &Attributes),
) -> ApiResult<Response<ApiBody>> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let Some((pod, options)) = pod::log_request(ctx, flow)? else {
        return Ok(typed(204, "text/plain", Bytes::new()));
    };
    let backend = inner.backend.get().ok_or_else(|| ApiError::unavailable("no node is connected"))?;
    // The request ends with its answer, the log over a socket does not.
    let place = streaming::wants_socket(parts).then(|| inner.limits.enter(flow, attributes).ok_or_else(ApiError::busy));
    let place = place.transpose()?;
    let stream = backend.logs(pod, options).await.map_err(|e| pod::backend_error(&e))?;
    if let Some(place) = place {
        let answer = streaming::log(stream, parts, place).map_err(connect::refusal)?;
        return Ok(answer.map(|()| ApiBody::full(Vec::new())));
    }
    let stream = futures::StreamExt::map(stream, |item| item.map_err(|e| BodyError(e.to_string())));
    Ok(respond(200, "text/plain", ApiBody::stream(stream)))
}
