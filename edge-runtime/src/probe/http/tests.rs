//! Requests as bytes, and answers of a real server on loopback.

use std::net::{SocketAddr, TcpListener};

use smol::Async;

use super::*;

fn request(address: SocketAddr, path: &str) -> Request {
    Request {
        tls: false,
        host: address.ip().to_string(),
        address,
        target: target(path),
        headers: Vec::new(),
        agent: "kube-probe/1.36",
    }
}

/// Answers each connection with the next of `answers` and gives what was asked.
async fn serve(listener: Async<TcpListener>, answers: Vec<String>) -> Vec<String> {
    let mut asked = Vec::new();
    for answer in answers {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = vec![0; 4096];
        let n = stream.read(&mut seen).await.unwrap();
        asked.push(String::from_utf8_lossy(&seen[..n]).lines().next().unwrap_or_default().to_owned());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    asked
}

fn run(answers: &[&str], path: &str) -> (Outcome, Vec<String>) {
    let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0)).unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    let answers = answers.iter().map(|a| a.replace("PORT", &address.port().to_string())).collect();
    smol::block_on(smol::future::zip(get(request(address, path), &tls_config()), serve(listener, answers)))
}

#[test]
fn statuses_decide() {
    for (status, outcome) in [
        ("200 OK", Outcome::Success),
        ("204 No Content", Outcome::Success),
        ("304 Not Modified", Outcome::Warning("Probe terminated redirects, Response body: hi".into())),
        ("400 Bad Request", Outcome::Failure("HTTP probe failed with statuscode: 400".into())),
        ("503 Busy", Outcome::Failure("HTTP probe failed with statuscode: 503".into())),
    ] {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(run(&[&answer], "/healthz?x=1").0, outcome, "{status}");
    }
}

#[test]
fn informational_answers_are_passed_over() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for count in [1, 5] {
        assert_eq!(run(&[&(early.repeat(count) + ok)], "/").0, Outcome::Success, "{count}");
    }
    let (Outcome::Failure(why), _) = run(&[&(early.repeat(6) + ok)], "/") else { panic!("six are too many") };
    assert!(why.contains("too many 1xx"), "{why}");
    let split = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    assert!(matches!(run(&[split], "/").0, Outcome::Failure(_)));
}

#[test]
fn redirects_stay_on_the_host() {
    let (outcome, asked) = run(
        &[
            "HTTP/1.1 302 Found\r\nLocation: /next\r\n\r\n",
            "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:PORT/a/b\r\n\r\n",
            "HTTP/1.1 307 Again\r\nLocation: c?d\r\n\r\n",
            "HTTP/1.1 500 No\r\n\r\n",
        ],
        "first",
    );
    assert_eq!(outcome, Outcome::Failure("HTTP probe failed with statuscode: 500".into()));
    assert_eq!(asked, ["GET /first HTTP/1.1", "GET /next HTTP/1.1", "GET /a/b HTTP/1.1", "GET /a/c?d HTTP/1.1"]);
    let (outcome, _) = run(&["HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n"], "/");
    let warning = "Probe terminated redirects, Response body: ";
    assert_eq!(outcome, Outcome::Warning(warning.into()), "a redirect to elsewhere is not followed");
}

#[test]
fn answer_without_http_is_a_failure() {
    for answer in ["", "nonsense\r\n\r\n"] {
        assert!(matches!(run(&[answer], "/").0, Outcome::Failure(text) if text.starts_with("Get \"http://127.0.0.1:")));
    }
}

#[test]
fn closed_port_is_a_failure() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let outcome = smol::block_on(get(request(address, "/x"), &tls_config()));
    let text = format!("Get \"http://{address}/x\": dial tcp {address}: connect: connection refused");
    assert_eq!(outcome, Outcome::Failure(text));
}

#[test]
fn headers_of_the_probe_win() {
    let mut r = request(SocketAddr::from(([10, 0, 0, 1], 80)), "/a b#c");
    r.headers = vec![("Host".into(), "site".into()), ("X-A".into(), "1".into()), ("Accept".into(), String::new())];
    let text = String::from_utf8(r.bytes()).unwrap();
    assert_eq!(
        text,
        "GET /a%20b HTTP/1.1\r\nHost: site\r\nUser-Agent: kube-probe/1.36\r\nX-A: 1\r\nConnection: close\r\n\r\n"
    );
    r.headers.clear();
    r.host = "fd00::1".into();
    assert!(String::from_utf8(r.bytes()).unwrap().contains("Host: [fd00::1]:80\r\n"));
}

/// A second request in a header would go to any host, as the node.
#[test]
fn a_request_carries_no_other_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let with = |name: &str, value: &str| {
        let mut request = request(at, "/");
        request.headers = vec![(name.into(), value.into())];
        request
    };
    let smuggled = "a\r\n\r\nPOST /containers/create HTTP/1.1";
    let mut host = request(at, "/");
    host.host = smuggled.into();
    let wrong = [
        (with("X-A", smuggled), "net/http: invalid header field value for \"X-A\""),
        (with("X-A", "a\nb"), "net/http: invalid header field value for \"X-A\""),
        (with("X-A", "a\0"), "net/http: invalid header field value for \"X-A\""),
        (with("X-A: 1\r\nX-B", "1"), "net/http: invalid header field name \"X-A: 1\\r\\nX-B\""),
        (with("", "1"), "net/http: invalid header field name \"\""),
        (with("Host", smuggled), "http: invalid Host header"),
        (host, "http: invalid Host header"),
    ];
    for (request, why) in wrong {
        let Outcome::Failure(said) = smol::block_on(get(request, &tls_config())) else { panic!("{why}") };
        assert!(said.starts_with("Get \"") && said.ends_with(why), "{said}");
    }
    assert!(listener.accept().is_err(), "nothing was sent");
    for path in ["/a\r\nX: 1", "a b\0"] {
        let text = String::from_utf8(request(at, path).bytes()).unwrap();
        assert_eq!(text.matches("\r\n").count(), 6, "{text:?}");
    }
    assert_eq!(with("X-A", "\tpl\u{e4}in \u{80}").refused(), None);
}

#[test]
fn any_certificate_will_do() {
    let key = rcgen::generate_simple_self_signed(["other.example".to_owned()]).unwrap();
    let private = rustls_pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0)).unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = futures_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
        let mut seen = [0; 1024];
        stream.read(&mut seen).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
    };
    let request = Request { tls: true, ..request(address, "/") };
    let (outcome, ()) = smol::block_on(smol::future::zip(get(request, &tls_config()), server));
    assert_eq!(outcome, Outcome::Success);
}
