//! An answer of KubeEdge's servicebus, `{"code", "msg", "body"}`; its HTTP status is the same code. Pure.

use edge_protocol::message::{CallFailure, CallResult};
use serde_json::json;

/// When to try again, in seconds.
const RETRY_AFTER: u16 = 5;

/// `code`: status of the target, or of the failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    code: u16,
    why: String,
    body: String,
}

impl Answer {
    pub(super) fn new(code: u16, why: &str) -> Self {
        Self { code, why: why.to_owned(), body: String::new() }
    }

    #[cfg(test)]
    pub(super) const fn code(&self) -> u16 {
        self.code
    }

    /// Returns the HTTP status: one that permits a body, and is not a redirect.
    const fn status(&self) -> u16 {
        match self.code {
            200..300 => 200,
            code @ 400..600 => code,
            _ => 502,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let body = json!({"code": self.code, "msg": self.why, "body": self.body}).to_string();
        let status = self.status();
        let again = if self.code == 503 { format!("Retry-After: {RETRY_AFTER}\r\n") } else { String::new() };
        let head = format!(
            "HTTP/1.1 {status} \r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n{again}\r\n",
            body.len()
        );
        [head.into_bytes(), body.into_bytes()].concat()
    }
}

impl From<CallResult> for Answer {
    fn from(result: CallResult) -> Self {
        match result {
            CallResult::Http { status, body, .. } => {
                // The first in KubeEdge's words.
                let why = match status {
                    200..300 => "receive response from cloud successfully".to_owned(),
                    300..400 => format!("the target answers with status {status}, and redirects are not followed"),
                    status => format!("the target answers with status {status}"),
                };
                Self { code: status, why, body: String::from_utf8_lossy(&body).into_owned() }
            }
            CallResult::Published {} => Self::new(502, "the bridge answers something else"),
            CallResult::Failed { failure, why } => {
                let code = match failure {
                    CallFailure::Unavailable => 503,
                    CallFailure::Timeout => 504,
                    CallFailure::Refused => 400,
                    CallFailure::Forbidden => 403,
                    CallFailure::Unreachable | CallFailure::Broken | CallFailure::Unknown => 502,
                };
                Self::new(code, &why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_code_reflect_the_result() {
        let text = |answer: Answer| String::from_utf8(answer.bytes()).unwrap();
        let http =
            |status, body: &[u8]| Answer::from(CallResult::Http { status, headers: vec![], body: body.to_vec() });
        let good = text(http(201, b"{\"a\":\"\xff\"}"));
        assert!(good.starts_with("HTTP/1.1 200 \r\n") && good.contains("\"code\":201"), "{good}");
        assert!(good.ends_with("\"msg\":\"receive response from cloud successfully\"}"), "{good}");
        let body: serde_json::Value = serde_json::from_str(good.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["body"], "{\"a\":\"\u{fffd}\"}");
        assert_eq!([204, 302, 404, 500, 101].map(|status| http(status, b"").status()), [200, 502, 404, 500, 502]);
        let failed = |failure| Answer::from(CallResult::Failed { failure, why: "w".into() });
        let later = text(failed(CallFailure::Unavailable));
        assert!(later.starts_with("HTTP/1.1 503 ") && later.contains("Retry-After: 5\r\n"), "{later}");
        let codes = [CallFailure::Refused, CallFailure::Unreachable, CallFailure::Broken, CallFailure::Timeout];
        assert_eq!(codes.map(|failure| failed(failure).code), [400, 502, 502, 504]);
    }
}
