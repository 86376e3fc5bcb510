//! The HTTP client of the pull helper: TLS with the system's CAs, our own name lookup, the configured proxy, time-outs.
//! Blocking, for a helper process only; knows nothing of registries.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Connector, NextTimeout, RustlsConnector, TcpConnector};
use ureq::{Agent, config::Config, config::RedirectAuthHeaders};

use crate::image::ImageError;
use crate::image::proxy::{Through, target};
use crate::image::tls::{self, Tls};
use crate::net::proxy::Proxy;
use crate::sys::resolve::resolve_blocking;

/// Where distributions keep the CAs: Debian and Alpine, Fedora, openSUSE, others.
const CA_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A silent peer is given up after this, whatever it was asked.
const SILENCE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(15);
/// Same through a proxy, which connects and looks names up in this time.
const CONNECT_THROUGH: Duration = Duration::from_secs(40);
/// Timeout for all name servers together, whatever `/etc/resolv.conf` says.
const RESOLVE: Duration = Duration::from_secs(15);
/// A manifest, a configuration or a token is here by then; layers have a meter of their own.
pub const DOCUMENT: Duration = Duration::from_secs(120);

/// A client that follows redirects, taking the login along on the same host only, and returns error statuses as responses.
/// `only_tls`: no redirect leads out of TLS.
///
/// # Errors
/// `ca` cannot be read.
pub fn agent(ca: Option<&Path>, insecure: bool, only_tls: bool, proxy: &Proxy) -> Result<Agent, ImageError> {
    let (mut roots, mut own) = (Vec::new(), Vec::new());
    if !insecure {
        let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let system = named.or_else(|| CA_FILES.iter().map(PathBuf::from).find(|path| path.exists()));
        match system {
            Some(path) => read_roots(&path, &mut roots)?,
            None => log::warn!("no CA bundle in {}: no registry can be trusted by it", CA_FILES[0]),
        }
        if let Some(path) = ca {
            read_roots(path, &mut own)?;
            roots.extend(own.iter().cloned());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trusted = (!own.is_empty()).then(|| tls::client(Arc::clone(&provider), &roots, own)).transpose();
    let trusted = trusted.map_err(|error| {
        ImageError::io(ca.unwrap_or(Path::new("ca")), "cannot use CAs")(std::io::Error::other(error))
    })?;
    let roots = roots.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .disable_verification(insecure)
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(5)
        // A gateway before a registry redirects to another path of its own and wants the login there, too; storage on
        // another host has no business with it.
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .https_only(only_tls)
        .user_agent(concat!("edge-runtime/", env!("CARGO_PKG_VERSION")))
        // Else the environment would name one. Ours is chosen for each connection: a redirect leads to other hosts.
        .proxy(None)
        .timeout_connect(Some(if proxy.url.is_some() { CONNECT_THROUGH } else { CONNECT }))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .build();
    let proxy = Arc::new(proxy.clone());
    let connector = ().chain(TcpConnector::default()).chain(Through(Arc::clone(&proxy)));
    Ok(match trusted {
        None => Agent::with_parts(config, connector.chain(RustlsConnector::default()), Names(proxy)),
        Some(client) => Agent::with_parts(config, connector.chain(Tls(Arc::new(client))), Names(proxy)),
    })
}

fn read_roots(path: &Path, roots: &mut Vec<CertificateDer<'static>>) -> Result<(), ImageError> {
    let file = sampan_file::open(path).map_err(ImageError::io(path, "cannot read CAs"))?;
    for der in CertificateDer::pem_reader_iter(file) {
        let der =
            der.map_err(|error| ImageError::io(path, "cannot read CAs")(std::io::Error::other(error.to_string())))?;
        roots.push(der);
    }
    Ok(())
}

/// Name lookup without libc, which a static binary cannot use for it. A host behind the proxy has the proxy's addresses.
#[derive(Debug)]
struct Names(Arc<Proxy>);

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, config: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (host, port) = target(uri)?;
        let (host, port) =
            self.0.towards(host, port).map_or((host, port), |server| (server.host.as_str(), server.port));
        let found = resolve_blocking(host, port, RESOLVE).map_err(|error| ureq::Error::Other(Box::new(error)))?;
        let mut addresses = self.empty();
        // The resolver gives at most as many as there is room for.
        for address in config.ip_family().keep_wanted(found.into_iter()).take(16) {
            addresses.push(address);
        }
        if addresses.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(addresses) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// Answers requests one after the other, each on its own connection, and returns whether each had a login.
    fn server(answers: Vec<String>) -> (u16, std::thread::JoinHandle<Vec<bool>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = move |answer: String| {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let answer = answer.replace("PORT", &port.to_string());
            write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            head.iter().any(|line| line.to_lowercase().starts_with("authorization: basic"))
        };
        (port, std::thread::spawn(move || answers.into_iter().map(answer).collect()))
    }

    #[test]
    fn redirects_keep_the_login_on_the_same_host_only() {
        for (target, expected) in [("/b", true), ("http://127.0.0.1:PORT/b", true), ("http://localhost:PORT/b", false)]
        {
            let (port, asked) = server(vec![format!("307 Moved\r\nlocation: {target}"), "200 OK".to_owned()]);
            let agent = agent(None, false, false, &Proxy::default()).unwrap();
            let request = agent.get(format!("http://127.0.0.1:{port}/a")).header("authorization", "Basic dTpw");
            assert_eq!(request.call().unwrap().status(), 200);
            assert_eq!(asked.join().unwrap(), [true, expected], "{target}");
        }
    }
}
