//! kubectl as a user runs it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::wait::until;

/// kubectl with a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    pub program: PathBuf,
    pub kubeconfig: PathBuf,
    pub namespace: String,
}

impl Kubectl {
    /// The kubectl of `SAMPAN_KUBECTL_NEW`, or the one on the path.
    #[must_use]
    pub fn new(kubeconfig: &Path, namespace: &str) -> Self {
        let program = std::env::var_os("SAMPAN_KUBECTL_NEW").map_or_else(|| "kubectl".into(), PathBuf::from);
        Self { program, kubeconfig: kubeconfig.into(), namespace: namespace.into() }
    }

    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--namespace").arg(&self.namespace).args(args);
        // kubectl keeps caches below HOME; a stale one of another cluster must not be used.
        command.env("HOME", self.kubeconfig.parent().unwrap_or(Path::new("/tmp")));
        command
    }

    /// Runs kubectl; returns standard output, or standard error as the error.
    ///
    /// # Errors
    /// Its exit code is not 0.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn run(&self, args: &[&str]) -> Result<String, String> {
        finish(self.command(args).stdin(Stdio::null()).output().expect("kubectl starts"))
    }

    /// Same as [`Kubectl::run`], but the test fails if it fails.
    ///
    /// # Panics
    /// It fails.
    #[must_use]
    pub fn ok(&self, args: &[&str]) -> String {
        self.run(args).unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
    }

    /// `kubectl apply -f -`.
    ///
    /// # Errors
    /// Same as [`Kubectl::run`].
    ///
    /// # Panics
    /// It cannot be started.
    pub fn try_apply(&self, manifest: &str) -> Result<String, String> {
        let mut command = self.command(&["apply", "-f", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        child.stdin.take().expect("a pipe").write_all(manifest.as_bytes()).expect("kubectl reads");
        finish(child.wait_with_output().expect("kubectl ends"))
    }

    /// # Panics
    /// The manifest is not accepted.
    pub fn apply(&self, manifest: &str) {
        self.try_apply(manifest).unwrap_or_else(|error| panic!("apply: {error}\n{manifest}"));
    }

    /// `kubectl apply` of all `objects` in one call.
    ///
    /// # Panics
    /// One is not accepted.
    pub fn apply_all(&self, objects: &[Value]) {
        self.apply(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string());
    }

    /// Waits until the pod's log (`kubectl logs`) contains `text`; returns the log.
    ///
    /// # Panics
    /// It does not within 20 s.
    pub fn wait_log(&self, pod: &str, text: &str) -> String {
        until(Duration::from_secs(20), &format!("{pod} logs {text:?}"), || {
            let log = self.run(&["logs", pod])?;
            if log.contains(text) { Ok(log) } else { Err(log) }
        })
    }

    /// Same as [`Kubectl::wait_log`], for one of the pod's containers.
    ///
    /// # Panics
    /// It does not within 20 s.
    pub fn wait_log_of(&self, pod: &str, container: &str, text: &str) -> String {
        until(Duration::from_secs(20), &format!("{pod}/{container} logs {text:?}"), || {
            let log = self.run(&["logs", pod, "-c", container])?;
            if log.contains(text) { Ok(log) } else { Err(log) }
        })
    }

    /// Returns an object as JSON.
    ///
    /// # Errors
    /// Same as [`Kubectl::run`].
    pub fn get(&self, kind: &str, name: &str) -> Result<Value, String> {
        let text = self.run(&["get", kind, name, "-o", "json"])?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// Waits until `accept` returns true for the pod; returns the pod.
    ///
    /// # Panics
    /// It does not within `seconds`; the pod's status is in the message.
    pub fn wait_pod(&self, name: &str, seconds: u64, what: &str, accept: impl Fn(&Value) -> bool) -> Value {
        until(Duration::from_secs(seconds), &format!("pod {name}: {what}"), || {
            let pod = self.get("pod", name)?;
            if accept(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
        })
    }

    /// Waits until the pod is Ready.
    pub fn wait_ready(&self, name: &str) -> Value {
        self.wait_pod(name, 30, "Ready", is_ready)
    }

    /// Waits until the pod has this phase.
    pub fn wait_phase(&self, name: &str, phase: &str) -> Value {
        self.wait_pod(name, 60, phase, |pod| pod["status"]["phase"] == phase)
    }

    /// Waits for an event with this reason about this object, in any namespace; returns its message.
    ///
    /// # Panics
    /// The event does not appear within 40 s.
    #[allow(clippy::must_use_candidate)]
    pub fn wait_event(&self, object: &str, reason: &str) -> String {
        until(Duration::from_secs(40), &format!("event {reason} about {object}"), || {
            let selector = format!("involvedObject.name={object},reason={reason}");
            let text = self.run(&["get", "events", "-A", "--field-selector", &selector, "-o", "json"])?;
            let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let message = list["items"][0]["message"].as_str().map(str::to_owned);
            message.ok_or_else(|| self.run(&["get", "events", "-A"]).unwrap_or_default())
        })
    }

    /// Waits until the object is deleted.
    ///
    /// # Panics
    /// It still exists after `seconds`.
    pub fn wait_gone(&self, kind: &str, name: &str, seconds: u64) {
        until(Duration::from_secs(seconds), &format!("{kind} {name} is gone"), || match self.get(kind, name) {
            Err(error) if error.contains("NotFound") => Ok(()),
            Err(error) => Err(error),
            Ok(object) => Err(object.to_string()),
        });
    }
}

/// Whether the pod's Ready condition is True.
#[must_use]
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn finish(output: Output) -> Result<String, String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
