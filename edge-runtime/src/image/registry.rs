//! One repository at one registry (or mirror): the pull half of the distribution protocol, with its logins. Returns
//! documents with a verified digest and opens blobs; does not know layers or files.

mod endpoint;
mod login;

use std::fmt::Write;
use std::io::Read;
use std::time::{Duration, Instant};

use serde::Deserialize;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use crate::image::auth::{Credential, Keyring};
use crate::image::digest::{is_sha256, sha256};
use crate::image::limits::Limits;
use crate::image::manifest::ACCEPT;
use crate::image::registry_config::RegistryConfig;
use crate::image::{ImageError, Reference, challenge, http};
use crate::net::proxy::Proxy;
use crate::sys::from_json::from_json;

pub use endpoint::{Endpoint, endpoints, without_tls};

/// A repository that answers.
pub struct Repository<'a> {
    agent: Agent,
    endpoint: Endpoint,
    reference: &'a Reference,
    limits: &'a Limits,
    credentials: Vec<Option<Credential>>,
    authorization: Option<String>,
    /// The login that the registry took.
    used: Option<Credential>,
}

/// A manifest or index as the registry has it.
pub struct Fetched {
    pub bytes: Vec<u8>,
    pub digest: String,
}

/// Bytes of an error page that are read for its text.
const ERROR_BYTES: u64 = 4096;
const ERROR_TIME: Duration = Duration::from_secs(5);

impl<'a> Repository<'a> {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// The CA file of the configuration cannot be read.
    pub fn new(
        endpoint: Endpoint,
        config: &RegistryConfig,
        reference: &'a Reference,
        keyring: &Keyring,
        limits: &'a Limits,
        proxy: &Proxy,
    ) -> Result<Self, ImageError> {
        let only_tls = endpoint.base.starts_with("https:");
        let agent = http::agent(config.ca.as_deref(), config.insecure, only_tls, proxy)?;
        let mut credentials: Vec<_> =
            keyring.matching(&endpoint.host, reference).into_iter().cloned().map(Some).collect();
        if credentials.is_empty() {
            credentials.push(None);
        }
        Ok(Self { agent, endpoint, reference, limits, credentials, authorization: None, used: None })
    }

    /// Returns the digest of the tag, if the registry reports it without sending the manifest (which Docker Hub would
    /// count as a pull).
    ///
    /// # Errors
    /// Not reachable, refused, or not there.
    pub fn head(&mut self, name: &str) -> Result<Option<String>, ImageError> {
        let response = self.ask("HEAD", &format!("manifests/{name}"), Some(ACCEPT), None)?;
        let digest = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        Ok(digest.filter(|digest| is_sha256(digest)).map(str::to_owned))
    }

    /// A manifest or index by tag or digest; a digest is checked.
    ///
    /// # Errors
    /// The registry is unreachable, refuses, or does not have it; or the document is too large or does not match its
    /// digest.
    pub fn manifest(&mut self, name: &str) -> Result<Fetched, ImageError> {
        let response = self.ask("GET", &format!("manifests/{name}"), Some(ACCEPT), None)?;
        self.document(response, &format!("manifest {name}"), is_sha256(name).then_some(name))
    }

    /// A small blob (a configuration), checked.
    ///
    /// # Errors
    /// Same as [`Repository::manifest`].
    pub fn small_blob(&mut self, digest: &str) -> Result<Vec<u8>, ImageError> {
        let response = self.ask("GET", &format!("blobs/{digest}"), None, None)?;
        Ok(self.document(response, &format!("blob {digest}"), Some(digest))?.bytes)
    }

    /// Requests a blob from byte `start` if the registry supports that (status 206), otherwise from its beginning.
    /// `None`: the blob has nothing at `start` (416).
    ///
    /// # Errors
    /// Not reachable, refused, or not there.
    pub fn blob(&mut self, digest: &str, start: u64) -> Result<Option<Response<Body>>, ImageError> {
        let response = self.ask("GET", &format!("blobs/{digest}"), None, (start > 0).then_some(start))?;
        Ok((response.status() != StatusCode::RANGE_NOT_SATISFIABLE).then_some(response))
    }

    /// A failure on the way, as opposed to an answer.
    pub fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ImageError {
        let (image, registry) = (self.reference.to_string(), self.endpoint.base.clone());
        ImageError::Unavailable { image, registry, source: source.into() }
    }

    /// The login that the registry wanted and took so far.
    pub fn used(&self) -> Option<&Credential> {
        self.used.as_ref()
    }

    pub fn image(&self) -> String {
        self.reference.to_string()
    }

    fn document(&self, response: Response<Body>, what: &str, wanted: Option<&str>) -> Result<Fetched, ImageError> {
        let limit = self.limits.document_bytes;
        let bytes = read_within(response, limit + 1, http::DOCUMENT).map_err(|error| self.unreachable(error))?;
        let what = format!("{what} of {}", self.reference);
        ImageError::bound(bytes.len() as u64, limit, || format!("size of {what}"))?;
        let digest = sha256(&bytes);
        ImageError::compare(digest.clone(), wanted.unwrap_or(&digest), || what)?;
        Ok(Fetched { bytes, digest })
    }

    /// Sends one request; answers a 401 by logging in with each fitting credential in turn.
    fn ask(
        &mut self,
        method: &str,
        path: &str,
        accept: Option<&str>,
        start: Option<u64>,
    ) -> Result<Response<Body>, ImageError> {
        let mut response = self.send(method, path, accept, start)?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let headers = response.headers().get_all("www-authenticate");
            let challenges: Vec<_> = headers.iter().filter_map(|value| value.to_str().ok()).collect();
            let Some(challenge) = challenge::parse(&challenges.join(", ")) else {
                return Err(self.refused(response, "wants a login of a kind that is not supported"));
            };
            for credential in self.credentials.clone() {
                let Some(authorization) = self.log_in(&challenge, credential.as_ref())? else { continue };
                self.authorization = Some(authorization);
                response = self.send(method, path, accept, start)?;
                if response.status() != StatusCode::UNAUTHORIZED {
                    self.used = credential;
                    break;
                }
            }
        }
        let status = response.status();
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refused(
                response,
                "pull access denied: the repository does not exist or needs a login (imagePullSecrets)",
            )),
            StatusCode::NOT_FOUND => Err(self.refused(response, &format!("{path}: not found"))),
            StatusCode::TOO_MANY_REQUESTS => {
                Err(self.refused(response, "too many requests: its rate limit is reached"))
            }
            status if status.is_server_error() => {
                let text = error_text(response);
                Err(self.unreachable(format!("it answered {path} with {status}{text}")))
            }
            status => Err(self.refused(response, &format!("{path}: unexpected status {status}"))),
        }
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        accept: Option<&str>,
        start: Option<u64>,
    ) -> Result<Response<Body>, ImageError> {
        let mut url = format!("{}/v2/{}/{path}", self.endpoint.base, self.reference.repository);
        if let Some(namespace) = &self.endpoint.namespace {
            let _ = write!(url, "?ns={namespace}");
        }
        let mut request = if method == "HEAD" { self.agent.head(&url) } else { self.agent.get(&url) };
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        if let Some(start) = start {
            request = request.header("range", format!("bytes={start}-"));
        }
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        request.call().map_err(|error| self.unreachable(error))
    }

    fn refused(&self, response: Response<Body>, why: &str) -> ImageError {
        let text = error_text(response);
        ImageError::Refused { image: self.image(), registry: self.endpoint.base.clone(), why: format!("{why}{text}") }
    }
}

/// Reads the first `limit` bytes of a body that must be complete in `time`, plus at most one silence: a very slow
/// registry must not hold a pull for hours.
fn read_within(response: Response<Body>, limit: u64, time: Duration) -> std::io::Result<Vec<u8>> {
    let started = Instant::now();
    let mut body = response.into_body().into_with_config().limit(u64::MAX).reader().take(limit);
    let (mut bytes, mut buffer) = (Vec::new(), [0; 8192]);
    loop {
        let n = body.read(&mut buffer)?;
        if n == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&buffer[..n]);
        if started.elapsed() > time {
            return Err(std::io::Error::other(format!("its answer was not complete after {} s", time.as_secs())));
        }
    }
}

/// Error text of the registry, in brackets, without control characters.
fn error_text(response: Response<Body>) -> String {
    #[derive(Deserialize)]
    struct Page {
        errors: Vec<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        #[serde(default)]
        message: String,
    }
    let bytes = read_within(response, ERROR_BYTES, ERROR_TIME).unwrap_or_default();
    let page: Option<Page> = from_json(&bytes).ok();
    let messages: Vec<_> = page.map(|page| page.errors).unwrap_or_default().into_iter().map(|e| e.message).collect();
    let text: String = messages.join("; ").chars().filter(|c| !c.is_control()).take(200).collect();
    if text.is_empty() { text } else { format!(" ({text})") }
}
