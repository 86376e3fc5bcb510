//! The `grpc` probe: one call of `grpc.health.v1.Health/Check` in plain HTTP/2, judged as the kubelet judges it
//! (K8s pkg/probe/grpc/grpc.go). [`frame`] and [`hpack`] hold what it needs of HTTP/2; nothing else speaks it here.

mod frame;
mod hpack;

use std::cell::Cell;
use std::net::SocketAddr;

use smol::io::{AsyncReadExt, AsyncWriteExt};

use self::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
};
use super::worker::Outcome;

/// The one stream of the connection.
const STREAM: u32 = 1;
/// An answer to a health check has a few hundred bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// `SERVING` of `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;
/// `UNIMPLEMENTED` of gRPC's status codes.
const UNIMPLEMENTED: u32 = 12;
/// gRPC's status codes by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Answer of the server.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    http_status: String,
    grpc_status: Option<u32>,
    grpc_message: String,
    body: Vec<u8>,
}

/// Makes the call. `connected` is set on the way, for the words of a time-out.
pub(super) async fn probe(address: SocketAddr, service: &str, connected: &Cell<bool>) -> Outcome {
    let asked = async {
        let stream = super::tcp::connect(address).await;
        let stream = stream.map_err(|error| format!("error: failed to connect service at \"{address}\": {error}"))?;
        connected.set(true);
        let answer = call(stream, &request(&address.to_string(), service)).await;
        judge(&answer.map_err(|error| format!("error: health rpc probe failed: {error}"))?)
    };
    asked.await.map_or_else(Outcome::Failure, |()| Outcome::Success)
}

/// The words for a time-out.
pub(super) fn late(address: &str, connected: bool, seconds: u64) -> Outcome {
    Outcome::Failure(if connected {
        format!("timeout: health rpc did not complete within {seconds}s")
    } else {
        format!("timeout: failed to connect service \"{address}\" within {seconds}s: context deadline exceeded")
    })
}

fn judge(answer: &Answer) -> Result<(), String> {
    Err(match answer {
        Answer { http_status, .. } if http_status != "200" => {
            format!("error: health rpc probe failed: unexpected HTTP status code received from server: {http_status}")
        }
        Answer { grpc_status: Some(0), body, .. } => match serving(body) {
            Some(SERVING) => return Ok(()),
            other => {
                let names = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
                let status = usize::try_from(other.unwrap_or(0)).ok().and_then(|at| names.get(at));
                format!("service unhealthy (responded with {:?})", status.unwrap_or(&"UNKNOWN"))
            }
        },
        Answer { grpc_status: Some(UNIMPLEMENTED), grpc_message, .. } => {
            format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {grpc_message}"
            )
        }
        Answer { grpc_status, grpc_message, .. } => {
            let code = grpc_status.and_then(|code| CODES.get(usize::try_from(code).ok()?)).unwrap_or(&"Unknown");
            format!("error: health rpc probe failed: rpc error: code = {code} desc = {grpc_message}")
        }
    })
}

/// `status` of a `HealthCheckResponse` inside its length-prefixed message; absent means 0.
fn serving(body: &[u8]) -> Option<u64> {
    match body.get(5..)? {
        [0x08, value, ..] => Some(u64::from(*value)),
        _ => None,
    }
}

/// Everything the client says unasked: it needs nothing of the answer for it.
fn request(authority: &str, service: &str) -> Vec<u8> {
    let mut headers = vec![0x83, 0x86]; // :method POST, :scheme http
    let mut literal = |name: &[u8], value: &str| {
        headers.extend_from_slice(name);
        string(&mut headers, value);
    };
    literal(&[0x04], "/grpc.health.v1.Health/Check");
    literal(&[0x01], authority);
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "kube-probe/1.36")] {
        let mut prefix = vec![0x00];
        string(&mut prefix, name);
        literal(&prefix, value);
    }
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length > 0x7f {
            message.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        message.push(u8::try_from(length).unwrap_or(0));
        message.extend_from_slice(service.as_bytes());
    }
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend_from_slice(&message);
    let mut out = frame::PREFACE.to_vec();
    // HEADER_TABLE_SIZE 0, ENABLE_PUSH 0.
    let settings = vec![0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0];
    for (kind, flags, stream, payload) in
        [(SETTINGS, 0, 0, settings), (HEADERS, END_HEADERS, STREAM, headers), (DATA, END_STREAM, STREAM, body)]
    {
        Frame { kind, flags, stream, payload }.write(&mut out);
    }
    out
}

/// A plain string of HPACK. All of them are shorter than what would need a longer prefix.
fn string(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(126)];
    out.push(u8::try_from(bytes.len()).unwrap_or(0));
    out.extend_from_slice(bytes);
}

async fn call(mut stream: super::tcp::Stream, request: &[u8]) -> Result<Answer, String> {
    stream.write_all(request).await.map_err(|e| e.to_string())?;
    let mut answer = Answer::default();
    let (mut seen, mut block, mut total, mut over) = (Vec::new(), Vec::new(), 0, false);
    let mut chunk = [0u8; 2048];
    loop {
        while let Some(frame) = Frame::read(&mut seen)? {
            let mut reply = Vec::new();
            match (frame.kind, frame.stream) {
                (SETTINGS, 0) if !frame.has(ACK) => {
                    Frame { kind: SETTINGS, flags: ACK, stream: 0, payload: Vec::new() }.write(&mut reply);
                }
                (PING, 0) if !frame.has(ACK) => {
                    Frame { kind: PING, flags: ACK, stream: 0, payload: frame.payload.clone() }.write(&mut reply);
                }
                (GOAWAY, 0) => return Err("the server closes the connection".to_owned()),
                (RST_STREAM, STREAM) => return Err("the server reset the call".to_owned()),
                (HEADERS | CONTINUATION, STREAM) => {
                    block.extend_from_slice(frame.body());
                    if frame.has(END_HEADERS) {
                        answer.take(hpack::headers(&std::mem::take(&mut block))?);
                    }
                }
                (DATA, STREAM) => answer.body.extend_from_slice(frame.body()),
                _ => {}
            }
            // Its headers may still be continued.
            over |= matches!(frame.kind, HEADERS | DATA) && frame.stream == STREAM && frame.has(END_STREAM);
            if over && block.is_empty() {
                return Ok(answer);
            }
            // A server that has said all and gone needs no reply.
            let _ = stream.write_all(&reply).await;
        }
        let n = stream.read(&mut chunk).await.map_err(|e| e.to_string())?;
        total += n;
        if n == 0 || total > MAX_ANSWER {
            return Err("the connection ended before the answer".to_owned());
        }
        seen.extend_from_slice(&chunk[..n]);
    }
}

impl Answer {
    fn take(&mut self, headers: Vec<(String, String)>) {
        for (name, value) in headers {
            match name.as_str() {
                ":status" => self.http_status = value,
                "grpc-status" => self.grpc_status = value.parse().ok(),
                "grpc-message" => self.grpc_message = unescape(&value),
                _ => {}
            }
        }
    }
}

/// `grpc-message` is percent-encoded.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| std::str::from_utf8(tail.get(..2)?).ok()).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests;
