//! The helper over real sockets, from the view of its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use super::server::{MOST_CONNECTIONS_OF_ONE, MOST_WAITING_OF_ONE};
use super::*;
use crate::dns::wire::Code;
use crate::dns::zone::{Cluster, Service, Zone};

fn cluster() -> Cluster {
    let web = Service {
        namespace: "shop".into(),
        name: "web".into(),
        ips: vec!["10.96.0.7".parse().unwrap()],
        ..Service::default()
    };
    Cluster { domain: "z".into(), services: vec![web], followed: vec!["shop".into()], ..Cluster::default() }
}

/// Runs a helper on loopback while `act` runs. All of 127.0.0.0/8 is the node itself.
fn with_helper<T: Send + 'static>(act: impl FnOnce(SocketAddr) -> T + Send + 'static) -> T {
    with_busy_helper(|_| (), act)
}

/// The same; calls `busy` with the server first, and keeps its result while `act` runs.
fn with_busy_helper<B, T: Send + 'static>(
    busy: impl FnOnce(&Server) -> B,
    act: impl FnOnce(SocketAddr) -> T + Send + 'static,
) -> T {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (datagrams, streams) = bind(port).unwrap();
    let at = port;
    let server = Rc::new(Server::new(vec![at.ip()], Vec::new()));
    *server.zone.borrow_mut() = Zone::new(cluster());
    let _busy = busy(&server);
    let tasks = Tasks::default();
    let datagrams = Rc::new(Async::new(datagrams).unwrap());
    tasks.spawn(serve_datagrams(Rc::clone(&server), tasks.clone(), datagrams)).detach();
    tasks.spawn(serve_streams(Rc::clone(&server), tasks.clone(), Async::new(streams).unwrap())).detach();
    smol::block_on(tasks.run(smol::unblock(move || act(at))))
}

fn packet(name: &str) -> Vec<u8> {
    let mut packet = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

fn asker(ip: &str) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

/// Returns the response code and the number of answers.
fn ask(socket: &UdpSocket, at: SocketAddr, packet: &[u8]) -> Option<(u8, u8)> {
    socket.send_to(packet, at).unwrap();
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).ok()?;
    (length >= 12).then(|| (buffer[3] & 0x0f, buffer[7]))
}

#[test]
fn s14_a_flood_of_one_pod_leaves_others_their_answers() {
    let (answered, slowest, sent) = with_helper(|at| {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let flood = {
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            std::thread::spawn(move || {
                let (socket, packet) = (asker("127.0.0.2"), packet("web.shop.svc.z"));
                while !stop.load(Ordering::Relaxed) {
                    // About 20,000 in a second.
                    for _ in 0..20 {
                        let _ = socket.send_to(&packet, at);
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        };
        let (socket, packet) = (asker("127.0.0.3"), packet("web.shop.svc.z"));
        let mut times = Vec::new();
        for _ in 0..200 {
            let since = Instant::now();
            if ask(&socket, at, &packet) == Some((0, 1)) {
                times.push(since.elapsed());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        times.sort();
        (times.len(), times[times.len() / 2], sent.load(Ordering::Relaxed))
    });
    log::info!("{answered} of 200 answered, half of them within {slowest:?}, beside {sent} questions of another pod");
    // Some may be lost on a loaded machine: a client repeats its query.
    assert!(answered >= 190, "{answered}");
    assert!(slowest < Duration::from_millis(50), "{slowest:?}");
}

#[test]
fn victim_of_forged_datagrams_is_told_to_use_tcp() {
    let victim: IpAddr = "127.0.0.2".parse().unwrap();
    // Forged datagrams take all places of the victim.
    let forged = |server: &Server| {
        let places: Vec<_> =
            (0..MOST_WAITING_OF_ONE).map(|_| server.waiting.datagrams.enter(victim).unwrap()).collect();
        assert!(server.waiting.tcp.enter(victim).is_some());
        places
    };
    with_busy_helper(forged, |at| {
        let socket = asker("127.0.0.2");
        socket.send_to(&packet("www.example.com"), at).unwrap();
        let mut told = [0; 512];
        let length = socket.recv(&mut told).unwrap();
        let advice = [&[0, 7, 0x83, 0x80, 0, 1, 0, 0, 0, 0, 0, 0], &packet("www.example.com")[12..]].concat();
        assert_eq!(told[..length], advice, "no error, truncated");
        assert_eq!(ask(&socket, at, &packet("web.shop.svc.z")), Some((0, 1)), "a local name needs no place");
    });
}

#[test]
fn malformed_queries_do_not_stop_the_helper() {
    with_helper(|at| {
        let socket = asker("127.0.0.2");
        let good = packet("web.shop.svc.z");
        let lie = |at: usize, byte: u8| {
            let mut packet = good.clone();
            packet[at] = byte;
            packet
        };
        let pointer = [&good[..12], b"\xc0\x0c\x00\x01\x00\x01"].concat();
        let forward = [&good[..12], b"\xc0\xff\x00\x01\x00\x01"].concat();
        let long = [&good[..12], &[63; 500][..]].concat();
        for bad in [lie(12, 63), lie(12, 64), lie(12, 255), lie(5, 0), lie(5, 2), pointer, forward, long] {
            assert_eq!(ask(&socket, at, &bad), Some((Code::FormatError as u8, 0)), "{bad:?}");
        }
        for cut in 0..12 {
            let told = ask(&socket, at, &good[..cut]);
            assert!(told.is_none_or(|(code, _)| code == Code::FormatError as u8), "{cut}: {told:?}");
        }
        assert_eq!(ask(&socket, at, &lie(2, 0x81)), None, "an answer is not a query");
        let random: Vec<u8> =
            (0..2_000_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
        random.chunks(97).for_each(|chunk| drop(socket.send_to(chunk, at)));
        let socket = asker("127.0.0.3");
        assert_eq!(ask(&socket, at, &good), Some((0, 1)));
        // A name of an unfollowed namespace fails while the bridge cannot be asked.
        assert_eq!(ask(&socket, at, &packet("web.far.svc.z")), Some((Code::ServerFailure as u8, 0)));
        assert_eq!(ask(&socket, at, &packet("none.shop.svc.z")), Some((Code::NoSuchName as u8, 0)));
    });
}

#[test]
fn slow_clients_do_not_block_others() {
    with_helper(|at| {
        let from = |ip: &str| {
            let socket = nix::sys::socket::socket(
                nix::sys::socket::AddressFamily::Inet,
                nix::sys::socket::SockType::Stream,
                nix::sys::socket::SockFlag::empty(),
                None,
            )
            .unwrap();
            let own: nix::sys::socket::SockaddrIn = format!("{ip}:0").parse().unwrap();
            nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &own).unwrap();
            let SocketAddr::V4(to) = at else { panic!("IPv4") };
            let to = nix::sys::socket::SockaddrIn::from(to);
            nix::sys::socket::connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &to).unwrap();
            let stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream
        };
        use std::io::{Read, Write};
        // Each sends one byte of a length, then nothing.
        let mut slow: Vec<TcpStream> = (0..100).map(|_| from("127.0.0.2")).collect();
        slow.iter_mut().for_each(|stream| drop(stream.write(&[0])));
        let question = packet("web.shop.svc.z");
        let length = u16::try_from(question.len()).unwrap().to_be_bytes();
        let mut stream = from("127.0.0.3");
        stream.write_all(&[&length[..], &question].concat()).unwrap();
        let mut told = [0; 2];
        stream.read_exact(&mut told).unwrap();
        assert!(u16::from_be_bytes(told) > 12);
        // Connections beyond the limit are closed.
        let sent_away = slow.iter_mut().map(|stream| {
            stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            !matches!(stream.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        });
        assert_eq!(sent_away.filter(|gone| *gone).count(), 100 - MOST_CONNECTIONS_OF_ONE);
    });
}
