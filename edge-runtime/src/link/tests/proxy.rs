//! The link through an HTTP proxy on the same executor, honest or not.

use super::server::{Authority, NAME, Server};
use super::{Node, run};
use crate::link::dial;
use crate::link::identity::Identity;
use crate::link::join::{Token, join};
use crate::link::tls::{Time, node_config};
use crate::net::proxy::Proxy;
use crate::paths::Paths;
use crate::sys::tasks::Tasks;
use edge_protocol::version::IdentityTerms;
use nix::sys::socket::{getsockopt, sockopt};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, future};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OPEN: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// Gives every request the same answer. A tunnel leads to one port, whatever it was asked for.
struct HttpProxy {
    port: u16,
    inner: Rc<Inner>,
}

struct Inner {
    target: u16,
    answer: &'static str,
    asked: RefCell<Vec<String>>,
    /// Reads, and passes nothing on.
    frozen: Cell<bool>,
}

impl HttpProxy {
    fn start(ex: &Tasks, target: &Server, answer: &'static str) -> Self {
        let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0)).expect("bound");
        let port = listener.get_ref().local_addr().expect("address").port();
        let (asked, frozen) = (RefCell::default(), Cell::default());
        let inner = Rc::new(Inner { target: target.address().port, answer, asked, frozen });
        let (spawner, shared) = (ex.clone(), Rc::clone(&inner));
        ex.spawn(async move {
            loop {
                let (near, _) = listener.accept().await.expect("accepted");
                let shared = Rc::clone(&shared);
                // A peer may go at any time.
                spawner.spawn(async move { drop(shared.serve(near).await) }).detach();
            }
        })
        .detach();
        Self { port, inner }
    }

    fn section(&self) -> Proxy {
        Proxy { url: Some(format!("http://127.0.0.1:{}", self.port).parse().expect("an address")), ..Proxy::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.inner.asked.borrow().clone()
    }
}

impl Inner {
    async fn serve(&self, mut near: Async<TcpStream>) -> io::Result<()> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            near.read_exact(&mut byte).await?;
            head.extend(byte);
        }
        self.asked.borrow_mut().push(String::from_utf8_lossy(&head).into_owned());
        near.write_all(self.answer.as_bytes()).await?;
        if self.answer != OPEN {
            return Ok(());
        }
        let far = Async::<TcpStream>::connect(([127, 0, 0, 1], self.target)).await?;
        future::or(self.pass(&near, &far), self.pass(&far, &near)).await
    }

    async fn pass(&self, mut from: &Async<TcpStream>, mut to: &Async<TcpStream>) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            let length = from.read(&mut buffer).await?;
            if self.frozen.get() {
                return future::pending().await;
            }
            if length == 0 {
                return Ok(());
            }
            to.write_all(&buffer[..length]).await?;
        }
    }
}

fn node(ex: &Tasks, identity: Identity, proxy: Proxy) -> Node {
    Node::start_through(ex, identity, 16, Time::default(), proxy)
}

#[test]
fn p1_1_join_link_and_renewal_leave_the_name_to_the_proxy() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let proxy = HttpProxy::start(&ex, &server, OPEN);
        let token = Token::parse(&authority.token("good")).expect("token");
        let folder = tempfile::tempdir().expect("temp dir");
        let (paths, section) = (Paths::new(folder.path()), proxy.section());
        let identity = join(&paths, &token, &[server.named()], "edge-1", &section).await.expect("joins");
        server.set_terms(IdentityTerms { now_ms: 0, left_ms: 0, life_ms: 1_000 });
        let mut node = node(&ex, identity, section);
        node.until("connected").await;
        server.until(|seen| !seen.proven.is_empty()).await;
        let target = server.named().authority();
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        assert_eq!(proxy.asked()[..3], [request.clone(), request.clone(), request]);
    });
}

#[test]
fn p1_2_silent_proxy_is_left_as_fast_as_a_silent_bridge() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let proxy = HttpProxy::start(&ex, &server, OPEN);
        let identity = authority.identity("edge-1", server.named());
        let config = Arc::new(node_config(&identity, Time::default()).expect("settings"));
        let (bridge, section) = (server.named(), proxy.section());
        let addresses = dial::addresses(&bridge, &section).await.expect("the proxy's");
        let tls = dial::connect(&bridge, &section, addresses, config).await.expect("dialled");
        assert_eq!(getsockopt(tls.get_ref().0, sockopt::TcpUserTimeout), Ok(30_000));
        drop(tls);

        let mut node = node(&ex, identity, section);
        node.until("connected").await;
        proxy.inner.frozen.set(true);
        let started = Instant::now();
        assert!(node.until("disconnected").await.contains("nothing heard"));
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
        proxy.inner.frozen.set(false);
        node.until("connected").await;
    });
}

#[test]
fn p1_4_server_must_be_the_bridge_whatever_the_proxy_says() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        // The certificate holds the address of the proxy, too.
        let proxy = HttpProxy::start(&ex, &server, OPEN);
        let mut other = server.named();
        other.host = format!("other.{NAME}");
        let mut wrong_name = node(&ex, authority.identity("edge-1", other), proxy.section());
        assert!(wrong_name.until("disconnected").await.contains("tls handshake"));
        // One that ends TLS itself.
        let stranger = Server::start(&ex, &Authority::new()).await;
        let proxy = HttpProxy::start(&ex, &stranger, OPEN);
        let mut intercepted = node(&ex, authority.identity("edge-1", server.named()), proxy.section());
        assert!(intercepted.until("disconnected").await.contains("tls handshake"));
        assert!(!wrong_name.handle.is_connected() && !intercepted.handle.is_connected());
    });
}

#[test]
fn refusal_of_the_proxy_is_told_and_loopback_needs_none() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let said = async |proxy: Proxy| {
            let mut node = node(&ex, authority.identity("edge-1", server.named()), proxy);
            node.until("disconnected").await
        };
        for (answer, why) in [
            ("HTTP/1.1 407 Login\r\nProxy-Authenticate: Basic\r\n\r\n", "set proxy.user-file"),
            ("HTTP/1.1 403 Filtered\r\n\r\n", "HTTP/1.1 403 Filtered"),
            ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "before it was asked"),
            ("HTTP/1.1 100 Continue\r\n\r\n", "hung up"),
            ("", "hung up"),
        ] {
            let proxy = HttpProxy::start(&ex, &server, answer);
            let told = said(proxy.section()).await;
            assert!(told.contains(&format!("proxy 127.0.0.1:{}: ", proxy.port)) && told.contains(why), "{told}");
        }
        let gone = Proxy { url: Some("http://127.0.0.1:1".parse().expect("an address")), ..Proxy::default() };
        let told = said(gone.clone()).await;
        assert!(told.starts_with("disconnected proxy 127.0.0.1:1: "), "{told}");
        let mut near = node(&ex, authority.identity("edge-1", server.address()), gone);
        near.until("connected").await;
    });
}
