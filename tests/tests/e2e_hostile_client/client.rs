//! A small HTTP/1.1 client over TLS for requests that no library sends: any method, any body, cut off anywhere.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sampan_tests::Kubectl;
use serde_json::Value;

/// Maximum bytes read of an answer's body; for a longer one the connection is closed.
const BODY_MAX: usize = 2 << 20;
/// Timeout of an answer: after that, the server counts as frozen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Wait for an answer to a malformed request, which may get none.
const GLANCE: Duration = Duration::from_millis(50);

/// The stream of a connection.
pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A server, and the identity of the client.
#[derive(Clone)]
pub(crate) struct Endpoint {
    address: String,
    server: ServerName<'static>,
    config: Arc<ClientConfig>,
    token: Option<String>,
}

/// PEM of a client's certificate and key.
pub(crate) type Certificate = (Vec<u8>, Vec<u8>);

pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

/// The parts of a kubeconfig that matter here.
pub(crate) struct Access {
    address: String,
    host: String,
    authority: Vec<u8>,
    certificate: Option<Certificate>,
    token: Option<String>,
}

impl Access {
    /// The endpoint of kubectl's kubeconfig.
    pub(crate) fn of(kubectl: &Kubectl) -> Self {
        let text = kubectl.ok(&["config", "view", "--raw", "--minify", "--flatten", "-o", "json"]);
        let config: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
        let data = |value: &Value| value.as_str().map(|text| STANDARD.decode(text).expect("base64"));
        let cluster = &config["clusters"][0]["cluster"];
        let url = cluster["server"].as_str().expect("a server").trim_end_matches('/');
        let address = url.strip_prefix("https://").expect("TLS").to_owned();
        let user = &config["users"][0]["user"];
        let certificate = data(&user["client-certificate-data"]).zip(data(&user["client-key-data"]));
        let host =
            address.rsplit_once(':').map_or(address.clone(), |(host, _)| host.trim_matches(['[', ']']).to_owned());
        Self {
            host,
            authority: data(&cluster["certificate-authority-data"]).expect("an authority"),
            certificate,
            token: user["token"].as_str().map(str::to_owned),
            address,
        }
    }

    /// The endpoint with the user of the kubeconfig.
    pub(crate) fn admin(&self) -> Endpoint {
        self.with(self.certificate.as_ref(), self.token.clone())
    }

    pub(crate) fn with(&self, certificate: Option<&Certificate>, token: Option<String>) -> Endpoint {
        let mut roots = RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(&self.authority) {
            roots.add(der.expect("PEM")).expect("an authority");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain).map(|der| der.expect("PEM")).collect();
                let key = PrivateKeyDer::from_pem_slice(key).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("a certificate")
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let server = ServerName::try_from(self.host.clone()).expect("a name");
        Endpoint { address: self.address.clone(), server, config: Arc::new(config), token }
    }
}

/// An open connection that does nothing.
#[expect(dead_code, reason = "it is there to be open")]
pub(crate) enum Held {
    Silent(TcpStream),
    Started(Box<Stream>),
}

/// One connection, which is opened again after it has ended.
pub(crate) struct Client {
    endpoint: Endpoint,
    stream: Option<Stream>,
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, stream: None }
    }

    /// Sends a request and reads the answer. `Ok(None)`: the server closed without an answer, as it may while a refused
    /// body is still being sent.
    pub(crate) fn send(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> io::Result<Option<Answer>> {
        let kept = self.stream.is_some();
        let mut answer = self.attempt(method, path, kind, body);
        // A kept connection may have ended meanwhile; only a new one shows the server's answer to the request.
        if kept && closed(&answer) {
            answer = self.attempt(method, path, kind, body);
        }
        if closed(&answer) { Ok(None) } else { answer }
    }

    /// Sends bytes that are not a request, or only a part of one; returns the code of an immediate answer.
    pub(crate) fn garble(&self, bytes: &[u8]) -> io::Result<Option<u16>> {
        let mut stream = self.connect()?;
        stream.sock.set_read_timeout(Some(GLANCE))?;
        // A request may be refused before it was sent completely.
        let _sent = stream.write_all(bytes);
        Ok(read_answer(&mut stream, "HEAD").ok().flatten().map(|(answer, _)| answer.code))
    }

    /// Opens connections that send only these bytes, nothing or half a request, and stay open.
    pub(crate) fn hold(&self, count: usize, bytes: &[u8]) -> io::Result<Vec<Held>> {
        let held = |_| {
            if bytes.is_empty() {
                return Ok(Held::Silent(TcpStream::connect(&self.endpoint.address)?));
            }
            let mut stream = self.connect()?;
            stream.write_all(bytes)?;
            stream.flush()?;
            Ok(Held::Started(Box::new(stream)))
        };
        (0..count).map(held).collect()
    }

    fn attempt(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> io::Result<Option<Answer>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
        if !kind.is_empty() {
            head += &format!("content-type: {kind}\r\n");
        }
        if let Some(token) = &self.endpoint.token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        // A request that is refused early is not read to its end; the answer still arrives.
        let sent = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
        let answer = read_answer(&mut stream, method);
        match (sent, answer) {
            (sent, Ok(Some((answer, keep)))) => {
                if keep && sent.is_ok() {
                    self.stream = Some(stream);
                }
                Ok(Some(answer))
            }
            (Err(error), Ok(None)) => Err(error),
            (_, Ok(None)) => Ok(None),
            (_, Err(error)) => Err(error),
        }
    }

    fn connect(&self) -> io::Result<Stream> {
        self.endpoint.connect()
    }
}

impl Endpoint {
    /// A new connection.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        let tcp = TcpStream::connect(&self.address)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        tcp.set_nodelay(true)?;
        let connection = ClientConnection::new(Arc::clone(&self.config), self.server.clone());
        Ok(StreamOwned::new(connection.map_err(io::Error::other)?, tcp))
    }

    /// Returns the same endpoint over HTTP/2.
    pub(crate) fn http2(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { config: Arc::new(config), ..self.clone() }
    }

    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().unwrap_or_default()
    }
}

fn closed(answer: &io::Result<Option<Answer>>) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match answer {
        Ok(answer) => answer.is_none(),
        Err(error) => matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof),
    }
}

/// Reads the answer; the second value says whether the connection can be used again. `None` without an answer.
fn read_answer(stream: &mut impl Read, method: &str) -> io::Result<Option<(Answer, bool)>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        let mut chunk = [0; 8192];
        match stream.read(&mut chunk)? {
            0 => return Ok(None),
            n => bytes.extend_from_slice(&chunk[..n]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let code = head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let field = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().to_owned()))
    };
    let mut body = bytes.split_off(end);
    let length = field("content-length").and_then(|length| length.parse::<usize>().ok());
    let (wanted, keep) = match length {
        // The length is that of a GET's body.
        _ if method == "HEAD" || code == 304 || code == 204 => (0, true),
        Some(length) if length <= BODY_MAX => (length, true),
        // A stream: a watch may send nothing for hours, so only the code is read.
        _ => (0, false),
    };
    let keep = keep && field("connection").as_deref() != Some("close");
    while body.len() < wanted {
        let mut chunk = [0; 8192];
        match stream.read(&mut chunk)? {
            0 => break,
            n => body.extend_from_slice(&chunk[..n]),
        }
    }
    let keep = keep && body.len() >= wanted;
    Ok(Some((Answer { code, body }, keep)))
}
