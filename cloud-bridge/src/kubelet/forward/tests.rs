//! Tests of forwarding.

use kubelet_api::request;

use super::*;
use crate::pki::identity::Holder;

fn parts(headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::post("https://10.0.0.1:10360/exec/ns/p/c?command=ls&output=1");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

#[test]
fn forwarded_request_keeps_its_upgrade_and_loses_credentials() {
    let parts = parts(&[
        ("host", "10.0.0.1:10360"),
        ("authorization", "Bearer secret"),
        ("proxy-authorization", "Basic c2VjcmV0"),
        ("cookie", "session=secret"),
        ("connection", "Upgrade"),
        ("upgrade", "SPDY/3.1"),
        ("x-stream-protocol-version", "v5.channel.k8s.io"),
        ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ("content-length", "7"),
        ("x-sampan-node", "another"),
    ]);
    let made = request("edge-1", "10.0.0.2:9446", &parts, ()).unwrap();
    assert_eq!((made.uri().to_string(), made.method().as_str()), ("/exec/ns/p/c?command=ls&output=1".into(), "POST"));
    let all = |name: &str| -> Vec<&str> {
        made.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    };
    assert_eq!((all("host"), all("x-sampan-node")), (vec!["10.0.0.2:9446"], vec!["edge-1"]));
    assert_eq!((all("connection"), all("upgrade")), (vec!["Upgrade"], vec!["SPDY/3.1"]));
    assert_eq!(all("x-stream-protocol-version").len(), 2);
    for gone in ["authorization", "proxy-authorization", "cookie", "content-length"] {
        assert!(all(gone).is_empty(), "{gone}");
    }
    assert!(request("edge-1", "a\nb", &parts, ()).is_none() && request("a\nb", "x", &parts, ()).is_none());
}

#[test]
fn only_a_followed_log_may_be_silent() {
    let soon = |uri: &str| is_answered_soon(&request::parse(&http::Method::GET, &uri.parse().unwrap()).unwrap());
    assert!(!soon("/containerLogs/ns/p/c?follow=true"));
    for uri in ["/containerLogs/ns/p/c", "/exec/ns/p/c?command=ls&output=1", "/stats/summary", "/portForward/ns/p"] {
        assert!(soon(uri), "{uri}");
    }
}

#[test]
fn request_about_a_pod_counts_for_its_namespace() {
    let of = |method: http::Method, uri: &str| {
        let asked = request::parse(&method, &uri.parse().unwrap()).unwrap();
        namespace(&asked).map(str::to_owned)
    };
    assert_eq!(of(http::Method::GET, "/containerLogs/shop/p/c?follow=true").as_deref(), Some("shop"));
    assert_eq!(of(http::Method::POST, "/exec/shop/p/c?command=ls&output=1").as_deref(), Some("shop"));
    assert_eq!(of(http::Method::GET, "/stats/summary"), None);
}

#[test]
fn switch_of_the_other_bridge_is_the_callers() {
    let headers = [("upgrade", "websocket"), ("sec-websocket-accept", "x"), ("content-length", "0")];
    let headers = headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let answer = switching(&HeaderMap::from_iter(headers));
    assert_eq!((answer.status().as_u16(), answer.headers().len()), (101, 2));
}

#[tokio::test]
async fn bridge_that_is_gone_or_has_another_authority_is_named() {
    let own = Arc::new(Authority::create("own").unwrap());
    let forwarder = Forwarder::new(Arc::clone(&own));
    let ask = async |place: &str| {
        let failed = forwarder.forward("edge-1", place, &KubeletRequest::Healthz, &parts(&[])).await;
        failed.map(|answer| answer.status()).unwrap_err()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let other = Authority::create("other").unwrap();
    let config = crate::pki::tls::server_config(other.certificate(), other.server(&[]).unwrap(), &[], &[]).unwrap();
    let server = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        // The client refuses the certificate.
        assert!(tokio_rustls::TlsAcceptor::from(config).accept(socket).await.is_err());
    });
    let is_said = |error: &BackendError, words: &str| {
        let why = error.to_string();
        matches!(error, BackendError::Unavailable(_)) && why.contains("edge-1") && why.contains(words)
    };
    // Other tests count, too.
    let counted = || (counters::KUBELET_FORWARDED.get(), counters::KUBELET_UNANSWERED.get());
    let before = counted();
    let refused = ask(&place).await;
    assert!(is_said(&refused, "cannot be reached") && is_said(&refused, &place), "{refused}");
    assert!(counted().0 > before.0 && counted().1 > before.1);
    server.await.unwrap();
    let gone = ask(&place).await;
    assert!(is_said(&gone, "cannot be reached"), "{gone}");
    let nonsense = ask("bridge.example:9446").await;
    assert!(is_said(&nonsense, "cannot be reached"), "{nonsense}");
}

#[tokio::test]
async fn silent_bridge_is_left_in_time() {
    let authority = Arc::new(Authority::create("own").unwrap());
    let callers = [authority.certificate().clone()];
    let signed = authority.server(&[]).unwrap();
    let config = crate::pki::tls::server_config(authority.certificate(), signed, &callers, &[]).unwrap();
    let mut forwarder = Arc::into_inner(Forwarder::new(Arc::clone(&authority))).unwrap();
    let ask = async |forwarder: &Forwarder, place: &str| {
        let failed = forwarder.forward("edge-1", place, &KubeletRequest::Healthz, &parts(&[])).await;
        failed.map(|answer| answer.status()).unwrap_err().to_string()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    // The kernel accepts the connection, and the bridge does not.
    forwarder.patience.dial = Duration::from_millis(100);
    let why = ask(&forwarder, &place).await;
    assert!(why.contains("cannot be reached within"), "{why}");
    drop(listener.accept().await.unwrap());

    let server = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let tls = tokio_rustls::TlsAcceptor::from(config).accept(socket).await.unwrap();
        let holder = Holder::of(&tls.get_ref().1.peer_certificates().unwrap()[0]).unwrap();
        assert_eq!(replica::check(Some(&holder), clock::now()), Ok(()));
        std::future::pending::<()>().await;
    });
    forwarder.patience = Patience { dial: PATIENCE.dial, head: Duration::from_millis(100) };
    let why = ask(&forwarder, &place).await;
    assert!(why.contains("does not answer within"), "{why}");
    assert!(!server.is_finished(), "it has seen a bridge");
    server.abort();
}

#[test]
fn certificate_for_other_bridges_is_renewed() {
    let forwarder = Forwarder::new(Arc::new(Authority::create("own").unwrap()));
    let made = |forwarder: &Forwarder| forwarder.tls.lock().unwrap().as_ref().unwrap().0;
    forwarder.tls().unwrap();
    let first = made(&forwarder);
    forwarder.tls().unwrap();
    assert_eq!(made(&forwarder), first, "it is kept");
    forwarder.tls.lock().unwrap().as_mut().unwrap().0 = first - 2 * clock::ANEW;
    forwarder.tls().unwrap();
    assert!(made(&forwarder) >= first);
}
