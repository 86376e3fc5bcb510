//! How a command ended, as a `metav1.Status`: the text of the STATUS record. Pure.

use serde_json::{Value, json};

use crate::monitor::exec::ExecError;

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

/// The result of an exec: text for the client's standard error output, if any, and the status.
pub(super) fn of_exec(ended: &Result<i32, ExecError>) -> (Option<String>, Value) {
    let failed = |why: &str| (None, failed(&format!("error executing command in container: {why}")));
    match ended {
        Ok(code) => (None, exited(*code)),
        Err(ExecError::NotStarted(message)) => {
            let text = format!("OCI runtime exec failed: {message}");
            match shell_code(message) {
                // The exit codes of Docker, which scripts expect.
                Some(code) => (Some(format!("{text}: unknown\r\n")), exited(code)),
                None => failed(&text),
            }
        }
        Err(error) => failed(&error.to_string()),
    }
}

/// The exit code that a shell would return for a command that the OCI runtime could not start, if the command is at
/// fault: 127 if it is missing, 126 if it is not executable. Matches messages of runc, crun and youki.
fn shell_code(message: &str) -> Option<i32> {
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

    #[test]
    fn client_is_told_why_its_command_did_not_run() {
        let of = |message: &str| of_exec(&Err(ExecError::NotStarted(message.to_owned())));
        let (text, status) = of("exec: \"/no\": No such file or directory");
        assert_eq!(status, exited(127), "as in a shell");
        assert!(text.is_some_and(|text| text.starts_with("OCI runtime exec failed: exec: \"/no\"")));
        let (text, status) = of("cannot exec in a stopped container");
        assert_eq!((text, status["code"].as_i64()), (None, Some(500)));
        assert!(status["message"].as_str().is_some_and(|text| text.ends_with("cannot exec in a stopped container")));
        let (text, status) = of_exec(&Err(ExecError::TimedOut(std::time::Duration::from_secs(1))));
        assert_eq!((text, &status["reason"]), (None, &json!("InternalError")));
        assert_eq!(of_exec(&Ok(0)), (None, exited(0)));
        assert_eq!(of_exec(&Ok(137)), (None, exited(137)), "killed");
    }
}
