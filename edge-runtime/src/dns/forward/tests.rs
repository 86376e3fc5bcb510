//! Which answers are accepted.

use super::*;
use crate::dns::wire::question;

#[test]
fn own_addresses_are_never_asked() {
    let text = "# one\nsearch a.b\nnameserver 10.85.0.1\nnameserver 127.0.0.53\nnameserver fe80::1%lo\n\
        nameserver 192.0.2.1 # two\nnameserver";
    let found: Vec<String> = servers(text, &["10.85.0.1".parse().unwrap()]).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["127.0.0.53:53", "[fe80::1%1]:53", "192.0.2.1:53"]);
    let upstream = Upstream::new(vec!["10.85.0.1".parse().unwrap()]);
    *upstream.servers.borrow_mut() = (Some(Instant::now()), vec!["10.96.0.10:53".parse().unwrap()]);
    // The cluster's DNS address leads to this helper.
    upstream.own(&["10.85.0.1".parse().unwrap(), "10.96.0.10".parse().unwrap()]);
    assert!(!upstream.servers().contains(&"10.96.0.10:53".parse().unwrap()));
}

const QUESTION: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x01b\x00\x00\x01\x00\x01";

/// An answer to `asked` with the address 10.0.0.`last`.
fn answer_to(asked: &[u8], last: u8) -> Vec<u8> {
    let mut answer = asked.to_vec();
    (answer[2], answer[3], answer[7]) = (0x81, 0x80, 1);
    answer.extend(*b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x0a\x00\x00");
    answer.push(last);
    answer
}

/// Returns the accepted answer of a server that handles the query with `server`.
fn asked_of(server: impl FnOnce(&UdpSocket, &[u8], SocketAddr) + Send + 'static) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let upstream = Upstream::new(Vec::new());
    *upstream.servers.borrow_mut() = (Some(Instant::now()), vec![socket.local_addr().unwrap()]);
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        server(&socket, &buffer[..length], from);
        // A second attempt gets no answer.
        drop(socket);
    });
    let told = smol::block_on(upstream.ask(QUESTION, &question(QUESTION).unwrap(), false));
    thread.join().unwrap();
    told
}

#[test]
fn s14_forged_answers_are_ignored() {
    let told = asked_of(|socket, asked, from| {
        // From another address or port, with another id, name or type, the query itself, and an empty datagram.
        let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
        stranger.send_to(&answer_to(asked, 1), from).unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap();
        port.send_to(&answer_to(asked, 2), from).unwrap();
        let mut id = answer_to(asked, 3);
        id[0] ^= 1;
        socket.send_to(&id, from).unwrap();
        let mut name = answer_to(asked, 4);
        name[13] = b'x';
        socket.send_to(&name, from).unwrap();
        let mut kind = answer_to(asked, 5);
        kind[18] = 28;
        socket.send_to(&kind, from).unwrap();
        socket.send_to(asked, from).unwrap();
        socket.send_to(b"", from).unwrap();
        socket.send_to(&answer_to(asked, 6), from).unwrap();
    });
    let told = told.unwrap();
    assert_eq!((&told[..2], told.last()), (&QUESTION[..2], Some(&6)));
}

#[test]
fn each_query_has_its_own_id_and_port() {
    let (sender, seen) = std::sync::mpsc::channel();
    for _ in 0..8 {
        let sender = sender.clone();
        let told = asked_of(move |socket, asked, from| {
            sender.send((asked[..2].to_vec(), from.port())).unwrap();
            socket.send_to(&answer_to(asked, 1), from).unwrap();
        });
        assert!(told.is_some());
    }
    let mut seen: Vec<(Vec<u8>, u16)> = seen.try_iter().collect();
    let ports: std::collections::BTreeSet<u16> = seen.iter().map(|(_, port)| *port).collect();
    seen.sort();
    seen.dedup_by(|one, other| one.0 == other.0);
    assert!(seen.len() > 6 && ports.len() > 2, "{seen:?} {ports:?}");
}

#[test]
fn servfail_is_not_accepted() {
    let told = asked_of(|socket, asked, from| {
        let mut failed = answer_to(asked, 1);
        failed[3] |= 2;
        socket.send_to(&failed, from).unwrap();
    });
    assert_eq!(told, None);
}
