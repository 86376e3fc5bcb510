//! Requests to servers on the node, and their answers.

use proptest::prelude::*;

use super::*;

/// Status, headers and body.
type Answer = (u16, Vec<(String, String)>, Vec<u8>);

fn answer(bytes: &[u8], method: &str) -> Result<Answer, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut stream = bytes;
    match runtime.block_on(read(&mut stream, method))? {
        CallResult::Http { status, headers, body } => Ok((status, headers, body)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn request_has_only_its_own_headers() {
    let headers = [("Content-Type".to_owned(), "a/b".to_owned()), ("Connection".to_owned(), "x".to_owned())];
    let made = request(80, "POST", "/a?b=1", &headers, b"{}").unwrap();
    let text = "POST /a?b=1 HTTP/1.1\r\nhost: 127.0.0.1:80\r\nconnection: close\r\nContent-Type: a/b\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(String::from_utf8(made).unwrap(), text);
    for (method, path, name, value) in [
        ("GET x", "/", "a", "b"),
        ("GET", "/a b", "a", "b"),
        ("GET", "a", "a", "b"),
        ("GET", "/\r\n", "a", "b"),
        ("GET", "/", "a\r\nx", "b"),
        ("GET", "/", "a", "b\r\nx: y"),
        ("", "/", "a", "b"),
    ] {
        assert_eq!(request(80, method, path, &[(name.into(), value.into())], b""), None, "{method} {path}");
    }
}

#[test]
fn answers_are_read_as_they_are_meant() {
    let head = "HTTP/1.1 200 OK\r\nX-A: b\r\n";
    let fields = vec![("X-A".to_owned(), "b".to_owned())];
    let good = |rest: &str, method: &str| answer(format!("{head}{rest}").as_bytes(), method);
    assert_eq!(good("Content-Length: 3\r\n\r\nabcd", "GET"), Ok((200, fields.clone(), b"abc".to_vec())));
    assert_eq!(good("\r\nto the end", "GET"), Ok((200, fields.clone(), b"to the end".to_vec())));
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
    assert_eq!(good(chunked, "GET"), Ok((200, fields.clone(), b"abc0123456789abcdef".to_vec())));
    assert_eq!(good("Content-Length: 3\r\n\r\n", "HEAD"), Ok((200, fields, vec![])));
    let early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    assert_eq!(answer(early, "GET"), Ok((204, vec![], vec![])));
}

#[test]
fn malformed_answer_is_an_error() {
    let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(MAX_BODY + 1));
    let chunk = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", MAX_BODY + 1);
    let head = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(HEAD));
    for bytes in [
        "",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        &long,
        &chunk,
        &head,
    ] {
        assert!(answer(bytes.as_bytes(), "GET").is_err(), "{}", &bytes[..bytes.len().min(80)]);
    }
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0_usize..60) {
        let size = |bytes: &[u8]| answer(bytes, "GET").map_or(0, |(.., body)| body.len());
        prop_assert!(size(&bytes) <= bytes.len());
        let sound = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut some = sound[..cut.min(sound.len())].to_vec();
        some.extend(bytes);
        prop_assert!(size(&some) <= some.len());
    }
}
