//! Making one probe: picks the handler, finds the port, bounds the time.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::ClientConfig;

use super::worker::Outcome;
use super::{grpc, http, tcp};
use crate::pod::env::expand;
use crate::sys::resolve::resolve;
use crate::sys::time::within;

const PROBE_AGENT: &str = "kube-probe/1.36";

/// Tries per round when a probe cannot be made at all (the kubelet's number).
const TRIES: usize = 3;

/// What running a command in a container gives: exit code and output (cut to 10 KiB), or why it could not run.
pub type ExecResult = Result<(i32, Vec<u8>), String>;

/// Runs a command inside a container: id, argv, timeout.
pub type ExecProbe = Rc<dyn Fn(String, Vec<String>, Duration) -> Pin<Box<dyn Future<Output = ExecResult>>>>;

/// What probes and hooks are made with.
pub(super) struct Means {
    pub(super) exec: ExecProbe,
    pub(super) tls: Arc<ClientConfig>,
}

/// Target of a probe.
pub(super) struct Subject<'a> {
    pub(super) id: &'a str,
    pub(super) container: &'a str,
    pub(super) address: IpAddr,
}

/// The probe with its container's names filled in: port numbers for port names, and `$(VAR)` in a command. As the
/// kubelet does, a command sees only variables with a literal value.
pub(super) fn prepared(probe: &Probe, container: &Container) -> Probe {
    let mut probe = probe.clone();
    if let Some(action) = &mut probe.http_get {
        named_port(&mut action.port, container);
    }
    if let Some(action) = &mut probe.tcp_socket {
        named_port(&mut action.port, container);
    }
    if let Some(words) = probe.exec.as_mut().and_then(|action| action.command.as_mut()) {
        let env = container.env.iter().flatten();
        let vars: Vec<(String, String)> =
            env.map(|var| (var.name.clone(), var.value.clone().unwrap_or_default())).collect();
        for word in words {
            *word = expand(word, &vars);
        }
    }
    probe
}

/// Puts the number of a port of `container` in the place of its name.
pub(super) fn named_port(port: &mut IntOrString, container: &Container) {
    if let IntOrString::String(name) = port
        && let Some(named) = container.ports.iter().flatten().find(|p| p.name.as_ref() == Some(&*name))
    {
        *port = IntOrString::Int(named.container_port);
    }
}

/// Makes one probe. `timeout` bounds each try.
pub(super) async fn round(probe: &Probe, subject: &Subject<'_>, timeout: Duration, means: &Means) -> Outcome {
    let mut why = String::new();
    for _ in 0..TRIES {
        match once(probe, subject, timeout, means).await {
            Ok(outcome) => return outcome,
            Err(error) => why = error,
        }
    }
    Outcome::Error(why)
}

/// An error if it cannot be made.
async fn once(probe: &Probe, subject: &Subject<'_>, timeout: Duration, means: &Means) -> Result<Outcome, String> {
    if let Some(action) = &probe.exec {
        return command(action.command.as_deref().unwrap_or_default(), subject, timeout, means).await;
    }
    if let Some(action) = &probe.http_get {
        let request = request(action, subject, PROBE_AGENT)?;
        let late = request.error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
        let work = async {
            match located(request).await {
                Ok(request) => http::get(request, &means.tls).await,
                Err(error) => Outcome::Failure(error),
            }
        };
        return Ok(within(timeout, work).await.unwrap_or(Outcome::Failure(late)));
    }
    if let Some(action) = &probe.tcp_socket {
        let (host, address) = socket(action.host.as_deref(), &action.port, subject)?;
        let work = async { tcp::connect(lookup(&host, address).await?).await };
        let late = || Err(format!("dial tcp {}: i/o timeout", http::authority(&host, address.port())));
        let done = within(timeout, work).await.unwrap_or_else(late);
        return Ok(done.map_or_else(Outcome::Failure, |_| Outcome::Success));
    }
    if let Some(action) = &probe.grpc {
        let address = SocketAddr::new(subject.address, number(&IntOrString::Int(action.port), subject.container)?);
        let connected = Cell::new(false);
        let work = grpc::probe(address, action.service.as_deref().unwrap_or_default(), &connected);
        let late = || grpc::late(&address.to_string(), connected.get(), timeout.as_secs());
        return Ok(within(timeout, work).await.unwrap_or_else(late));
    }
    Err(format!("missing probe handler for {}", subject.container))
}

async fn command(argv: &[String], subject: &Subject<'_>, timeout: Duration, means: &Means) -> Result<Outcome, String> {
    let late = || format!("command timed out: {:?} timed out after {}s", argv.join(" "), timeout.as_secs());
    // The runner ends the command at its timeout by itself; the margin is for its clean-up.
    let run = (means.exec)(subject.id.to_owned(), argv.to_vec(), timeout);
    match within(timeout + Duration::from_secs(2), run).await {
        Some(Ok((0, _))) => Ok(Outcome::Success),
        Some(Ok((_, output))) => Ok(Outcome::Failure(String::from_utf8_lossy(&output).into_owned())),
        Some(Err(error)) if !error.contains("timed out") => Err(error),
        None | Some(Err(_)) => Ok(Outcome::Failure(late())),
    }
}

/// The request of a probe or a hook, before its host is looked up.
///
/// # Errors
/// The port has no number.
pub(super) fn request(
    action: &HTTPGetAction,
    subject: &Subject<'_>,
    agent: &'static str,
) -> Result<http::Request, String> {
    let (host, address) = socket(action.host.as_deref(), &action.port, subject)?;
    let headers = action.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
    Ok(http::Request {
        tls: action.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https")),
        host,
        address,
        target: http::target(action.path.as_deref().unwrap_or_default()),
        headers,
        agent,
    })
}

/// The request with the address of its host; looking that up is part of it, as in Go's client.
///
/// # Errors
/// The host has no address, as Go's client words it.
pub(super) async fn located(request: http::Request) -> Result<http::Request, String> {
    let address = lookup(&request.host, request.address).await.map_err(|error| request.error(&error))?;
    Ok(http::Request { address, ..request })
}

/// Host and port of a network probe, with the pod's own address: also its host unless the probe names another.
fn socket(host: Option<&str>, port: &IntOrString, subject: &Subject<'_>) -> Result<(String, SocketAddr), String> {
    let address = SocketAddr::new(subject.address, number(port, subject.container)?);
    let host = host.filter(|h| !h.is_empty());
    Ok((host.map_or_else(|| subject.address.to_string(), str::to_owned), address))
}

/// The address of `host`, with the port of `address`.
async fn lookup(host: &str, address: SocketAddr) -> Result<SocketAddr, String> {
    if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse() {
        return Ok(SocketAddr::new(ip, address.port()));
    }
    let found = resolve(host, address.port()).await.map_err(|error| format!("dial tcp: lookup {error}"))?;
    found.first().copied().ok_or_else(|| format!("dial tcp: lookup {host}: no such host"))
}

/// The port's number; a remaining name is one that the container does not have.
fn number(port: &IntOrString, container: &str) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            name.parse().map_err(|_| format!("couldn't find port: {name} for container {container}"))?
        }
    };
    u16::try_from(number).ok().filter(|n| *n > 0).ok_or_else(|| format!("invalid port number: {number}"))
}

#[cfg(test)]
mod tests;
