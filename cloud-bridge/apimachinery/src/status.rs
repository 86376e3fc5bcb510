//! `Status` objects, which all clients of Kubernetes understand.

use sampan_json::SetField;
use serde_json::{Value, json};

/// The `v1.Status` of a failure (k8s.io/apimachinery/pkg/apis/meta/v1/types.go). A client of Kubernetes decides by `reason`;
/// an empty one is left out.
#[must_use]
pub fn failure(code: u16, reason: &str, message: &str) -> Value {
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": code,
    });
    if !reason.is_empty() {
        status.set("reason", reason.into());
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_has_a_reason_if_there_is_one() {
        let mut expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no", "code": 500});
        assert_eq!(failure(500, "", "no"), expected);
        expected["reason"] = "InternalError".into();
        assert_eq!(failure(500, "InternalError", "no"), expected);
    }
}
