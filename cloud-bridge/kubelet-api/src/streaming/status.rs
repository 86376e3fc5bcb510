//! How a session ended, for its client: a Status from version 4 of `channel.k8s.io` on, bare text before. Pure.

use serde_json::{Value, json};

/// What is written on the error channel; nothing for a success that older clients read from silence.
pub(super) fn text(version: u8, status: &[u8]) -> Vec<u8> {
    if version >= 4 {
        return status.to_vec();
    }
    match serde_json::from_slice::<Value>(status) {
        Ok(status) if status["status"] == "Success" => Vec::new(),
        Ok(status) => status["message"].as_str().unwrap_or("unknown error").as_bytes().to_vec(),
        Err(_) => status.to_vec(),
    }
}

/// The Status of a session that broke (K8s apimachinery api/errors NewInternalError).
pub(super) fn broken(why: &str) -> Vec<u8> {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {why}"),
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    })
    .to_string()
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_read_text() {
        let failed = br#"{"metadata":{},"status":"Failure","message":"command terminated","reason":"NonZeroExitCode"}"#;
        assert_eq!(text(4, failed), failed);
        assert_eq!(text(3, failed), b"command terminated");
        assert_eq!(text(1, br#"{"status":"Success"}"#), b"");
        assert_eq!(text(2, &broken("x")), b"Internal error occurred: x");
    }
}
