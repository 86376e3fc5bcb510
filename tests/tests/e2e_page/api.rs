//! The API over plain HTTP, by `kubectl proxy`: thousands of requests without a process for each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use sampan_tests::ports::free_address;
use sampan_tests::{Kubectl, until};
use serde_json::Value;

/// Ended when dropped.
pub(crate) struct Api {
    proxy: Child,
    stream: BufReader<TcpStream>,
}

impl Api {
    pub(crate) fn start(kubectl: &Kubectl) -> Self {
        let address: SocketAddr = free_address();
        let mut command = kubectl.command(&["proxy", "--port", &address.port().to_string()]);
        let proxy = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("kubectl starts");
        let stream = until(Duration::from_secs(20), "the proxy listens", || {
            TcpStream::connect(address).map_err(|error| error.to_string())
        });
        Self { proxy, stream: BufReader::new(stream) }
    }

    /// Code and answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        self.stream.get_mut().write_all(request.as_bytes()).expect("the proxy reads");
        let (mut code, mut length, mut chunked, mut line) = (0, 0, false, String::new());
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("an answer");
            let text = line.trim().to_ascii_lowercase();
            if text.is_empty() {
                break;
            } else if text.starts_with("http/1.1 ") {
                code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
            } else if let Some(value) = text.strip_prefix("content-length: ") {
                length = value.parse().expect("a length");
            } else if text == "transfer-encoding: chunked" {
                chunked = true;
            }
        }
        let mut answer = Vec::new();
        loop {
            if chunked {
                line.clear();
                self.stream.read_line(&mut line).expect("a chunk");
                length = usize::from_str_radix(line.trim(), 16).expect("its length");
            }
            let mut part = vec![0; length + if chunked { 2 } else { 0 }];
            self.stream.read_exact(&mut part).expect("a body");
            answer.extend_from_slice(&part[..length]);
            if !chunked || length == 0 {
                return (code, serde_json::from_slice(&answer).unwrap_or_default());
            }
        }
    }

    pub(crate) fn create(&mut self, path: &str, object: &Value) -> Value {
        let (code, answer) = self.ask("POST", path, "application/json", object);
        assert!((200..300).contains(&code), "POST {path}: {code} {answer}");
        answer
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}
