//! `GET /v1/nodes` and `GET /metrics`: the state of the nodes, for clients with an administrator's certificate of the
//! bridge's authority. `cloud-bridge nodes` creates one for itself.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::Full;

use super::context::ListenerContext;
use super::status::Refusal;
use crate::bridge::{Bridge, overview};
use crate::pki::clock;
use crate::pki::identity::Holder;

/// Groups whose certificates are accepted: of the standalone administrator, and of `cloud-bridge nodes`.
const GROUPS: [&str; 2] = ["system:masters", OPERATORS];

/// A group with read access and no other.
pub(crate) const OPERATORS: &str = "sampan:operators";

pub(super) fn nodes(context: &ListenerContext, holder: Option<&Holder>) -> Result<Response<Full<Bytes>>, Refusal> {
    allowed(holder)?;
    let text =
        serde_json::to_string(&context.bridge.overview()).map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(answer("application/json", text))
}

pub(super) fn metrics(context: &ListenerContext, holder: Option<&Holder>) -> Result<Response<Full<Bytes>>, Refusal> {
    allowed(holder)?;
    Ok(text(&context.bridge))
}

pub(super) fn text(bridge: &Bridge) -> Response<Full<Bytes>> {
    answer("text/plain; version=0.0.4", overview::metrics(&bridge.overview()))
}

fn allowed(holder: Option<&Holder>) -> Result<(), Refusal> {
    let holder = holder.ok_or_else(|| Refusal::unauthorized("an operator's client certificate is required"))?;
    if holder.expires <= clock::now() {
        return Err(Refusal::unauthorized("the operator's client certificate has expired"));
    }
    if is_operator(holder) {
        return Ok(());
    }
    Err(Refusal::forbidden(format!("{} is no operator of this bridge", holder.subject.user)))
}

/// Whether this certificate allows its holder to read. Its validity is checked elsewhere.
pub(crate) fn is_operator(holder: &Holder) -> bool {
    holder.subject.groups.iter().any(|group| GROUPS.contains(&group.as_str()))
}

fn answer(kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
