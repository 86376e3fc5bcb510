//! Real bridges and links in a network namespace of the test's own.
#![allow(clippy::print_stderr)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::net::namespaces::{self, NamespaceMaker, NamespaceRequest, tests::isolate};

const POD: NamespaceRequest<'_> = NamespaceRequest { net: true, ipc: true, hostname: Some("pod"), sysctls: &[] };

struct Node {
    temp: tempfile::TempDir,
    namespaces: NamespaceMaker,
    own: OwnNetwork,
    network: Network,
}

impl Node {
    fn new(bridge: &str, subnet: &str) -> Self {
        let settings = NetworkSettings { bridge: bridge.into(), subnet: subnet.parse().unwrap(), mtu: 1500 };
        Self {
            temp: tempfile::tempdir().unwrap(),
            namespaces: NamespaceMaker::open().unwrap(),
            own: OwnNetwork::open().unwrap(),
            network: Network::new(settings).unwrap(),
        }
    }

    fn pod(&mut self, uid: &str, ip: &str) -> File {
        let made = self.namespaces.create(&self.temp.path().join(uid), &POD).unwrap();
        let netns = made.net.unwrap();
        self.network.attach(uid, &netns, ip.parse().unwrap()).unwrap();
        File::open(netns).unwrap()
    }

    fn remove(&self, uid: &str) {
        namespaces::remove(&self.temp.path().join(uid)).unwrap();
    }

    fn listen(&self, netns: &File, address: &str) -> TcpListener {
        self.own.inside(netns, || TcpListener::bind(address)).unwrap().unwrap()
    }

    /// Connects from a namespace and returns the address under which the listener sees it.
    fn dial(&self, netns: &File, listener: &TcpListener, address: &str) -> IpAddr {
        let to: SocketAddr = format!("{address}:{}", listener.local_addr().unwrap().port()).parse().unwrap();
        let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(5));
        let mut client = self.own.inside(netns, connect).unwrap().unwrap();
        let (mut server, from) = listener.accept().unwrap();
        server.write_all(b"hello").unwrap();
        let mut said = [0; 5];
        client.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hello");
        from.ip()
    }
}

fn link_count(socket: &mut Socket) -> usize {
    let mut count = 0;
    socket
        .query(super::super::netlink::message::Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16]), |_| {
            count += 1;
        })
        .unwrap();
    count
}

#[test]
fn pods_reach_each_other_the_node_and_themselves() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.network.ensure().unwrap();
    let (a, b) = (node.pod("a", "10.99.1.2"), node.pod("b", "10.99.1.3"));
    let listener = node.listen(&b, "10.99.1.3:0");
    assert_eq!(node.dial(&a, &listener, "10.99.1.3"), "10.99.1.2".parse::<IpAddr>().unwrap());
    assert_eq!(node.dial(&b, &listener, "10.99.1.3"), "10.99.1.3".parse::<IpAddr>().unwrap());
    let host = File::open("/proc/thread-self/ns/net").unwrap();
    assert_eq!(node.dial(&host, &listener, "10.99.1.3"), "10.99.1.1".parse::<IpAddr>().unwrap());
    let listener = node.listen(&host, "10.99.1.1:0");
    assert_eq!(node.dial(&a, &listener, "10.99.1.1"), "10.99.1.2".parse::<IpAddr>().unwrap());
    node.remove("a");
    node.remove("b");
}

#[test]
fn traffic_beyond_the_node_carries_the_nodes_address() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.network.ensure().unwrap();
    let pod = node.pod("a", "10.99.1.2");
    // The outside world: another namespace behind another bridge, without a route back to pods.
    let mut uplink = Node::new("uplink0", "192.168.77.0/24");
    uplink.network.ensure_bridge().map(|index| uplink.network.ensure_gateway(index)).unwrap().unwrap();
    let outside = uplink.pod("outside", "192.168.77.9");
    let mut socket = uplink.own.inside(&outside, Socket::open).unwrap().unwrap();
    let index = link::by_name(&mut socket, POD_LINK).unwrap().unwrap().index;
    address::delete(
        &mut socket,
        &address::LinkAddress { index, address: "192.168.77.9".parse().unwrap(), prefix: 24, global: true },
    )
    .unwrap();
    address::add(&mut socket, index, "192.168.77.9".parse().unwrap(), 24).unwrap();
    let listener = node.listen(&outside, "192.168.77.9:0");
    assert_eq!(node.dial(&pod, &listener, "192.168.77.9"), "192.168.77.1".parse::<IpAddr>().unwrap());
    node.network.teardown().unwrap();
    let closed = listener.local_addr().unwrap();
    let unreachable =
        node.own.inside(&pod, || TcpStream::connect_timeout(&closed, Duration::from_millis(200))).unwrap();
    assert!(unreachable.is_err());
    node.remove("a");
    uplink.remove("outside");
}

#[test]
fn everything_converges_when_repeated_and_nothing_is_left() {
    if !isolate() {
        return;
    }
    let mut socket = Socket::open().unwrap();
    let before = link_count(&mut socket);
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.network.ensure().unwrap();
    node.network.ensure().unwrap();
    // The same pod attached again: the second pair replaces the first, as after a crash between two steps.
    let first = node.pod("a", "10.99.1.2");
    let again = node.pod("a", "10.99.1.7");
    drop(first);
    let listener = node.listen(&again, "10.99.1.7:0");
    let host = File::open("/proc/thread-self/ns/net").unwrap();
    node.dial(&host, &listener, "10.99.1.7");
    let _stray = node.pod("gone", "10.99.1.8");
    assert_eq!(node.network.cleanup(&BTreeSet::from(["a".to_string()])).unwrap(), 1);
    node.dial(&host, &listener, "10.99.1.7");

    // A restart with another subnet takes the old gateway away.
    let mut moved = Node::new("tbr0", "10.99.2.0/24");
    moved.network.ensure().unwrap();
    let index = moved.network.bridge.unwrap();
    let addresses = address::list(&mut socket).unwrap();
    let ours: Vec<_> = addresses.iter().filter(|a| a.index == index && a.address.is_ipv4()).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!((ours[0].address, ours[0].prefix), ("10.99.2.1".parse().unwrap(), 24));

    node.remove("a");
    node.remove("gone");
    node.network.teardown().unwrap();
    node.network.teardown().unwrap();
    assert_eq!(link_count(&mut socket), before);
}

#[test]
fn a_pods_link_goes_with_its_namespace() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.network.ensure().unwrap();
    drop(node.pod("a", "10.99.1.2"));
    node.network.detach("a").unwrap();
    node.remove("a");
    let until = Instant::now() + Duration::from_secs(5);
    while !node.network.pod_links().unwrap().is_empty() {
        assert!(Instant::now() < until, "the link outlives its namespace");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_link_that_is_no_bridge_is_left_alone() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("lo", "10.99.1.0/24");
    assert!(matches!(node.network.ensure(), Err(NetError::NotABridge { .. })));
    let _ = node.network.teardown();
    assert!(link::by_name(&mut node.network.socket, "lo").unwrap().is_some());
}

#[test]
fn without_nft_pods_still_reach_each_other() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.network.nft = PathBuf::from("/nowhere/nft");
    assert!(matches!(node.network.ensure(), Err(NetError::Firewall(_))));
    let (a, b) = (node.pod("a", "10.99.1.2"), node.pod("b", "10.99.1.3"));
    let listener = node.listen(&b, "10.99.1.3:0");
    node.dial(&a, &listener, "10.99.1.3");
    node.remove("a");
    node.remove("b");
}

#[test]
fn names_differ_by_node_and_fit() {
    assert_eq!(link_name("b0", "u").len(), NAME_LIMIT);
    assert_ne!(link_name("b0", "u"), link_name("b1", "u"));
    let bad =
        NetworkSettings { bridge: "much-too-long-name".into(), subnet: "10.99.1.0/24".parse().unwrap(), mtu: 1500 };
    assert!(matches!(Network::new(bad), Err(NetError::BridgeName { .. })));
}

/// `cargo test -p edge-runtime --profile fast net::bridge::tests::fifty -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn fifty_pods_cost() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.network.ensure().unwrap();
    let cpu = || {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD).unwrap();
        Duration::from_micros(
            [usage.user_time(), usage.system_time()]
                .iter()
                .map(|time| u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap())
                .sum(),
        )
    };
    let timed = |what: &str, work: &mut dyn FnMut(u32)| {
        let (wall, used) = (Instant::now(), cpu());
        (0..50).for_each(work);
        eprintln!("{what}: {:?} wall, {:?} cpu per pod", wall.elapsed() / 50, (cpu() - used) / 50);
    };
    let dir = |n: u32| node.temp.path().join(n.to_string());
    timed("namespaces", &mut |n| drop(node.namespaces.create(&dir(n), &POD).unwrap()));
    timed("attach", &mut |n| {
        let ip = Ipv4Addr::from(u32::from(node.network.settings.subnet.gateway()) + 1 + n);
        node.network.attach(&n.to_string(), &dir(n).join("net"), ip).unwrap();
    });
    timed("etc files", &mut |n| {
        super::super::etc_files::write(&dir(n), &super::super::etc_files::EtcFiles::default()).unwrap()
    });
    timed("remove", &mut |n| namespaces::remove(&dir(n)).unwrap());
}
