//! One call at the bridge: HTTPS, with the service account's token of this moment.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full, Limited};
use rustls_pki_types::CertificateDer;
use sampan_grpc::{Code, LASTING_CALL, MAX_MESSAGE, Status};
use tokio::time::timeout;

use super::answer::{HEAD, read};
use crate::https_client::{HttpsClient, https_client};

/// Timeout of a call, which the node has too.
const DEADLINE: Duration = Duration::from_secs(120);
const _: () = assert!(DEADLINE.as_secs() < LASTING_CALL.as_secs());
/// Longest token, bytes.
const MAX_TOKEN: u64 = 64 << 10;

/// The controller of one driver on one node.
pub(super) struct Caller {
    client: HttpsClient,
    /// `https://HOST:PORT/csi/NODE/DRIVER`.
    place: String,
    token: PathBuf,
}

impl Caller {
    pub(super) fn new(
        authorities: Vec<CertificateDer<'static>>,
        place: String,
        token: PathBuf,
    ) -> anyhow::Result<Self> {
        let client = https_client(authorities).context("--bridge-ca")?;
        Ok(Self { client, place, token })
    }

    /// Calls a method of the controller.
    ///
    /// # Errors
    /// The driver's status; UNAVAILABLE if node or bridge are away.
    pub(super) async fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
        let late = |_| Err(Status::new(Code::DeadlineExceeded, format!("no answer in {} s", DEADLINE.as_secs())));
        timeout(DEADLINE, self.ask(path, message)).await.unwrap_or_else(late)
    }

    async fn ask(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
        let request = self.request(path, message).map_err(|why| unavailable(&why))?;
        let answer = self.client.request(request).await.map_err(|error| unavailable(&chain(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), HEAD + MAX_MESSAGE).collect().await;
        // Too long, or cut off.
        let body = body.map_err(|error| unavailable(&error.to_string()))?;
        read(status, &body.to_bytes())
    }

    fn request(&self, path: &str, message: &[u8]) -> Result<Request<Full<Bytes>>, String> {
        let token = sampan_file::read_text(&self.token, MAX_TOKEN);
        let token = token.map_err(|error| format!("{}: {error}", self.token.display()))?;
        let bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let mut bearer = bearer.map_err(|_| format!("{} holds no token", self.token.display()))?;
        bearer.set_sensitive(true);
        let length = u32::try_from(message.len()).map_err(|error| error.to_string())?;
        let body = [&length.to_be_bytes()[..], message].concat();
        let request = Request::post(format!("{}{path}", self.place)).header(AUTHORIZATION, bearer);
        request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())
    }
}

fn unavailable(why: &str) -> Status {
    Status::new(Code::Unavailable, format!("cannot reach the bridge: {why}"))
}

/// An error with its causes: hyper's own text does not name them.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
