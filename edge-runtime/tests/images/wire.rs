//! Faulty peers: a small registry whose answers a test decides, and a proxy that cuts connections.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ring::digest::{SHA256, digest};

/// One request as the test sees it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
}

/// Status, extra header lines, body. A body may be longer or shorter than `announce`.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) announce: Option<usize>,
}

impl Answer {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into(), announce: None }
    }

    pub(crate) fn status(status: u16, header: &str) -> Self {
        let headers = if header.is_empty() { Vec::new() } else { vec![header.to_owned()] };
        Self { status, headers, body: Vec::new(), announce: None }
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers every request by `answer`, one request per connection. Lives as long as the test process.
    pub(crate) fn start(answer: impl Fn(&Request) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(request) = read_request(&stream) else { continue };
                log.lock().unwrap().push(request.clone());
                let _ = write_answer(stream, &request, &answer(&request));
            }
        });
        Self { address, seen }
    }

    pub(crate) fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    Some(Request { method, path, headers })
}

fn write_answer(mut stream: TcpStream, request: &Request, answer: &Answer) -> std::io::Result<()> {
    let length = answer.announce.unwrap_or(answer.body.len());
    write!(stream, "HTTP/1.1 {} X\r\ncontent-length: {length}\r\nconnection: close\r\n", answer.status)?;
    for header in &answer.headers {
        write!(stream, "{header}\r\n")?;
    }
    write!(stream, "\r\n")?;
    if request.method != "HEAD" {
        stream.write_all(&answer.body)?;
    }
    stream.shutdown(Shutdown::Write)
}

/// Passes connections to `target` and cuts each after `bytes` of answer.
pub(crate) fn cutting_proxy(target: String, bytes: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(&target) else { continue };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut (&server).take(bytes), &mut &client);
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// An image in memory, served under `/v2/app/`.
#[derive(Clone)]
pub(crate) struct Served {
    /// Content by path below `/v2/app/`.
    pub(crate) content: BTreeMap<String, Vec<u8>>,
    pub(crate) layers: Vec<String>,
    pub(crate) manifest: String,
}

impl Served {
    /// One image of these (uncompressed) layers with tag `v1`.
    pub(crate) fn new(layers: &[Vec<u8>]) -> Self {
        let mut content = BTreeMap::new();
        let ids: Vec<String> = layers.iter().map(|layer| sha256(layer)).collect();
        let list = |items: Vec<String>| items.join(",");
        let diff_ids = list(ids.iter().map(|id| format!("\"{id}\"")).collect());
        let arch = match std::env::consts::ARCH {
            "aarch64" => "arm64",
            _ => "amd64",
        };
        let config = format!(r#"{{"architecture":"{arch}","os":"linux","rootfs":{{"diff_ids":[{diff_ids}]}}}}"#);
        let descriptors =
            list(layers.iter().zip(&ids).map(|(l, id)| format!(r#"{{"digest":"{id}","size":{}}}"#, l.len())).collect());
        let manifest = format!(
            r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":{}}},"layers":[{descriptors}]}}"#,
            sha256(config.as_bytes()),
            config.len()
        );
        for (id, layer) in ids.iter().zip(layers) {
            content.insert(format!("blobs/{id}"), layer.clone());
        }
        content.insert(format!("blobs/{}", sha256(config.as_bytes())), config.into_bytes());
        let digest = sha256(manifest.as_bytes());
        content.insert(format!("manifests/{digest}"), manifest.clone().into_bytes());
        content.insert("manifests/v1".into(), manifest.into_bytes());
        Self { content, layers: ids, manifest: digest }
    }

    /// Answers like an honest registry without ranges.
    pub(crate) fn answer(&self, request: &Request) -> Answer {
        self.answer_as("app", request)
    }

    /// Same for a repository of another name.
    pub(crate) fn answer_as(&self, repository: &str, request: &Request) -> Answer {
        let path = request.path.strip_prefix(&format!("/v2/{repository}/")).unwrap_or_default();
        match self.content.get(path.split('?').next().unwrap_or_default()) {
            Some(body) => Answer::ok(body.clone()),
            None => Answer::status(404, ""),
        }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes).as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

/// A tar with one file.
pub(crate) fn layer(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, content).unwrap();
    builder.into_inner().unwrap()
}
