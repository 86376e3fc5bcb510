//! What `resolve` promises, case by case.

use super::config::{Config, hosts};
use super::search::Search;
use super::wire::{Answer, RecordType, answer, is_host_name, query};
use super::*;
use std::time::Duration;

fn reply_to(query: &[u8], code: u8, records: &[(u16, &[u8])]) -> Vec<u8> {
    let mut packet = query.to_vec();
    packet[2] |= 0x80;
    packet[3] = 0x80 | code;
    packet[7] = u8::try_from(records.len()).expect("few");
    for (kind, data) in records {
        packet.extend([0xc0, 12]); // the name of the question
        packet.extend(kind.to_be_bytes());
        packet.extend([0, 1, 0, 0, 0, 60]);
        packet.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        packet.extend(*data);
    }
    packet
}

#[test]
fn reads_hosts_and_resolv_conf() {
    let text = "127.0.0.1 localhost\n10.0.0.9  bridge Bridge.Example # x\n::1 bridge\nnonsense bridge\n";
    assert_eq!(hosts(text, "bridge.example."), ["10.0.0.9".parse::<IpAddr>().expect("ip")]);
    assert_eq!(hosts(text, "bridge").len(), 2);
    assert!(hosts(text, "x").is_empty(), "comments are no names");
    let config = Config::parse(
        "# c\nnameserver 10.0.0.1\nnameserver fe80::1%7\nnameserver ::1\nsearch a.b. c\noptions ndots:2 timeout:99 attempts:0 rotate\n",
    );
    let near = |link: u32| SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().expect("ip"), 53, 0, link));
    assert_eq!(
        config.servers,
        ["10.0.0.1:53".parse().expect("address"), near(7), "[::1]:53".parse().expect("address")]
    );
    assert_eq!((server("fe80::1%lo"), server("fe80::1%nowhere"), server("10.0.0.1%lo")), (Some(near(1)), None, None));
    assert_eq!((config.ndots, config.timeout.as_secs(), config.attempts), (2, 30, 1));
    assert_eq!(config.names("x"), ["x.a.b", "x.c", "x"]);
    assert_eq!(config.names("x.y.z"), ["x.y.z", "x.y.z.a.b", "x.y.z.c"]);
    assert_eq!(config.names("x."), ["x"]);
}

#[test]
fn host_names_are_checked() {
    for good in ["a", "a.b", "a-b_c.d.", &format!("{}.x", "a".repeat(63))] {
        assert!(is_host_name(good), "{good}");
    }
    for bad in ["", ".", "a..b", "a b", "a/b", &"a".repeat(64), &"a.".repeat(128)] {
        assert!(!is_host_name(bad), "{bad}");
    }
}

#[test]
fn takes_only_the_answer_to_its_question() {
    let asked = query(7, "a.example", RecordType::A);
    let good = reply_to(&asked, 0, &[(5, &[1, b'x', 0]), (1, &[10, 0, 0, 1])]);
    let read = |packet: &[u8]| answer(packet, 7, "A.Example", RecordType::A);
    assert_eq!(read(&good), Some(Answer::Addresses(vec![[10, 0, 0, 1].into()])));
    assert_eq!(answer(&good, 8, "a.example", RecordType::A), None, "another id");
    assert_eq!(answer(&good, 7, "b.example", RecordType::A), None, "another name");
    assert_eq!(answer(&good, 7, "a.example", RecordType::Aaaa), None, "another type");
    assert_eq!(read(&asked), None, "a query is no reply");
    assert_eq!(read(&reply_to(&asked, 3, &[])), Some(Answer::NoSuchName));
    assert_eq!(read(&reply_to(&asked, 2, &[])), Some(Answer::Failed));
    for cut in 0..good.len() {
        read(&good[..cut]);
    }
    let mut wild = good.clone();
    for at in 0..wild.len() {
        for byte in [0, 0x3f, 0xc0, 0xff] {
            let was = std::mem::replace(&mut wild[at], byte);
            read(&wild);
            wild[at] = was;
        }
    }
}

/// A DNS server that knows `web.test` only, drops the first query, and answers noise before each answer.
fn serve(socket: &UdpSocket) {
    let mut dropped = false;
    let mut buffer = [0; 512];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
        let asked = &buffer[..length];
        if asked.windows(4).any(|w| w == b"stop") {
            return;
        }
        if !std::mem::replace(&mut dropped, true) {
            continue;
        }
        let is_web = asked[12..].starts_with(b"\x03web\x04test\x00");
        let is_a = asked[asked.len() - 3] == 1;
        let reply = match (is_web, is_a) {
            (true, true) => reply_to(asked, 0, &[(1, &[10, 9, 8, 7])]),
            (true, false) => reply_to(asked, 0, &[]),
            (false, _) => reply_to(asked, 3, &[]),
        };
        socket.send_to(b"noise", from).expect("sent");
        socket.send_to(&reply, from).expect("sent");
    }
}

#[test]
fn asks_again_and_follows_the_search_list() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = server.local_addr().expect("address");
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&server));
        let config = || Config {
            servers: vec![address],
            search: vec!["none".into(), "test".into()],
            ndots: 1,
            timeout: Duration::from_millis(300),
            attempts: 2,
        };
        let mut search = Search::with("web", config()).expect("searches");
        let mut found = None;
        while let Some(question) = search.next_question().expect("asks") {
            let socket = UdpSocket::bind(any_address(question.server)).expect("bound");
            socket.connect(question.server).expect("connected");
            for query in &question.queries {
                socket.send(query).expect("sent");
            }
            while search.waiting() {
                socket.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
                let mut buffer = [0; 512];
                let Ok(length) = socket.recv(&mut buffer) else { break };
                search.reply(&buffer[..length]);
            }
            found = search.take();
            if found.is_some() {
                break;
            }
        }
        assert_eq!(found, Some(vec![[10, 9, 8, 7].into()]));
        let stop = UdpSocket::bind("127.0.0.1:0").expect("bound");
        stop.send_to(b"stop", address).expect("sent");
    });
}

#[test]
fn an_answer_that_was_cut_off_is_asked_for_by_tcp() {
    let config = Config {
        servers: vec!["127.0.0.1:53".parse().expect("address")],
        search: Vec::new(),
        ndots: 1,
        timeout: Duration::from_secs(9),
        attempts: 1,
    };
    let mut search = Search::with("long.test", config).expect("searches");
    let question = search.next_question().expect("asks").expect("a question");
    let [a, aaaa] = &question.queries;
    let mut cut = reply_to(a, 0, &[(5, &[1, b'x', 0])]);
    assert_eq!(search.cut_off(&cut, &question), None);
    cut[2] |= 0x02;
    assert_eq!(search.cut_off(&cut, &question), Some(a.as_slice()));
    cut[0] ^= 1;
    assert_eq!(search.cut_off(&cut, &question), None, "of another question");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = listener.local_addr().expect("address");
    let whole = reply_to(a, 0, &[(5, &[1, b'x', 0]), (1, &[10, 9, 8, 7])]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().expect("asked");
            let mut asked = vec![0; 2 + a.len()];
            stream.read_exact(&mut asked).expect("a query");
            assert_eq!(&asked[2..], a.as_slice());
            let length = u16::try_from(whole.len()).expect("short").to_be_bytes();
            stream.write_all(&[&length[..], &whole].concat()).expect("answered");
        });
        search.reply(&smol::block_on(by_tcp(at, a)).expect("an answer"));
    });
    search.reply(&reply_to(aaaa, 0, &[]));
    assert_eq!(search.take(), Some(vec![[10, 9, 8, 7].into()]));
}

#[test]
fn literals_and_localhost_need_no_server() {
    let found = smol::block_on(resolve("::1", 5)).expect("literal");
    assert_eq!(found, ["[::1]:5".parse().expect("address")]);
    assert!(
        resolve_blocking("localhost", 5, Duration::from_secs(9)).expect("local").iter().all(|a| a.ip().is_loopback())
    );
    assert!(matches!(resolve_blocking("a..b", 5, Duration::from_secs(9)), Err(ResolveError::Name(_))));
}
