//! Running one lifecycle hook: a command in the container, an HTTP request, or a pause.
//!
//! As K8s pkg/kubelet/lifecycle/handlers.go: any HTTP answer is a success, and an HTTPS hook that meets a plain
//! server is made again in plain HTTP.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler};
use rustls::ClientConfig;

use super::http::{self, PLAIN_ANSWER};
use super::run::{Means, Subject, located, named_port, request};

const HOOK_AGENT: &str = "kube-lifecycle/1.36";

/// Longest a command without a limit of its own may take.
const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A hook to be run.
#[derive(Clone, Debug)]
pub struct HookCall {
    pub handler: LifecycleHandler,
    pub container: Container,
    /// Id of the attempt.
    pub id: String,
    /// The pod as messages name it.
    pub pod: String,
    /// Address the host reaches the pod at.
    pub address: IpAddr,
    pub limit: Option<Duration>,
}

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookDone {
    /// The text is for the container's waiting message and the log: it may contain what the command said.
    pub error: Option<String>,
    /// Message of a Warning event `LifecycleHTTPFallback`.
    pub fallback: Option<String>,
}

pub(super) async fn run(call: &HookCall, means: &Means) -> HookDone {
    let handler = &call.handler;
    if let Some(action) = &handler.exec {
        let argv = action.command.clone().unwrap_or_default();
        let error = command(call, &argv, means).await.err();
        let what = format!("Exec lifecycle hook ([{}])", argv.join(" "));
        return HookDone { error: error.map(|error| failed(call, &what, &error)), fallback: None };
    }
    if let Some(action) = &handler.http_get {
        let what = format!("HTTP lifecycle hook ({})", action.path.as_deref().unwrap_or_default());
        let error = |error: String| failed(call, &what, &format!("error: {error}"));
        return match get(call, action, &means.tls).await {
            Ok(fallback) => HookDone { error: None, fallback },
            Err(text) => HookDone { error: Some(error(text)), fallback: None },
        };
    }
    if let Some(action) = &handler.sleep {
        smol::Timer::after(Duration::from_secs(u64::try_from(action.seconds).unwrap_or_default())).await;
        return HookDone::default();
    }
    HookDone { error: Some("Cannot run handler: it names no action".to_owned()), fallback: None }
}

fn failed(call: &HookCall, what: &str, error: &str) -> String {
    format!("{what} for Container {:?} in Pod {:?} failed - {error}", call.container.name, call.pod)
}

async fn command(call: &HookCall, argv: &[String], means: &Means) -> Result<(), String> {
    let words = argv.join(" ");
    match (means.exec)(call.id.clone(), argv.to_vec(), call.limit.unwrap_or(NO_LIMIT)).await {
        Ok((0, _)) => Ok(()),
        Ok((code, output)) => {
            let output = String::from_utf8_lossy(&output);
            Err(format!("error: command '{words}' exited with {code}: {output}, message: {output:?}"))
        }
        Err(error) => Err(format!("error: {error}, message: \"\"")),
    }
}

/// The text of a warning, when plain HTTP had to do.
async fn get(call: &HookCall, action: &HTTPGetAction, tls: &Arc<ClientConfig>) -> Result<Option<String>, String> {
    let mut action = action.clone();
    named_port(&mut action.port, &call.container);
    let subject = Subject { id: &call.id, container: &call.container.name, address: call.address };
    let mut request = located(request(&action, &subject, HOOK_AGENT)?).await?;
    match http::fetch(request.clone(), tls).await {
        Ok(_) => Ok(None),
        Err(error) if error.ends_with(PLAIN_ANSWER) => {
            request.tls = false;
            request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            let host = request.authority();
            http::fetch(request, tls).await?;
            Ok(Some(format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded")))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
