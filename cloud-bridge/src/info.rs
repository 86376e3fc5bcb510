//! What a bridge tells about itself through the API, for `token create` and for other replicas: a ConfigMap.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, bail};
use http::Uri;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::pki::{NAMESPACE, keep};

const NAME: &str = "bridge-info";

/// Why it could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum InfoError {
    #[error("configmap {NAMESPACE}/{NAME}: {0}")]
    Api(Box<kube::Error>),
    #[error("configmap {NAMESPACE}/{NAME} has no {0}")]
    Field(&'static str),
    #[error("namespace kube-system: {0}")]
    Cluster(Box<kube::Error>),
    #[error("namespace kube-system has no uid")]
    NoUid,
}

/// The contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// `https://host:port` of the link.
    pub url: String,
    /// SHA-256 of the authority's certificate.
    pub authority: String,
    /// `https://host:port` of the page, if there is one.
    pub page: Option<String>,
    /// `https://host:port` of the embedded API, as other machines reach it. None beside a cluster.
    pub api: Option<String>,
}

/// What the last bridge that started wrote.
pub async fn read(client: &Client) -> Result<Info, InfoError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let mut data = maps.get(NAME).await.map_err(|e| InfoError::Api(Box::new(e)))?.data.unwrap_or_default();
    let mut field = |name: &'static str| data.remove(name).ok_or(InfoError::Field(name));
    Ok(Info { url: field("url")?, authority: field("authority")?, page: field("page").ok(), api: field("api").ok() })
}

/// Reads the information for commands, which cannot go on without it.
pub(crate) async fn known(client: &Client) -> anyhow::Result<Info> {
    match read(client).await {
        Err(InfoError::Api(error)) if matches!(*error, kube::Error::Api(ref status) if status.is_not_found()) => {
            bail!("no bridge has run with this API yet: it has no configmap {NAMESPACE}/{NAME}")
        }
        read => read.context("asking the API about its bridge"),
    }
}

/// Writes it, creating namespace and object.
pub async fn write(client: &Client, info: &Info) -> Result<(), InfoError> {
    let failed = |e| InfoError::Api(Box::new(e));
    keep::ensure_namespace(client).await.map_err(failed)?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let mut data = json!({"url": info.url, "authority": info.authority, "page": info.page, "api": info.api});
    let patch = Patch::Merge(json!({"data": data}));
    match maps.patch(NAME, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            // Null removes a field in a patch; a new object leaves it out.
            if let Some(fields) = data.as_object_mut() {
                fields.retain(|_, value| !value.is_null());
            }
            let map = json!({"metadata": {"name": NAME}, "data": data});
            let map = serde_json::from_value(map).map_err(kube::Error::SerdeError).map_err(failed)?;
            match maps.create(&kube::api::PostParams::default(), &map).await {
                // Another replica was faster; it publishes the same authority, and either URL is right.
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                other => other.map(drop).map_err(failed),
            }
        }
        other => other.map(drop).map_err(failed),
    }
}

/// What tells this cluster from every other: the uid of its `kube-system` namespace, as is the custom.
pub async fn cluster(client: &Client) -> Result<String, InfoError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.get("kube-system").await.map_err(|e| InfoError::Cluster(Box::new(e)))?;
    namespace.metadata.uid.ok_or(InfoError::NoUid)
}

/// Name or address by which others reach a listener: the first advertised name, else its own address; a wildcard one
/// stands for the address from which this machine would reach others.
pub fn host(listen: SocketAddr, advertise: &[String]) -> String {
    match advertise.first() {
        Some(name) if !listen.ip().is_loopback() => name.clone(),
        _ if listen.ip().is_unspecified() => own_address().unwrap_or(listen.ip()).to_string(),
        _ => listen.ip().to_string(),
    }
}

/// URL of a listener.
pub fn url(listen: SocketAddr, advertise: &[String]) -> String {
    let host = advertise.first().cloned().unwrap_or_else(|| host(listen, advertise));
    https(&host, listen.port())
}

/// `https://HOST:PORT`, an IPv6 address in brackets.
pub fn https(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("https://[{ip}]:{port}"),
        _ => format!("https://{host}:{port}"),
    }
}

/// Whether only this machine reaches such a URL.
pub fn is_loopback(url: &str) -> bool {
    let url: Option<Uri> = url.parse().ok();
    let host = url.as_ref().and_then(Uri::host).unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// All names of this machine that a server certificate should hold.
pub fn addresses(listen: &[SocketAddr], advertise: &[String]) -> Vec<String> {
    let mut names = advertise.to_vec();
    names.extend(listen.iter().map(|a| a.ip()).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()));
    names.extend(own_address().map(|ip| ip.to_string()));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    names.extend(Some(host.trim().to_owned()).filter(|host| crate::pki::identity::is_node_name(host)));
    names
}

/// `IP:PORT` at which other machines reach a port: at this address, else at its own, unless that is loopback. A wildcard address
/// stands for the one from which this machine would reach others.
pub(crate) fn place(bound: SocketAddr, address: Option<IpAddr>) -> Option<String> {
    let is_reached = |ip: &IpAddr| !ip.is_loopback() && !ip.is_unspecified();
    let address = address.or_else(|| host(bound, &[]).parse().ok().filter(is_reached));
    address.map(|ip| SocketAddr::new(ip, bound.port()).to_string())
}

/// Names and address by which pods reach the API: those of its Service (K8s `kubeadm` puts the same into its certificates).
pub fn service_names(address: IpAddr) -> Vec<String> {
    const SERVICE: &str = "kubernetes.default.svc.cluster.local";
    let ends = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", SERVICE];
    ends.into_iter().map(str::to_owned).chain([address.to_string()]).collect()
}

/// Connecting a datagram socket picks a route and a source address, and sends nothing. The address is one
/// of those reserved for documentation.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_is_called_as_its_service() {
        let authority = crate::pki::authority::Authority::create("x").unwrap();
        let names = service_names("10.96.0.1".parse().unwrap());
        let server = authority.server(&names).unwrap();
        let (_, leaf) = x509_parser::parse_x509_certificate(&server.certificate).unwrap();
        let held = format!("{:?}", leaf.subject_alternative_name().unwrap().unwrap().value);
        for name in
            ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        {
            assert!(held.contains(&format!("DNSName({name:?})")), "{held}");
        }
        assert!(held.contains("IPAddress([10, 96, 0, 1])"), "{held}");
    }

    #[test]
    fn urls() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(url(at("127.0.0.1:7443"), &[]), "https://127.0.0.1:7443");
        assert_eq!(url(at("0.0.0.0:7443"), &["bridge.example".into(), "x".into()]), "https://bridge.example:7443");
        assert_eq!(url(at("[::1]:7443"), &[]), "https://[::1]:7443");
        let here = Some([127, 0, 0, 1].into());
        assert_eq!(place(at("127.0.0.1:9446"), here).as_deref(), Some("127.0.0.1:9446"), "as it is told");
        assert_eq!(place(at("127.0.0.1:9446"), None), None);
        assert_eq!(place(at("[2001:db8::1]:9446"), None).as_deref(), Some("[2001:db8::1]:9446"));
        assert!(is_loopback("https://127.0.0.1:6443") && is_loopback("https://[::1]:6443"));
        assert!(is_loopback("https://localhost:6443") && !is_loopback("https://10.0.0.1:6443"));
    }
}
