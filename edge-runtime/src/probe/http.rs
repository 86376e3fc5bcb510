//! The `httpGet` probe: one GET over HTTP/1.1, judged by its status as the kubelet judges it.
//!
//! TLS certificates are not verified: the address is the pod's own and containers sign for themselves.
//! Redirects are followed within the same host only, as many as Go's client follows. Lifecycle hooks use the same.

mod request;

use std::sync::Arc;

use futures_rustls::TlsConnector;
use rustls::ClientConfig;
use rustls::time_provider::DefaultTimeProvider;
use rustls_pki_types::ServerName;
use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::worker::Outcome;
use crate::net::tls::{Trust, client_config};

pub(super) use self::request::{Request, authority, target};

const MAX_HEAD: usize = 16 * 1024;
/// Body bytes that are read at most (the kubelet's limit).
const MAX_BODY: usize = 10 * 1024;
const MAX_REDIRECTS: usize = 10;
/// Informational answers (1xx) before the one that counts (Go's net/http, `persistConn.readResponse`).
const MAX_INFORMATIONAL: usize = 5;
/// Error of Go's client when an HTTPS request meets a plain server.
pub(super) const PLAIN_ANSWER: &str = "http: server gave HTTP response to HTTPS client";

/// Makes the request of a probe and judges the answer; the caller bounds the time.
///
/// Makes an HTTP request like K8s pkg/probe/http/http.go: a redirect that is not followed is a success with a warning.
pub(super) async fn get(request: Request, tls: &Arc<ClientConfig>) -> Outcome {
    match fetch(request, tls).await {
        Ok(Response { status: 200..300, .. }) => Outcome::Success,
        Ok(Response { status: 300..400, body, .. }) => {
            let body = String::from_utf8_lossy(&body);
            Outcome::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        Ok(Response { status, .. }) => Outcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
        Err(error) => Outcome::Failure(error),
    }
}

/// The answer at the end of the redirects within the same host.
///
/// # Errors
/// No answer, as Go's client words it.
pub(super) async fn fetch(mut request: Request, tls: &Arc<ClientConfig>) -> Result<Response, String> {
    if let Some(why) = request.refused() {
        return Err(request.error(&why));
    }
    for _ in 0..=MAX_REDIRECTS {
        let response = exchange(&request, tls).await.map_err(|error| request.error(&error))?;
        let next = match (response.status, &response.location) {
            (301 | 302 | 303 | 307 | 308, Some(location)) => request.redirected(location),
            _ => None,
        };
        match next {
            Some(next) => request = next,
            None => return Ok(response),
        }
    }
    Err(request.error(&format!("stopped after {MAX_REDIRECTS} redirects")))
}

pub(super) struct Response {
    pub(super) status: u16,
    location: Option<String>,
    /// First [`MAX_BODY`] bytes of the body.
    body: Vec<u8>,
}

async fn exchange(request: &Request, tls: &Arc<ClientConfig>) -> Result<Response, String> {
    let stream = super::tcp::connect(request.address).await?;
    if !request.tls {
        return talk(stream, request).await;
    }
    let name = ServerName::try_from(request.host.clone()).unwrap_or(ServerName::IpAddress(request.address.ip().into()));
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.map_err(|e| handshake_error(&e))?;
    talk(stream, request).await
}

/// The message of a failed handshake. A plain HTTP server answers without a TLS record; Go has its own words for that.
fn handshake_error(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => PLAIN_ANSWER.to_owned(),
        _ => error.to_string(),
    }
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &Request) -> Result<Response, String> {
    stream.write_all(&request.bytes()).await.map_err(|e| e.to_string())?;
    stream.flush().await.map_err(|e| e.to_string())?;
    let mut seen = Vec::new();
    let mut chunk = [0u8; 2048];
    let (mut informational, mut more) = (0, true);
    loop {
        if more {
            let n = stream.read(&mut chunk).await.map_err(|e| e.to_string())?;
            if n == 0 {
                return Err("EOF".to_owned());
            }
            seen.extend_from_slice(&chunk[..n]);
        }
        more = true;
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut headers);
        match head.parse(&seen) {
            Ok(httparse::Status::Complete(end)) if head.code.is_some_and(|c| (100..200).contains(&c) && c != 101) => {
                if informational == MAX_INFORMATIONAL {
                    return Err("net/http: too many 1xx informational responses".to_owned());
                }
                informational += 1;
                seen.drain(..end);
                // The next one may have come together with it.
                more = seen.is_empty();
            }
            Ok(httparse::Status::Complete(end)) => {
                let header = |name: &str| {
                    let found = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
                    std::str::from_utf8(found.value).ok()
                };
                let length = header("content-length").and_then(|l| l.trim().parse::<usize>().ok());
                let (status, location) = (head.code.unwrap_or(0), header("location").map(str::to_owned));
                let wanted = length.unwrap_or(MAX_BODY).min(MAX_BODY);
                let mut body = seen.split_off(end);
                read_body(&mut stream, &mut body, wanted).await;
                return Ok(Response { status, location, body });
            }
            Ok(httparse::Status::Partial) if seen.len() < MAX_HEAD => {}
            Ok(httparse::Status::Partial) => return Err("response headers are too long".to_owned()),
            Err(error) => return Err(format!("malformed HTTP response: {error}")),
        }
    }
}

/// Reads to the end even if the body is not needed: a server whose peer hangs up in mid-answer logs an error for every
/// probe.
async fn read_body(stream: &mut (impl AsyncRead + Unpin), body: &mut Vec<u8>, wanted: usize) {
    let mut chunk = [0u8; 2048];
    while body.len() < wanted {
        match stream.read(&mut chunk).await {
            Ok(n) if n > 0 => body.extend_from_slice(&chunk[..n.min(wanted - body.len())]),
            _ => return,
        }
    }
}

/// TLS as probes speak it: any certificate will do.
pub(super) fn tls_config() -> Arc<ClientConfig> {
    let config = client_config(Trust::Anybody, Arc::new(DefaultTimeProvider));
    Arc::new(config.expect("the ring provider serves the default TLS versions"))
}

#[cfg(test)]
mod tests;
