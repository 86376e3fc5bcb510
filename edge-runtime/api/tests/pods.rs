//! Pods ask over TLS, and the daemon is at the other end: what goes through the link, what is answered without it, and
//! what hostile pods get.

mod support;

use std::time::{Duration, Instant};

use edge_protocol::channel::{CLOSE, Records, STDIN, STDOUT, records};
use sampan_api_control::{Kind, ToHelper};
use support::{Answer, Node, TOKEN, block_on, text, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const PODS: &str = "/api/v1/namespaces/ns/pods";
const LIST: &[u8] = br#"{"kind":"PodList","items":[]}"#;

#[test]
fn only_tokens_of_pods_are_served() {
    block_on(async {
        let mut node = Node::start().await;
        for token in ["other", "a.b", "a.b.c.d"] {
            let answer = node.ask("GET", PODS, token, "").await;
            assert_eq!(answer.status, 401);
            assert!(String::from_utf8_lossy(&answer.body).contains("\"reason\":\"Unauthorized\""));
        }
        node.say(&ToHelper::PodGone { uid: "u".into() }).await;
        assert_eq!(node.ask("GET", PODS, TOKEN, "").await.status, 401);
        node.end().await;
    });
}

#[test]
fn request_goes_through_the_link_with_the_pods_own_token() {
    block_on(async {
        let mut node = Node::start().await;
        let mut stream = node.connect(1).await.expect("connects");
        stream.write_all(text("POST", PODS, TOKEN, "{\"a\":1}").as_bytes()).await.expect("written");
        let (number, request) = node.opened().await;
        assert_eq!((request.method.as_str(), request.path.as_str(), request.has_body), ("POST", PODS, true));
        assert_eq!(request.header("authorization"), Some("Bearer a.b.c"));
        assert_eq!(request.header("host"), None);
        let (mut up, mut body) = (Records::default(), Vec::new());
        'all: loop {
            up.push(&node.frame().await.payload);
            while let Some(record) = up.next_record().expect("records") {
                match record.channel {
                    STDIN => body.extend(record.data),
                    CLOSE => break 'all,
                    other => panic!("channel {other}"),
                }
            }
        }
        assert_eq!(body, b"{\"a\":1}");
        node.head(number, 201).await;
        node.send(number, Kind::Data, &records(STDOUT, b"made")).await;
        node.send(number, Kind::Data, &records(edge_protocol::channel::STATUS, b"")).await;
        let answer = Answer::read(&mut stream).await;
        assert_eq!((answer.status, answer.body.as_slice()), (201, &b"made"[..]));
        node.end().await;
    });
}

#[test]
fn offline_answer_is_the_last_one_and_the_accounts_own() {
    block_on(async {
        let mut node = Node::start().await;
        node.pod("v", &["d.e.f"]).await;
        let mut stream = node.connect(1).await.expect("connects");
        stream.write_all(text("GET", PODS, TOKEN, "").as_bytes()).await.expect("written");
        node.answer(200, LIST).await;
        let online = Answer::read(&mut stream).await;
        assert_eq!((online.status, online.body.as_slice()), (200, LIST));
        node.link(false).await;
        let offline = node.ask("GET", &format!("{PODS}?limit=500&resourceVersion=0"), TOKEN, "").await;
        assert_eq!((offline.status, &offline.body), (200, &online.body));
        assert!(
            offline.head.contains("warning: 299 - \"no link since 2026-09-21t14:13:20z: as read at "),
            "{}",
            offline.head
        );
        assert!(offline.head.contains("content-type: application/json"));
        assert_eq!(node.ask("GET", PODS, "d.e.f", "").await.status, 503, "another account");
        assert_eq!(node.ask("GET", "/api/v1/nodes", TOKEN, "").await.status, 503, "not read before");
        let mut node = node.restart().await;
        node.link(false).await;
        assert_eq!(node.ask("GET", PODS, TOKEN, "").await.body, LIST, "another process");
        node.end().await;
    });
}

#[test]
fn write_without_a_link_is_refused_and_not_repeated() {
    block_on(async {
        let mut node = Node::start().await;
        node.link(false).await;
        let answer = node.ask("POST", PODS, TOKEN, "{}").await;
        assert_eq!(answer.status, 503);
        assert!(answer.head.contains("retry-after: 30"), "{}", answer.head);
        assert!(String::from_utf8_lossy(&answer.body).contains("\"reason\":\"ServiceUnavailable\""));
        node.link(true).await;
        let mut stream = node.connect(1).await.expect("connects");
        stream.write_all(text("DELETE", PODS, TOKEN, "").as_bytes()).await.expect("written");
        let (number, request) = node.opened().await;
        assert_eq!(request.method, "DELETE", "not the POST");
        node.send(number, Kind::End, b"the link is down").await;
        let answer = Answer::read(&mut stream).await;
        assert_eq!((answer.status, answer.head.contains("retry-after")), (504, false));
        node.end().await;
    });
}

#[test]
fn watch_ends_with_the_link_and_is_silent_until_it_is_back() {
    block_on(async {
        let mut node = Node::start().await;
        let watch = text("GET", &format!("{PODS}?watch=true"), TOKEN, "");
        let mut stream = node.connect(1).await.expect("connects");
        stream.write_all(watch.as_bytes()).await.expect("written");
        let (number, _) = node.opened().await;
        node.head(number, 200).await;
        node.send(number, Kind::Data, &records(STDOUT, b"{\"type\":\"ADDED\"}\n")).await;
        until(&mut stream, "added").await;
        node.link(false).await;
        node.send(number, Kind::End, b"the link is down").await;
        until(&mut stream, "0\r\n\r\n").await;
        let mut stream = node.connect(1).await.expect("connects");
        stream.write_all(watch.as_bytes()).await.expect("written");
        let head = until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let mut chunk = [0; 100];
        assert!(timeout(Duration::from_secs(1), stream.read(&mut chunk)).await.is_err(), "no event");
        node.link(true).await;
        until(&mut stream, "0\r\n\r\n").await;
        node.end().await;
    });
}

#[test]
fn pod_that_has_gone_loses_its_watch_at_once() {
    block_on(async {
        let mut node = Node::start().await;
        let mut stream = node.connect(1).await.expect("connects");
        let watch = text("GET", &format!("{PODS}?watch=true"), TOKEN, "");
        stream.write_all(watch.as_bytes()).await.expect("written");
        let (number, _) = node.opened().await;
        node.head(number, 200).await;
        until(&mut stream, "\r\n\r\n").await;
        node.say(&ToHelper::PodGone { uid: "u".into() }).await;
        let end = timeout(Duration::from_secs(1), node.frame()).await.expect("within a second");
        assert_eq!((end.stream, end.kind), (number, Kind::End));
        node.end().await;
    });
}

#[test]
fn informer_is_led_to_lists() {
    block_on(async {
        let mut node = Node::start().await;
        let path = format!("{PODS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        assert_eq!(node.ask("GET", &path, TOKEN, "").await.status, 422);
        node.end().await;
    });
}

#[test]
fn head_that_comes_slowly_ends_the_connection() {
    block_on(async {
        let mut node = Node::start().await;
        let mut stream = node.connect(1).await.expect("connects");
        let since = Instant::now();
        let slowly = async {
            while stream.write_all(b"x").await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(Duration::from_secs(20), slowly).await.expect("is cut");
        assert!(since.elapsed() > Duration::from_secs(8));
        node.end().await;
    });
}

#[test]
fn connections_have_a_limit() {
    block_on(async {
        let mut node = Node::start().await;
        let mut held = Vec::new();
        for (from, count) in [(1, 24), (2, 24), (3, 16)] {
            for _ in 0..count {
                held.push(node.connect(from).await.expect("has room"));
            }
        }
        assert!(node.connect(1).await.is_err(), "the 25th of one address");
        let mut other = node.connect(5).await.expect("the 65th: an address with many gives way");
        other.write_all(text("GET", "/metrics", TOKEN, "").as_bytes()).await.expect("written");
        assert_eq!(Answer::read(&mut other).await.status, 404, "it is served");
        held.clear();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(node.connect(5).await.is_ok());
        node.end().await;
    });
}

#[test]
fn idle_connections_of_pods_give_way() {
    block_on(async {
        let mut node = Node::start().await;
        node.pod("v", &["d.e.f"]).await;
        node.pod("w", &["g.h.i"]).await;
        node.pod("x", &["j.k.l"]).await;
        let mut held = Vec::new();
        for (from, token, count) in [(1, TOKEN, 24), (2, "d.e.f", 24), (3, "g.h.i", 16)] {
            let request = text("GET", "/metrics", token, "").replace("connection: close\r\n", "");
            for _ in 0..count {
                let mut stream = node.connect(from).await.expect("has room");
                stream.write_all(request.as_bytes()).await.expect("written");
                until(&mut stream, "http/1.1 404").await;
                held.push(stream);
            }
        }
        let mut new = node.connect(5).await.expect("it replaces an idle one");
        new.write_all(text("GET", "/metrics", "j.k.l", "").as_bytes()).await.expect("written");
        assert_eq!(Answer::read(&mut new).await.status, 404, "it is served");
        node.end().await;
    });
}

#[test]
fn pod_that_floods_waits() {
    block_on(async {
        let mut node = Node::start().await;
        node.pod("v", &["d.e.f"]).await;
        let mut stream = node.connect(1).await.expect("connects");
        let request = text("GET", "/metrics", TOKEN, "").replace("connection: close\r\n", "");
        let since = Instant::now();
        for _ in 0..230 {
            stream.write_all(request.as_bytes()).await.expect("written");
            until(&mut stream, "http/1.1 404").await;
        }
        // 160 at once, and 40 in a second.
        assert!(since.elapsed() > Duration::from_secs(1), "{:?}", since.elapsed());
        assert_eq!(node.ask("GET", "/metrics", "d.e.f", "").await.status, 404);
        node.end().await;
    });
}

#[test]
fn unknown_token_ends_the_connection() {
    block_on(async {
        let mut node = Node::start().await;
        let mut stream = node.connect(1).await.expect("connects");
        let request = text("GET", PODS, "other", "").replace("connection: close\r\n", "");
        stream.write_all(request.as_bytes()).await.expect("written");
        let answer = timeout(Duration::from_secs(5), Answer::read(&mut stream)).await.expect("is closed");
        assert_eq!(answer.status, 401);
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
        node.end().await;
    });
}

#[test]
fn pod_that_reads_nothing_holds_few_bytes() {
    block_on(async {
        let mut node = Node::start().await;
        let mut stream = node.connect(1).await.expect("connects");
        stream.write_all(text("GET", PODS, TOKEN, "").as_bytes()).await.expect("written");
        let (number, _) = node.opened().await;
        node.head(number, 200).await;
        let (mut credit, mut sent) = (64 << 10, 0_usize);
        let piece = records(STDOUT, &[b'x'; 8_000]);
        loop {
            while credit >= 20_000 {
                node.send(number, Kind::Data, &piece).await;
                (credit, sent) = (credit - piece.len(), sent + piece.len());
            }
            let Ok(frame) = timeout(Duration::from_secs(2), node.frame()).await else { break };
            assert_eq!(frame.kind, Kind::Credit);
            credit +=
                usize::try_from(sampan_api_control::frame::credit(&frame.payload).expect("a number")).expect("fits");
            assert!(sent < 1 << 20, "{sent} bytes for a pod that reads none");
        }
        node.end().await;
    });
}

#[test]
fn large_body_is_refused() {
    block_on(async {
        let mut node = Node::start().await;
        let mut stream = node.connect(1).await.expect("connects");
        let head = format!(
            "POST {PODS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\ncontent-length: \
             3145729\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("written");
        assert_eq!(Answer::read(&mut stream).await.status, 413);
        node.end().await;
    });
}

#[test]
fn page_that_is_too_old_leaves_what_is_kept() {
    block_on(async {
        let mut node = Node::start().await;
        for (path, status) in [(PODS.to_owned(), 200), (format!("{PODS}?limit=1&continue=x"), 410)] {
            let mut stream = node.connect(1).await.expect("connects");
            stream.write_all(text("GET", &path, TOKEN, "").as_bytes()).await.expect("written");
            node.answer(status, LIST).await;
            assert_eq!(Answer::read(&mut stream).await.status, status);
        }
        node.link(false).await;
        assert_eq!(node.ask("GET", PODS, TOKEN, "").await.body, LIST);
        node.end().await;
    });
}
