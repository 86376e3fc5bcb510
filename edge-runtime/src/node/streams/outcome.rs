//! How a command ended, as a `metav1.Status`: the text of the STATUS record. Pure.

use serde_json::{Value, json};

/// Most of a message; a status has to fit one record.
const MESSAGE_CAP: usize = 2 << 10;

/// The command has ended with this exit code. Reason and cause are what kubectl takes its own exit code from
/// (K8s k8s.io/cri-streaming/pkg/streaming/remotecommand/exec.go, client-go tools/remotecommand/v4.go).
pub(super) fn exited(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

/// The request could not be served (K8s apimachinery/pkg/api/errors `NewInternalError`).
pub(super) fn failed(message: &str) -> Value {
    let message = &message[..message.floor_char_boundary(MESSAGE_CAP)];
    json!({
        "metadata": {},
        "status": "Failure",
        "reason": "InternalError",
        "message": format!("Internal error occurred: {message}"),
        "details": {"causes": [{"message": message}]},
        "code": 500,
    })
}

/// The exit code that a shell would return for a command that the OCI runtime could not start, if the command is at
/// fault: 127 if it is missing, 126 if it is not executable. Matches messages of runc, crun and youki.
pub(super) fn shell_code(message: &str) -> Option<i32> {
    let message = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&["executable file not found", "no such file or directory", "not found in $path"]) {
        return Some(127);
    }
    says(&["permission denied", "is a directory", "exec format error", "not executable"]).then_some(126)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_where_kubectl_looks_for_them() {
        assert_eq!(exited(0)["status"], "Success");
        let seven = exited(7);
        assert_eq!((&seven["status"], &seven["reason"]), (&json!("Failure"), &json!("NonZeroExitCode")));
        assert_eq!(seven["details"]["causes"], json!([{"reason": "ExitCode", "message": "7"}]));
        let long = failed(&"é".repeat(5000)).to_string();
        assert!(long.len() < 2 * MESSAGE_CAP + 400, "{}", long.len());
    }

    #[test]
    fn a_command_that_cannot_run_gets_a_shells_code() {
        let missing =
            "exec failed: unable to start container process: exec: \"no\": executable file not found in $PATH";
        assert_eq!(shell_code(missing), Some(127));
        assert_eq!(shell_code("exec: \"/no\": stat /no: no such file or directory"), Some(127));
        assert_eq!(shell_code("exec: \"/etc\": permission denied"), Some(126));
        assert_eq!(shell_code("cannot exec in a stopped container"), None);
    }
}
