//! Connections of the pull helper through the HTTP proxy. Each is decided by its own host, so that redirects, mirrors and
//! token servers obey the exceptions, too.

use std::io::{self, Read, Write};
use std::sync::Arc;

use ureq::Error;
use ureq::http::Uri;
use ureq::unversioned::transport::{ConnectionDetails, Connector, Transport, TransportAdapter};

use crate::net::proxy::Proxy;
use crate::net::tunnel::Tunnel;

/// Opens a tunnel over a connection that leads to the proxy.
#[derive(Debug)]
pub(super) struct Through(pub(super) Arc<Proxy>);

impl<In: Transport> Connector<In> for Through {
    type Out = In;

    fn connect(&self, details: &ConnectionDetails<'_>, below: Option<In>) -> Result<Option<Self::Out>, Error> {
        let (host, port) = target(details.uri)?;
        let Some(server) = self.0.towards(host, port) else { return Ok(below) };
        let Some(transport) = below else { return Ok(None) };
        let mut socket = TransportAdapter::new(transport, Arc::clone(&details.current_time));
        socket.set_timeout(details.timeout);
        let opened = Tunnel::new(&self.0, host, port).and_then(|tunnel| open(tunnel, &mut socket));
        opened.map_err(|error| io::Error::new(error.kind(), format!("proxy {}: {error}", server.authority())))?;
        Ok(Some(socket.into_inner()))
    }
}

fn open(mut tunnel: Tunnel, socket: &mut (impl Read + Write)) -> io::Result<()> {
    socket.write_all(tunnel.request().as_bytes())?;
    let mut buffer = [0; 512];
    loop {
        let length = socket.read(&mut buffer)?;
        if tunnel.hear(buffer.get(..length).unwrap_or_default())? {
            return Ok(());
        }
    }
}

/// Host, without brackets, and port that a request is for.
pub(super) fn target(uri: &Uri) -> Result<(&str, u16), Error> {
    let host = uri.host().ok_or(Error::HostNotFound)?.trim_matches(['[', ']']);
    let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    Ok((host, uri.port_u16().unwrap_or(default)))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;
    use crate::image::http::agent;

    /// Gives these answers on one connection, and returns the first lines of the requests, and with which of them a login
    /// at a proxy came.
    fn server(answers: Vec<String>) -> (u16, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let mut answer = |answer: String| {
                let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
                stream.write_all(answer.as_bytes()).unwrap();
                let has_login = head.iter().any(|line| line.to_lowercase().starts_with("proxy-authorization:"));
                head.into_iter().next().unwrap_or_default() + if has_login { ", with a login" } else { "" }
            };
            answers.into_iter().map(&mut answer).collect()
        };
        (port, std::thread::spawn(serve))
    }

    fn through(port: u16) -> Proxy {
        Proxy { url: Some(format!("http://127.0.0.1:{port}").parse().unwrap()), ..Proxy::default() }
    }

    #[test]
    fn p1_1_each_host_of_a_pull_is_decided_alone() {
        let close = "content-length: 0\r\nconnection: close\r\n\r\n";
        let (near, direct) = server(vec![format!("HTTP/1.1 200 OK\r\n{close}")]);
        let moved = format!("HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:{near}/b\r\n{close}");
        let (port, proxy) = server(vec!["HTTP/1.1 200 OK\r\n\r\n".to_owned(), moved]);
        // No resolver knows the first, and the second is this machine.
        let agent = agent(None, false, false, &through(port)).unwrap();
        assert_eq!(agent.get("http://registry.invalid:5000/a").call().unwrap().status(), 200);
        assert_eq!(proxy.join().unwrap(), ["CONNECT registry.invalid:5000 HTTP/1.1", "GET /a HTTP/1.1"]);
        assert_eq!(direct.join().unwrap(), ["GET /b HTTP/1.1"]);
    }

    #[test]
    fn p1_1_redirect_to_a_covered_host_goes_through_the_proxy() {
        let close = "content-length: 0\r\nconnection: close\r\n\r\n";
        let moved = format!("HTTP/1.1 307 Moved\r\nlocation: http://storage.invalid/b\r\n{close}");
        let (near, direct) = server(vec![moved]);
        let (port, proxy) = server(vec!["HTTP/1.1 200 OK\r\n\r\n".to_owned(), format!("HTTP/1.1 200 OK\r\n{close}")]);
        let agent = agent(None, false, false, &through(port)).unwrap();
        assert_eq!(agent.get(format!("http://127.0.0.1:{near}/a")).call().unwrap().status(), 200);
        assert_eq!(direct.join().unwrap(), ["GET /a HTTP/1.1"]);
        assert_eq!(proxy.join().unwrap(), ["CONNECT storage.invalid:80 HTTP/1.1", "GET /b HTTP/1.1"]);
    }

    #[test]
    fn p1_3_login_is_sent_to_the_proxy_alone() {
        let close = "content-length: 0\r\nconnection: close\r\n\r\n";
        let (near, direct) = server(vec![format!("HTTP/1.1 200 OK\r\n{close}")]);
        let moved = format!("HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:{near}/b\r\n{close}");
        let (port, proxy) = server(vec!["HTTP/1.1 200 OK\r\n\r\n".to_owned(), moved]);
        let folder = tempfile::tempdir().unwrap();
        let user_file = folder.path().join("proxy.user");
        std::fs::write(&user_file, "name:hunter22\n").unwrap();
        let through = Proxy { user_file: Some(user_file), ..through(port) };
        let agent = agent(None, false, false, &through).unwrap();
        assert_eq!(agent.get("http://registry.invalid:5000/a").call().unwrap().status(), 200);
        let asked = ["CONNECT registry.invalid:5000 HTTP/1.1, with a login", "GET /a HTTP/1.1"];
        assert_eq!(proxy.join().unwrap(), asked);
        assert_eq!(direct.join().unwrap(), ["GET /b HTTP/1.1"]);
    }

    #[test]
    fn refusal_of_the_proxy_is_the_error_of_the_pull() {
        let (port, proxy) = server(vec!["HTTP/1.1 407 Login\r\n\r\n".to_owned()]);
        let agent = agent(None, false, true, &through(port)).unwrap();
        let error = agent.get("https://registry.invalid/v2/").call().unwrap_err().to_string();
        assert!(error.contains(&format!("proxy 127.0.0.1:{port}: it wants a login (407)")), "{error}");
        assert_eq!(proxy.join().unwrap(), ["CONNECT registry.invalid:443 HTTP/1.1"]);
    }
}
