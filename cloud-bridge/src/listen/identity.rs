//! Identity of a node: from the certificate of a connection to the name of a node that may be served. Also serves `POST
//! /v1/identity`, with which a node tests a new certificate before it deletes the old one.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::json;

use super::context::ListenerContext;
use super::status::{Refusal, respond};
use crate::bridge::{Credential, NotAdmitted};
use crate::pki::clock;
use crate::pki::identity::Holder;

pub(super) async fn answer(
    context: &ListenerContext,
    holder: Option<&Holder>,
) -> Result<Response<Full<Bytes>>, Refusal> {
    let (node, _) = proven(context, holder).await?;
    Ok(respond(StatusCode::OK, &json!({ "node": node })))
}

/// The node of this certificate, if it may be served now. A resumed TLS session uses an old certificate without
/// checking it again, so its end is checked here.
pub(super) async fn proven(
    context: &ListenerContext,
    holder: Option<&Holder>,
) -> Result<(String, Credential), Refusal> {
    let holder = holder.ok_or_else(|| Refusal::unauthorized("a client certificate is required; join first"))?;
    let user = &holder.subject.user;
    let node = holder.subject.node();
    let node = node.ok_or_else(|| Refusal::forbidden(format!("{user} is not the identity of a node")))?.to_owned();
    if holder.expires <= clock::now() {
        let end = Timestamp::try_from(holder.expires).map_or_else(|_| "long ago".to_owned(), |end| end.to_string());
        let message = format!("the certificate of node {node} ended at {end}: join again with a fresh token");
        return Err(Refusal::unauthorized(message));
    }
    context.bridge.admit(&node, holder.issued).await.map_err(|error| match &error {
        NotAdmitted::Unknown { .. } => Refusal::unavailable(error.to_string()),
        _ => Refusal::forbidden(error.to_string()),
    })?;
    let authority = std::sync::Arc::clone(&context.authority);
    let trust = authority.trust_of(holder);
    if let Some((rotation, trust)) = authority.rotation().zip(trust) {
        context.bridge.record_trust(&node, rotation.mark(trust));
    }
    Ok((node, Credential { authority, issued: holder.issued, expires: holder.expires, trust }))
}
