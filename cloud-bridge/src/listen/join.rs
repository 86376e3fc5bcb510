//! `POST /v1/join`: a token and a certificate signing request in, a certificate out.

use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use super::answered::{Joined, Said};
use super::context::ListenerContext;
use super::status::{Refusal, respond};
use crate::accept::Arrival;
use crate::pki::identity::is_node_name;
use crate::pki::request::check_node_request;
use crate::pki::token::{self, TokenError};

/// A token, a name and a request of 300 bytes.
const MAX_BODY: usize = 32 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Join {
    token: String,
    node: String,
    /// PKCS#10, DER, base64.
    csr: String,
}

pub(super) async fn answer(
    request: Request<Incoming>,
    context: &ListenerContext,
    arrival: &Arrival,
) -> Result<Response<Full<Bytes>>, Refusal> {
    let body = Limited::new(request.into_body(), MAX_BODY).collect();
    let body = body.await.map_err(|error| Refusal::bad_request(format!("reading the request: {error}")))?;
    let _work = arrival.work();
    let join = read(&body.to_bytes())?;
    let csr = STANDARD.decode(&join.csr).map_err(|error| Refusal::bad_request(format!("csr: not base64: {error}")))?;
    // A request that cannot be signed must not cost the token.
    check_node_request(&join.node, &csr)?;
    let said = Said::of(&join.token, &join.node, &join.csr);
    let known = context.answered().find(Instant::now(), said);
    if let Some(Joined::Answered(answer)) = known {
        log::info!("node {} asks again for the answer to its join", join.node);
        return Ok(respond(StatusCode::OK, &answer));
    }
    if known.is_none() {
        let now = apimachinery::clock::timestamp();
        token::redeem(&context.client, &context.authority.fingerprint(), &join.token, &join.node, now)
            .await
            .map_err(of_token)?;
        // The token is used up: what fails from here on must not cost another.
        context.answered().keep(Instant::now(), said, Joined::Redeemed);
    }
    let from = context
        .bridge
        .welcome(&join.node, None)
        .await
        .map_err(|error| Refusal::unavailable(format!("the Node object was not written, join again: {error}")))?;
    let certificate = context.authority.node_at(&join.node, &csr, from.into())?;
    log::info!("node {} joined", join.node);
    let answer = json!({
        "certificate": STANDARD.encode(&certificate),
        "ca": STANDARD.encode(context.authority.certificate()),
        "cluster": context.bridge.cluster(),
    });
    context.answered().keep(Instant::now(), said, Joined::Answered(answer.clone()));
    Ok(respond(StatusCode::OK, &answer))
}

fn read(body: &[u8]) -> Result<Join, Refusal> {
    let join: Join = serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("want {{\"token\",\"node\",\"csr\"}}: {error}")))?;
    if is_node_name(&join.node) {
        Ok(join)
    } else {
        Err(Refusal::bad_request(format!("node: {:?} is not a node name", join.node)))
    }
}

fn of_token(error: TokenError) -> Refusal {
    match &error {
        TokenError::Malformed(_) => Refusal::bad_request(error.to_string()),
        TokenError::OtherNode(_) => Refusal::forbidden(error.to_string()),
        TokenError::Api { .. } => Refusal::unavailable(error.to_string()),
        TokenError::Random | TokenError::NodeName(_) | TokenError::Ttl | TokenError::NoToken(_) => {
            Refusal::internal(error.to_string())
        }
        TokenError::OtherAuthority | TokenError::Unknown | TokenError::Used | TokenError::Expired(_) => {
            Refusal::unauthorized(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_strictly() {
        assert!(read(br#"{"token":"t","node":"edge-1","csr":""}"#).is_ok());
        for bad in [
            &b"{}"[..],
            b"",
            br#"{"token":"t","node":"Edge 1","csr":""}"#,
            br#"{"token":"t","node":"a","csr":"","groups":["system:masters"]}"#,
        ] {
            assert_eq!(read(bad).err().map(|refusal| refusal.code), Some(StatusCode::BAD_REQUEST));
        }
    }
}
