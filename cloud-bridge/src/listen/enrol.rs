//! `POST /v1/enrol`: a claim token, facts about the hardware and a certificate signing request in; a certificate out, when
//! the request is approved.
//!
//! Each board has a CertificateSigningRequest in the API, which a person approves or denies with `kubectl certificate`; the
//! bridge approves it itself if the token says so and the name is new. The board asks again until it has its answer, and each
//! ask reads the API: so no bridge keeps anything, and a deleted token, an approval or a denial counts at the next ask.
//! What a stolen token can do is bounded by its uses: no more requests exist.

mod object;

use std::collections::BTreeMap;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::json;

use super::context::{Arrived, ListenerContext};
use super::status::{Refusal, respond};
use crate::accept::Source;
use crate::bridge::NameOwner;
use crate::pki::claim::{self, Claim, ClaimError, Hardware};
use crate::pki::encoding;
use crate::pki::request::check_node_request;
use crate::pki::token::TokenError;
use apimachinery::clock;
use object::{Board, Standing};

/// A token, facts about the hardware and a request of 300 bytes.
const MAX_BODY: usize = 32 * 1024;
/// Seconds until a board asks again whose request another client was writing.
const SOON: i64 = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Enrol {
    token: String,
    hardware: Hardware,
    /// PKCS#10, DER, base64.
    csr: String,
}

type Answer = Result<Response<Full<Bytes>>, Refusal>;

pub(super) async fn answer(request: Request<Incoming>, arrived: &Arrived) -> Answer {
    let context = &*arrived.context;
    let body = Limited::new(request.into_body(), MAX_BODY).collect();
    let body = body.await.map_err(|error| Refusal::bad_request(format!("reading the request: {error}")))?;
    let _work = arrived.arrival.work();
    let enrol = read(&body.to_bytes())?;
    let csr = STANDARD.decode(&enrol.csr).map_err(|error| Refusal::bad_request(format!("csr: not base64: {error}")))?;
    let authority = context.authority.fingerprint();
    let claim = claim::find(&context.client, &authority, &enrol.token, clock::timestamp()).await.map_err(of_claim)?;
    let source = Source::of(arrived.peer.ip());
    if !context.rates().ask(Instant::now(), source) {
        return Err(Refusal::too_many_requests("too many requests from this address: ask again in a minute"));
    }
    let node = claim.terms.pattern.name(&enrol.hardware).map_err(Refusal::bad_request)?;
    let key = check_node_request(&node, &csr)?.public_key;
    let board = Board::new(node, enrol.hardware, &csr, &key);
    let exchange = Exchange { context, claim: &claim, board: &board, csr: &csr };
    let name = context.bridge.name_owner(&board.node, &exchange.hardware()?).await.map_err(of_api)?;
    may_have(name, &board.node)?;
    // Also for an object that is there: another client, or this board with another token, may have made it.
    exchange.count(source).await?;
    let object = match exchange.api().get_opt(&board.id).await.map_err(of_api)? {
        Some(object) => object,
        None => exchange.create(arrived).await?,
    };
    if !board.is_its(&object) {
        let message = format!(
            "certificatesigningrequest {} is of another board, or was changed: delete it, and this board requests again",
            board.id
        );
        return Err(Refusal::conflict("RequestChanged", message));
    }
    match object::standing(&object) {
        Standing::Refused(why) => Err(Refusal::forbidden(format!("request {} was denied: {why}", board.id))),
        // Its Node was there when it was issued.
        Standing::Issued(_) if name == NameOwner::None => Err(exchange.deleted()),
        Standing::Issued(pem) => exchange.issued(&pem),
        Standing::Approved => exchange.issue(object).await,
        // A board whose Node is there already may be one that only says so.
        Standing::Pending if claim.terms.auto && name == NameOwner::None => exchange.approve(object).await,
        Standing::Pending => Ok(exchange.waits(object::retry_seconds(&object, clock::timestamp()))),
    }
}

fn read(body: &[u8]) -> Result<Enrol, Refusal> {
    let enrol: Enrol = serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("want {{\"token\",\"hardware\",\"csr\"}}: {error}")))?;
    enrol.hardware.check().map_err(Refusal::bad_request)?;
    Ok(enrol)
}

/// Whether a board may have a name now.
fn may_have(name: NameOwner, node: &str) -> Result<(), Refusal> {
    match name {
        NameOwner::None | NameOwner::Own => Ok(()),
        NameOwner::Other => Err(Refusal::conflict(
            "NameTaken",
            format!("node {node} belongs to another board: this one waits until kubectl delete node {node}"),
        )),
        NameOwner::Revoked => Err(Refusal::conflict(
            "NodeRevoked",
            format!("node {node} was revoked: this board waits until kubectl delete node {node}"),
        )),
    }
}

/// A board with a good claim token.
struct Exchange<'a> {
    context: &'a ListenerContext,
    claim: &'a Claim,
    board: &'a Board,
    /// DER.
    csr: &'a [u8],
}

impl Exchange<'_> {
    fn api(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.context.client.clone())
    }

    fn hardware(&self) -> Result<String, Refusal> {
        let none = || Refusal::bad_request("hardware: this board reports no serial number, address or machine id");
        self.board.hardware.digest().ok_or_else(none)
    }

    /// Counts a use of the token, unless this request has used it already.
    async fn count(&self, source: Source) -> Result<(), Refusal> {
        let (context, claim, board) = (self.context, self.claim, self.board);
        if claim.has_counted(board.number) {
            return Ok(());
        }
        if !context.rates().new_request(Instant::now(), source, &claim.name) {
            return Err(Refusal::too_many_requests("too many new boards at once: ask again in a minute"));
        }
        let _counting = context.counting.lock().await;
        claim::count(&context.client, &claim.name, board.number).await.map_err(of_claim)
    }

    /// Creates the object of a request that is new, or that the API has deleted as too old (K8s
    /// pkg/controller/certificates/cleaner).
    async fn create(&self, arrived: &Arrived) -> Result<CertificateSigningRequest, Refusal> {
        let (context, claim, board) = (self.context, self.claim, self.board);
        let object = board.object(&claim.name, arrived.peer.ip().to_canonical(), context.authority.node_life());
        let object = serde_json::from_value(object).map_err(|error| Refusal::internal(error.to_string()))?;
        match self.api().create(&PostParams::default(), &object).await {
            Ok(object) => {
                log::info!("board {} requests to enrol as node {}: {}", arrived.peer, board.node, board.id);
                Ok(object)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.api().get(&board.id).await.map_err(of_api)
            }
            Err(error) => Err(of_api(error)),
        }
    }

    /// Approves the request of a free name. The name is taken first: of boards that ask for it at once, one gets it, and
    /// the others wait for a person.
    async fn approve(&self, object: CertificateSigningRequest) -> Answer {
        let node = &self.board.node;
        if !self.context.bridge.take_free_name(node, &self.hardware()?).await.map_err(of_api)? {
            return Ok(self.waits(object::retry_seconds(&object, clock::timestamp())));
        }
        let patch = object::approval(&object, &self.claim.name, clock::timestamp());
        match self.api().patch_approval(&self.board.id, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(object) => self.issue(object).await,
            // Without this right a person approves, as the manifest says.
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                log::warn!("request {} waits for a person: {}", self.board.id, status.message);
                Ok(self.waits(object::retry_seconds(&object, clock::timestamp())))
            }
            Err(error) => self.not_written(error),
        }
    }

    /// Issues the certificate of an approved request. What the node had before becomes void, so of several bridges one
    /// does this at a time.
    async fn issue(&self, object: CertificateSigningRequest) -> Answer {
        let (context, board, now) = (self.context, self.board, clock::timestamp());
        if object::is_being_issued(&object, now) {
            return Ok(self.waits(SOON));
        }
        let patch = object::issuing(&object, now);
        let object = match self.api().patch(&board.id, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(object) => object,
            Err(error) => return self.not_written(error),
        };
        let hardware = self.hardware()?;
        may_have(context.bridge.take_name(&board.node, &hardware).await.map_err(of_api)?, &board.node)?;
        let from = context.bridge.welcome(&board.node, Some(&hardware)).await.map_err(of_api)?;
        let certificate = context.authority.node_at(&board.node, self.csr, from.into())?;
        let patch = object::issued(&object, &certificate);
        if let Err(error) = self.api().patch_status(&board.id, &PatchParams::default(), &Patch::Merge(&patch)).await {
            return self.not_written(error);
        }
        log::info!("node {} enrolled by request {}", board.node, board.id);
        Ok(self.joined(&certificate))
    }

    /// The answer with a certificate that is in the API: an earlier answer may not have arrived.
    fn issued(&self, pem: &[u8]) -> Answer {
        let chain = encoding::certificates(&self.board.id, pem)?;
        let first = chain.first().ok_or_else(|| Refusal::internal("the issued certificate is empty"))?;
        Ok(self.joined(first))
    }

    /// A deleted Node needs another approval.
    fn deleted(&self) -> Refusal {
        let (request, node) = (&self.board.id, &self.board.node);
        let message = format!(
            "node {node} was deleted after request {request} was answered: this board requests again when that is gone, an hour \
             after the decision or by kubectl delete csr {request}"
        );
        Refusal::conflict("NodeDeleted", message)
    }

    fn joined(&self, certificate: &[u8]) -> Response<Full<Bytes>> {
        let labels: &BTreeMap<String, String> = &self.claim.terms.labels;
        respond(
            StatusCode::OK,
            &json!({
                "certificate": STANDARD.encode(certificate),
                "ca": STANDARD.encode(self.context.authority.certificate()),
                "cluster": self.context.bridge.cluster(),
                "node": self.board.node,
                "labels": labels,
            }),
        )
    }

    fn waits(&self, seconds: i64) -> Response<Full<Bytes>> {
        let answer = json!({"request": self.board.id, "node": self.board.node, "retrySeconds": seconds});
        respond(StatusCode::ACCEPTED, &answer)
    }

    /// Another client has written the object meanwhile: the next ask sees that.
    fn not_written(&self, error: kube::Error) -> Answer {
        match error {
            kube::Error::Api(status) if status.is_conflict() || status.is_not_found() => Ok(self.waits(SOON)),
            error => Err(of_api(error)),
        }
    }
}

fn of_api(error: kube::Error) -> Refusal {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => Refusal::unavailable(format!(
            "the bridge lacks rights for enrolment (kubectl apply -f deploy/bridge/enrolment.yaml): {}",
            status.message
        )),
        error => Refusal::unavailable(format!("the API did not do it, ask again: {error}")),
    }
}

fn of_claim(error: ClaimError) -> Refusal {
    match error {
        ClaimError::Text(TokenError::Malformed(_)) => Refusal::bad_request(error.to_string()),
        ClaimError::Text(TokenError::OtherAuthority) | ClaimError::Unknown | ClaimError::Expired(_) => {
            Refusal::unauthorized(error.to_string())
        }
        ClaimError::UsedUp(_) => Refusal::forbidden(error.to_string()),
        ClaimError::Contended | ClaimError::Damaged(_) => Refusal::unavailable(error.to_string()),
        ClaimError::Api { source, .. } => of_api(*source),
        ClaimError::Text(_) | ClaimError::Ttl | ClaimError::Uses | ClaimError::NoToken(_) => {
            Refusal::internal(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn requests_are_read_strictly() {
        assert!(read(br#"{"token":"t","hardware":{"serial":"1","mac":["02:00:5e:10:00:01"]},"csr":""}"#).is_ok());
        for bad in [
            &b"{}"[..],
            br#"{"token":"t","csr":""}"#,
            br#"{"token":"t","hardware":{"serial":"a\nb"},"csr":""}"#,
            br#"{"token":"t","hardware":{},"csr":"","node":"gw-1"}"#,
        ] {
            assert_eq!(read(bad).err().map(|refusal| refusal.code), Some(StatusCode::BAD_REQUEST));
        }
    }

    #[test]
    fn e1_taken_and_revoked_names_make_a_board_wait() {
        let refused = |name| may_have(name, "gw-1").err().map(|refusal| (refusal.code.as_u16(), refusal.reason));
        assert_eq!((refused(NameOwner::None), refused(NameOwner::Own)), (None, None));
        assert_eq!(refused(NameOwner::Other), Some((409, "NameTaken")));
        assert_eq!(refused(NameOwner::Revoked), Some((409, "NodeRevoked")));
    }

    #[test]
    fn only_what_no_time_cures_ends_the_asking() {
        let code = |error| of_claim(error).code.as_u16();
        assert_eq!(
            (code(ClaimError::Unknown), code(ClaimError::UsedUp(1)), code(ClaimError::Contended)),
            (401, 403, 503)
        );
        assert_eq!(code(ClaimError::Expired(Timestamp::UNIX_EPOCH)), 401);
        assert_eq!(code(ClaimError::Damaged("claim-1".into())), 503, "a person may put it right");
    }
}
