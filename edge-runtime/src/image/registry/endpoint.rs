//! Where a registry is asked: its mirrors, then itself.

use crate::image::ImageError;
use crate::image::registry_config::RegistryConfig;

/// Where to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://host:port`.
    pub base: String,
    /// What logins are looked up by.
    pub host: String,
    /// A mirror needs the name of the registry that it mirrors.
    pub namespace: Option<String>,
}

/// The mirrors in order, then the registry itself.
pub fn endpoints(config: &RegistryConfig, registry: &str) -> Vec<Endpoint> {
    let mirrors = config.mirrors.iter().map(|mirror| {
        let (base, host) = match mirror.split_once("://") {
            Some((_, host)) => (mirror.trim_end_matches('/').to_owned(), host),
            None => (format!("https://{mirror}"), mirror.as_str()),
        };
        let host = host.split('/').next().unwrap_or(host).to_owned();
        Endpoint { base, host, namespace: Some(registry.to_owned()) }
    });
    // Docker Hub's name is not the name of its registry.
    let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
    let scheme = if config.plain_http { "http" } else { "https" };
    let own = Endpoint { base: format!("{scheme}://{host}"), host: registry.to_owned(), namespace: None };
    mirrors.chain([own]).collect()
}

/// The same registry without TLS, if it is on this machine and did not answer the TLS handshake with TLS: a registry on
/// loopback needs no configuration, as with containerd.
pub fn without_tls(place: &Endpoint, error: &ImageError) -> Option<Endpoint> {
    let ImageError::Unavailable { source, .. } = error else { return None };
    let Some(ureq::Error::Io(io)) = source.downcast_ref::<ureq::Error>() else { return None };
    let tls = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let address = place.base.strip_prefix("https://")?;
    let plain = matches!(tls, Some(rustls::Error::InvalidMessage(_))) && is_loopback(address);
    plain.then(|| Endpoint { base: format!("http://{address}"), ..place.clone() })
}

/// Whether `host[:port]` is a loopback address.
fn is_loopback(address: &str) -> bool {
    let host = match address.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => address.split(':').next().unwrap_or(address),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_asked_before_the_registry() {
        let config = RegistryConfig {
            host: "docker.io".into(),
            mirrors: vec!["cache:5000".into(), "http://10.0.0.1/".into()],
            ..RegistryConfig::default()
        };
        let asked: Vec<_> =
            endpoints(&config, "docker.io").into_iter().map(|e| (e.base, e.host, e.namespace)).collect();
        let docker = Some("docker.io".to_owned());
        assert_eq!(
            asked,
            [
                ("https://cache:5000".into(), "cache:5000".into(), docker.clone()),
                ("http://10.0.0.1".into(), "10.0.0.1".into(), docker),
                ("https://registry-1.docker.io".into(), "docker.io".into(), None),
            ]
        );
        let plain = RegistryConfig { plain_http: true, ..RegistryConfig::default() };
        assert_eq!(endpoints(&plain, "r:5000")[0].base, "http://r:5000");
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for address in ["localhost:5000", "localhost", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["localhost.example:5000", "10.0.0.1:5000", "[fe80::1]:5000", "registry"] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
