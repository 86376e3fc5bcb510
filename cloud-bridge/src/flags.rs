//! Flags that verbs share, and how their values are read.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::listen;
use crate::listen::metrics_port::PlainPorts;
use crate::pki::encoding;
use anyhow::{Context, bail};
use clap::Args;
use http::Request;
use http::header::{HeaderValue, USER_AGENT};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls_pki_types::CertificateDer;
use sampan_duration::Typed;
use tower::util::MapRequestLayer;

/// Bytes of a file of authorities: more than those of a system.
const MAX_AUTHORITIES: u64 = 1 << 20;

/// How nodes are let in.
#[derive(Debug, Clone, Args)]
pub struct NodeFlags {
    /// Lifetime of a node's certificate: 90s, 30m, 2h, 365d. Nodes renew it after seven to nine tenths of its lifetime;
    /// a node that is offline for longer needs a new token.
    #[arg(long, value_name = "DURATION", default_value = "365d", value_parser = life)]
    pub certificate_life: Duration,
    /// Let nodes whose Node object was deleted register again, instead of refusing them: for clusters in which a
    /// controller deletes the Nodes of machines that it cannot find.
    #[arg(long)]
    pub deleted_nodes_return: bool,
    /// Namespace in which nodes may create mirror pods of their static pods (repeatable). Absent: all, as in
    /// Kubernetes. Then a node chooses the namespace and labels of pods that Services and NetworkPolicies select.
    #[arg(long, value_name = "NAMESPACE")]
    pub mirror_namespace: Vec<String>,
    /// Set the state of devices to `unknown` while their node is offline. Absent: their statuses are marked as stale
    /// and otherwise stay as they are.
    #[arg(long)]
    pub devices_unknown_when_silent: bool,
    /// Serve /metrics, /livez, /readyz and /healthz over plain HTTP at this address, without authentication. Absent:
    /// the port of the nodes serves /metrics to clients with an operator's certificate.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Serve only /livez, /readyz and /healthz over plain HTTP at this address. Use it for liveness probes: at the port
    /// of the nodes, probes wait behind nodes that reconnect.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub health_listen: Option<SocketAddr>,
}

impl NodeFlags {
    /// Opens the configured ports without TLS.
    pub(crate) async fn plain_ports(&self) -> anyhow::Result<PlainPorts> {
        let open = async |address: Option<SocketAddr>, flag: &'static str| match address {
            Some(address) => listen::bind(address).await.context(flag).map(Some),
            None => Ok(None),
        };
        let metrics = open(self.metrics_listen, "--metrics-listen").await?;
        Ok(PlainPorts { metrics, health: open(self.health_listen, "--health-listen").await? })
    }
}

/// Certificates (PEM) of the file that a flag names.
///
/// # Errors
/// The file cannot be read, or holds no certificates.
pub(crate) fn authorities(flag: &str, path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let pem = sampan_file::read(path, MAX_AUTHORITIES).with_context(|| format!("{flag} {}", path.display()))?;
    Ok(encoding::certificates(&path.display().to_string(), &pem)?)
}

/// A client of the API named by a kubeconfig, or of the cluster that this runs in.
pub async fn client(kubeconfig: Option<PathBuf>) -> anyhow::Result<kube::Client> {
    client_of(config(kubeconfig).await?)
}

/// The configuration of such a client.
pub(crate) async fn config(kubeconfig: Option<PathBuf>) -> anyhow::Result<kube::Config> {
    match kubeconfig {
        Some(path) => {
            sampan_file::open(&path).with_context(|| format!("kubeconfig {}", path.display()))?;
            let file = Kubeconfig::read_from(&path).with_context(|| format!("kubeconfig {}", path.display()))?;
            Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
        }
        None => kube::Config::incluster().context("no --kubeconfig, and not in a pod of a cluster"),
    }
}

/// A client with this configuration.
pub(crate) fn client_of(config: kube::Config) -> anyhow::Result<kube::Client> {
    Ok(ClientBuilder::try_from(config)?.with_layer(&MapRequestLayer::new(named)).build())
}

/// Gives a request without `User-Agent` the bridge's: it names the writer in `managedFields`.
fn named(mut request: Request<Body>) -> Request<Body> {
    const AGENT: &str = concat!("cloud-bridge/", env!("CARGO_PKG_VERSION"));
    request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    request
}

/// Checks the address of a bridge as nodes take it: `https://HOST:PORT`.
pub(crate) fn bridge_url(text: &str) -> anyhow::Result<String> {
    let typed = text.strip_suffix('/').unwrap_or(text);
    let url = typed.parse::<http::Uri>().ok();
    let place = url.as_ref().and_then(http::Uri::authority).filter(|place| !place.host().is_empty());
    let place = place.filter(|place| place.port_u16().is_some_and(|port| port != 0) && !place.as_str().contains('@'));
    // A parsed URL has lost its fragment: what is typed is nothing but these parts.
    match place {
        Some(place) if format!("https://{place}") == typed => Ok(typed.to_owned()),
        _ => bail!("want https://HOST:PORT"),
    }
}

pub(crate) fn duration(text: &str) -> anyhow::Result<Duration> {
    Ok(text.parse::<Typed>()?.0)
}

/// How often something is looked at.
#[cfg(feature = "standalone")]
pub(crate) fn period(text: &str) -> anyhow::Result<Duration> {
    const LONGEST: Duration = Duration::from_secs(3600);
    let period = duration(text)?;
    if period.is_zero() || period > LONGEST { bail!("want between 1s and 1h") } else { Ok(period) }
}

/// Parses the lifetime of a node's certificate.
pub(crate) fn life(text: &str) -> anyhow::Result<Duration> {
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);
    let life = duration(text)?;
    if life < Duration::from_secs(5) || life > LONGEST { bail!("want between 5s and 3650d") } else { Ok(life) }
}

pub(crate) fn words(duration: Duration) -> String {
    match duration.as_secs() {
        s if s > 0 && s % 86_400 == 0 => format!("{} d", s / 86_400),
        s if s % 3600 == 0 => format!("{} h", s / 3600),
        s if s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

pub(crate) fn port_range(text: &str) -> anyhow::Result<(u16, u16)> {
    let (first, last) = text.split_once('-').context("want FIRST-LAST")?;
    let range = (first.parse::<u16>()?, last.parse::<u16>()?);
    if range.0 == 0 || range.0 > range.1 { bail!("want FIRST-LAST, first not above last") } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_once() {
        let bare = named(Request::new(Body::empty()));
        assert!(bare.headers()[USER_AGENT].to_str().unwrap().starts_with("cloud-bridge/"));
        let request = Request::builder().header(USER_AGENT, "kubelet").body(Body::empty()).unwrap();
        let named = named(request);
        assert_eq!(named.headers().get_all(USER_AGENT).iter().collect::<Vec<_>>(), ["kubelet"]);
    }

    #[test]
    fn bridge_addresses_have_scheme_and_port() {
        assert_eq!(bridge_url("https://b.example:7443/").unwrap(), "https://b.example:7443");
        assert_eq!(bridge_url("https://[fd00::1]:7443").unwrap(), "https://[fd00::1]:7443");
        for bad in ["b:7443", "http://b:7443", "https://b", "https://b:0", "https://b:7443/x", "https://b:7443 c", ""] {
            bridge_url(bad).unwrap_err();
        }
        for more in ["?x", "/?x", "#x", "/#x", "//"] {
            bridge_url(&format!("https://b:7443{more}")).unwrap_err();
        }
        assert!(bridge_url("https://u@b:7443").is_err() && bridge_url("https://:7443").is_err());
    }

    #[test]
    fn durations_and_ports() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("2h").unwrap(), Duration::from_secs(7200));
        assert_eq!(duration("1d").unwrap(), Duration::from_secs(86_400));
        assert!(duration("h").is_err() && duration("1w").is_err());
        assert!(life("365d").is_ok() && life("4s").is_err() && life("3651d").is_err());
        assert_eq!(words(Duration::from_secs(5400)), "90 min");
        assert_eq!(port_range("1-2").unwrap(), (1, 2));
        assert!(port_range("2-1").is_err() && port_range("x").is_err());
    }
}
