//! Real bridges and links in a network namespace of the test's own.
#![allow(clippy::print_stderr)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::super::netlink::conntrack;
use super::pods::POD_LINK;
use super::*;
use crate::net::bandwidth::Bandwidth;
use crate::net::namespaces::{self, NamespaceMaker, NamespaceRequest, tests::isolate};
use crate::pod::ports::{HostPort, Protocol};

const POD: NamespaceRequest<'_> =
    NamespaceRequest { net: true, ipc: true, hostname: Some("pod"), sysctls: &[], first_id: None };

struct Node {
    temp: tempfile::TempDir,
    namespaces: NamespaceMaker,
    own: OwnNetwork,
    network: Network,
}

impl Node {
    fn new(bridge: &str, subnet: &str) -> Self {
        let subnets = subnet.split(',').map(|subnet| subnet.parse().unwrap()).collect();
        let settings = NetworkSettings { bridge: bridge.into(), subnets, neighbours: None };
        Self {
            temp: tempfile::tempdir().unwrap(),
            namespaces: NamespaceMaker::open().unwrap(),
            own: OwnNetwork::open().unwrap(),
            network: Network::new(settings).unwrap(),
        }
    }

    /// Bridge and rules, without host ports.
    fn ensure(&mut self) {
        assert_eq!(self.network.ensure().unwrap(), [""; 0]);
        self.firewall().unwrap();
    }

    /// Sets up the firewall as at the start, without host ports.
    fn firewall(&self) -> Result<(), NetError> {
        smol::block_on(self.network.firewall_at_start(&[]))
    }

    /// `ip` may be one address, or one of each family with a comma between.
    fn pod(&mut self, uid: &str, ip: &str) -> File {
        let made = self.namespaces.create(&self.temp.path().join(uid), &POD).unwrap();
        let netns = made.net.unwrap();
        let ips: Vec<IpAddr> = ip.split(',').map(|ip| ip.parse().unwrap()).collect();
        self.network.attach(uid, &netns, &ips, Bandwidth::default()).unwrap();
        File::open(netns).unwrap()
    }

    fn remove(&self, uid: &str) {
        namespaces::remove(&self.temp.path().join(uid)).unwrap();
    }

    fn listen(&self, netns: &File, address: &str) -> TcpListener {
        self.own.inside(netns, || TcpListener::bind(address)).unwrap().unwrap()
    }

    /// Same as [`Node::dial`], to another port than the listener's.
    fn dial_port(&self, netns: &File, listener: &TcpListener, to: &str) -> IpAddr {
        self.reach(netns, listener, to.parse().unwrap())
    }

    /// Connects from a namespace and returns the address under which the listener sees it.
    fn dial(&self, netns: &File, listener: &TcpListener, address: &str) -> IpAddr {
        let to = SocketAddr::new(address.parse().unwrap(), listener.local_addr().unwrap().port());
        self.reach(netns, listener, to)
    }

    fn reach(&self, netns: &File, listener: &TcpListener, to: SocketAddr) -> IpAddr {
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

fn remedy_of(node: &Node) -> Option<String> {
    smol::block_on(node.network.firewall_at_start(&[])).unwrap();
    let blocking = smol::block_on(firewall::forward::pass(node.network.nft(), node.network.settings()));
    let remedies: Vec<String> = blocking.iter().map(|one| one.remedy(&node.network.settings().bridge)).collect();
    (!remedies.is_empty()).then(|| remedies.join("; "))
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
    node.ensure();
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
    node.ensure();
    let pod = node.pod("a", "10.99.1.2");
    // The outside world: another namespace behind another bridge, without a route back to pods.
    let mut uplink = Node::new("uplink0", "192.168.77.0/24");
    uplink.network.ensure_bridge().map(|index| uplink.network.ensure_gateways(index)).unwrap().unwrap();
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

fn host_port(ip: Option<&str>, port: u16, to: &SocketAddr) -> Forward {
    let ip = ip.map(|ip| ip.parse().unwrap());
    Forward { port: HostPort { ip, protocol: Protocol::Tcp, port, container_port: to.port() }, to: to.ip() }
}

fn datagrams(mut forward: Forward) -> Forward {
    forward.port.protocol = Protocol::Udp;
    forward
}

/// From the node (its loopback and its own address), from a neighbour, from the pod itself and from beyond.
#[test]
fn a_host_port_leads_into_the_pod_from_everywhere() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24,fd99:1::/64");
    node.ensure();
    let mut uplink = Node::new("uplink0", "192.168.77.0/24");
    uplink.network.ensure_bridge().map(|index| uplink.network.ensure_gateways(index)).unwrap().unwrap();
    let outside = uplink.pod("outside", "192.168.77.9");
    link::loopback_up(&mut node.network.socket).unwrap();
    let (a, b) = (node.pod("a", "10.99.1.2,fd99:1::2"), node.pod("b", "10.99.1.3,fd99:1::3"));
    let host = File::open("/proc/thread-self/ns/net").unwrap();
    let listener = node.listen(&b, "[::]:0");
    let to = |ip: &str| SocketAddr::new(ip.parse().unwrap(), listener.local_addr().unwrap().port());
    let forwards = [
        host_port(Some("127.0.0.1"), 80, &to("10.99.1.3")),
        host_port(None, 81, &to("10.99.1.3")),
        host_port(None, 81, &to("fd99:1::3")),
        datagrams(host_port(None, 82, &to("10.99.1.3"))),
    ];
    smol::block_on(node.network.firewall(&forwards).apply()).unwrap();
    let seen = |ip: &str| format!("::ffff:{ip}").parse::<IpAddr>().unwrap();
    assert_eq!(node.dial_port(&host, &listener, "127.0.0.1:80"), seen("10.99.1.1"));
    assert_eq!(node.dial_port(&host, &listener, "127.0.0.1:81"), seen("10.99.1.1"));
    assert_eq!(node.dial_port(&host, &listener, "192.168.77.1:81"), seen("192.168.77.1"));
    assert_eq!(node.dial_port(&a, &listener, "192.168.77.1:81"), seen("10.99.1.1"));
    assert_eq!(node.dial_port(&b, &listener, "192.168.77.1:81"), seen("10.99.1.1"), "itself");
    assert_eq!(node.dial_port(&outside, &listener, "192.168.77.1:81"), seen("192.168.77.9"));
    assert_eq!(node.dial_port(&a, &listener, "[fd99:1::1]:81"), "fd99:1::1".parse::<IpAddr>().unwrap());
    let inbox = node.own.inside(&b, || UdpSocket::bind(to("10.99.1.3"))).unwrap().unwrap();
    inbox.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let outbox = node.own.inside(&outside, || UdpSocket::bind("192.168.77.9:0")).unwrap().unwrap();
    // A flow from before the rule, which the kernel continues to treat as before.
    smol::block_on(node.network.firewall(&forwards[..1]).apply()).unwrap();
    outbox.send_to(b"early", "192.168.77.1:82").unwrap();
    smol::block_on(node.network.firewall(&forwards).apply()).unwrap();
    assert_eq!(smol::block_on(conntrack::forget_udp(&[82])).unwrap(), 1);
    assert_eq!(smol::block_on(conntrack::forget_udp(&[82])).unwrap(), 0);
    // The refusal of the early one.
    let _ = outbox.send_to(b"x", "192.168.77.1:82");
    let _ = outbox.send_to(b"x", "192.168.77.1:82");
    assert_eq!(inbox.recv_from(&mut [0; 8]).unwrap().1, outbox.local_addr().unwrap());
    // Without forwards nothing of them is left.
    node.firewall().unwrap();
    let gone: SocketAddr = "192.168.77.1:81".parse().unwrap();
    assert!(TcpStream::connect_timeout(&gone, Duration::from_millis(300)).is_err());
    ["a", "b"].iter().for_each(|uid| node.remove(uid));
    uplink.remove("outside");
}

fn switch(path: &str) -> String {
    std::fs::read_to_string(Path::new("/proc/sys/net").join(path)).unwrap().trim().to_owned()
}

/// Makes a pod send packets for 127.0.0.1 out of its link, which its kernel would not do by default.
fn play_loopback(node: &Node, pod: &File) {
    let ip = |args: &str| {
        let run = || std::process::Command::new("ip").args(args.split(' ')).status();
        assert!(node.own.inside(pod, run).unwrap().unwrap().success(), "ip {args}");
    };
    let open = || std::fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1");
    node.own.inside(pod, open).unwrap().unwrap();
    ip("address flush dev lo");
    ip("route add 127.0.0.0/8 dev eth0 src 10.99.1.2");
}

/// CVE-2020-8558: whatever host ports there are, were, or could not be made.
#[test]
fn a_pod_never_reaches_the_nodes_loopback() {
    if !isolate() {
        return;
    }
    let localnet = "ipv4/conf/tbr0/route_localnet";
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.ensure();
    link::loopback_up(&mut node.network.socket).unwrap();
    let pod = node.pod("a", "10.99.1.2");
    play_loopback(&node, &pod);
    let secret = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = secret.local_addr().unwrap();
    let reaches = |node: &Node| {
        let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(400));
        node.own.inside(&pod, connect).unwrap().is_ok()
    };
    let forwards = [host_port(Some("127.0.0.1"), 80, &"10.99.1.2:80".parse().unwrap())];
    let apply = |node: &Node, forwards: &[Forward]| smol::block_on(node.network.firewall(forwards).apply());
    apply(&node, &forwards).unwrap();
    assert_eq!(switch(localnet), "1");
    assert!(!reaches(&node), "with a host port");

    // That the pod tries in earnest: without the guard it is through.
    let nft = |text: &str| assert!(std::process::Command::new("nft").arg(text).status().unwrap().success(), "{text}");
    nft("flush chain ip pods-tbr0 guard");
    assert!(reaches(&node), "nothing but the guard is in its way");

    // The last host port goes.
    apply(&node, &[]).unwrap();
    assert_eq!(switch(localnet), "0");
    assert!(!reaches(&node), "without host ports");
    std::fs::write(Path::new("/proc/sys/net").join(localnet), "1").unwrap();
    assert!(!reaches(&node), "somebody else has opened the way");

    // No rules can be made: the way is closed first.
    nft("delete table ip pods-tbr0");
    assert!(reaches(&node), "no guard");
    node.network.nft = PathBuf::from("/bin/false");
    assert!(apply(&node, &forwards).is_err());
    assert_eq!(switch(localnet), "0");
    assert!(!reaches(&node), "nft fails");
    // A host port of another address needs no way from the loopback.
    node.network.nft = PathBuf::from("nft");
    apply(&node, &[host_port(Some("192.168.77.1"), 80, &"10.99.1.2:80".parse().unwrap())]).unwrap();
    assert_eq!(switch(localnet), "0");
    node.remove("a");
}

/// A router advertisement: fd66::/64 is on this link, and I am a default router (RFC 4861, 4.2).
fn advertise(from: &File, node: &Node) {
    use nix::sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, setsockopt,
    };
    use nix::sys::socket::{socket, sockopt};
    let mut packet = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    packet.extend([3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    packet.extend("fd66::".parse::<Ipv6Addr>().unwrap().octets());
    let send = || {
        let mut links = Socket::open().unwrap();
        let eth0 = link::by_name(&mut links, POD_LINK).unwrap().unwrap().index;
        let raw = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::IcmpV6).unwrap();
        setsockopt(&raw, sockopt::Ipv6MulticastHops, &255).unwrap();
        let all = SockaddrIn6::from(std::net::SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, eth0));
        let until = Instant::now() + Duration::from_secs(5);
        // Its own address is not usable for a second or two.
        while let Err(error) = sendto(std::os::fd::AsRawFd::as_raw_fd(&raw), &packet, &all, MsgFlags::empty()) {
            assert!(Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    node.own.inside(from, send).unwrap();
}

/// Whether a link in this namespace has taken an address of the advertised prefix.
fn believes(link: u32, socket: &mut Socket) -> bool {
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        let all = address::list(socket).unwrap();
        if all.iter().any(|one| one.index == link && one.address.to_string().starts_with("fd66:")) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// CVE-2020-10749, of the node and of other pods; also on a bridge from before.
#[test]
fn router_advertisements_of_pods_are_ignored() {
    if !isolate() {
        return;
    }
    for subnets in ["10.99.1.0/24", "10.99.1.0/24,fd99:1::/64"] {
        let mut node = Node::new("tbr0", subnets);
        let mut own = Socket::open().unwrap();
        // As an earlier version left it.
        link::add_bridge(&mut own, "tbr0", [0x0a, 0x58, 10, 99, 1, 1], 1500).unwrap();
        let bridge = link::by_name(&mut own, "tbr0").unwrap().unwrap();
        link::set_up(&mut own, bridge.index).unwrap();
        node.ensure();
        let (rogue, victim) = (node.pod("rogue", "10.99.1.2"), node.pod("victim", "10.99.1.3"));
        let mut inside = node.own.inside(&victim, Socket::open).unwrap().unwrap();
        let eth0 = link::by_name(&mut inside, POD_LINK).unwrap().unwrap().index;
        advertise(&rogue, &node);
        assert!(!believes(bridge.index, &mut own), "{subnets}: the node");
        assert!(!believes(eth0, &mut inside), "{subnets}: another pod");
        for version in ["ipv4", "ipv6"] {
            assert_eq!(switch(&format!("{version}/conf/tbr0/accept_redirects")), "0", "{subnets}");
        }
        // That it tries in earnest: a link that listens believes it.
        let listen = || {
            for (name, value) in [("accept_ra", "2"), ("autoconf", "1")] {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/eth0/{name}"), value).unwrap();
            }
        };
        node.own.inside(&victim, listen).unwrap();
        advertise(&rogue, &node);
        assert!(believes(eth0, &mut inside), "{subnets}: it was heard");
        ["rogue", "victim"].iter().for_each(|uid| node.remove(uid));
        node.network.teardown().unwrap();
    }
}

/// Seconds to move 500 kB from `from` to a listener in `to`.
fn transfer(node: &Node, from: &File, to: &File, address: &str) -> f64 {
    let listener = node.listen(to, &format!("{address}:0"));
    let at = listener.local_addr().unwrap();
    let mut client = node.own.inside(from, || TcpStream::connect(at)).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let start = Instant::now();
    let reader = std::thread::spawn(move || io::copy(&mut server, &mut io::sink()).unwrap());
    client.write_all(&[0; 500_000]).unwrap();
    drop(client);
    assert_eq!(reader.join().unwrap(), 500_000);
    start.elapsed().as_secs_f64()
}

#[test]
fn a_pods_bandwidth_is_limited_in_both_directions() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.ensure();
    let slow = node.namespaces.create(&node.temp.path().join("slow"), &POD).unwrap().net.unwrap();
    let limits = Bandwidth { ingress: Some(8_000_000), egress: Some(8_000_000) };
    match node.network.attach("slow", &slow, &["10.99.1.2".parse().unwrap()], limits) {
        Err(NetError::NoTokenBucket) => return eprintln!("skipped: this kernel has no sch_tbf"),
        attached => attached.unwrap(),
    }
    let (slow, quick) = (File::open(slow).unwrap(), node.pod("quick", "10.99.1.3"));
    // Half a second at full rate, less what the bucket holds at the start.
    let (received, sent) = (transfer(&node, &quick, &slow, "10.99.1.2"), transfer(&node, &slow, &quick, "10.99.1.3"));
    assert!(received > 0.3 && sent > 0.3, "{received} {sent}");
    ["slow", "quick"].iter().for_each(|uid| node.remove(uid));
}

#[test]
fn a_forward_policy_of_drop_is_passed_or_named() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.ensure();
    let nft = |text: &str| std::process::Command::new("nft").arg(text).output().unwrap();
    let rules = || String::from_utf8(nft("list ruleset").stdout).unwrap();
    assert_eq!(remedy_of(&node), None);
    nft("add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }");
    let told = remedy_of(&node).unwrap();
    assert!(told.contains("nft insert rule ip filter FORWARD iifname tbr0 accept"), "{told}");
    // Docker comes, and is asked before all else.
    nft("add chain ip filter DOCKER-USER; insert rule ip filter FORWARD jump DOCKER-USER");
    assert_eq!(remedy_of(&node), None);
    assert_eq!(remedy_of(&node), None);
    // A firewall that is reloaded starts empty.
    nft("flush chain ip filter DOCKER-USER");
    assert_eq!(remedy_of(&node), None);
    nft("add table inet fw; add chain inet fw in { type filter hook input priority 0; policy drop; }");
    let told = remedy_of(&node).unwrap();
    assert!(
        told.contains("nft insert rule inet fw in iifname tbr0 meta l4proto { tcp, udp } th dport 53 accept"),
        "{told}"
    );
    assert!(nft("insert rule inet fw in iifname tbr0 meta l4proto { tcp, udp } th dport 53 accept").status.success());
    assert_eq!(remedy_of(&node), None);
    nft("delete table inet fw");
    assert_eq!(rules().matches("iifname \"tbr0\" counter").count(), 1, "{}", rules());
    node.network.teardown().unwrap();
    assert!(!rules().contains("tbr0"), "{}", rules());
}

#[test]
fn pods_have_both_families_at_once() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "fd99:1::/64,10.99.1.0/24");
    node.ensure();
    let (a, b) = (node.pod("a", "fd99:1::2,10.99.1.2"), node.pod("b", "fd99:1::3"));
    // No waiting: the address is not tested for duplicates.
    let listener = node.listen(&b, "[fd99:1::3]:0");
    assert_eq!(node.dial(&a, &listener, "fd99:1::3"), "fd99:1::2".parse::<IpAddr>().unwrap());
    let host = File::open("/proc/thread-self/ns/net").unwrap();
    assert_eq!(node.dial(&host, &listener, "fd99:1::3"), "fd99:1::1".parse::<IpAddr>().unwrap());
    let listener = node.listen(&a, "10.99.1.2:0");
    node.dial(&host, &listener, "10.99.1.2");
    ["a", "b"].iter().for_each(|uid| node.remove(uid));
}

#[test]
fn host_without_ipv6_gives_pods_ipv4() {
    if !isolate() {
        return;
    }
    std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
    let mut node = Node::new("tbr0", "10.99.1.0/24,fd99:1::/64");
    let warnings = node.network.ensure().unwrap();
    assert!(warnings[0].contains("fd99:1::/64") && warnings[0].contains("disable_ipv6"), "{warnings:?}");
    node.firewall().unwrap();
    let (a, b) = (node.pod("a", "10.99.1.2"), node.pod("b", "10.99.1.3"));
    let listener = node.listen(&b, "10.99.1.3:0");
    node.dial(&a, &listener, "10.99.1.3");
    let mut only = Node::new("tbr1", "fd99:1::/64");
    assert!(matches!(only.network.ensure(), Err(NetError::NoFamily { .. })));
    ["a", "b"].iter().for_each(|uid| node.remove(uid));
}

#[test]
fn pods_links_have_the_uplinks_mtu() {
    if !isolate() {
        return;
    }
    let mut uplink = Node::new("uplink0", "192.168.77.0/24");
    uplink.network.ensure_bridge().map(|index| uplink.network.ensure_gateways(index)).unwrap().unwrap();
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    let mut socket = Socket::open().unwrap();
    let index =
        uplink.network.bridge.or(link::by_name(&mut socket, "uplink0").unwrap().map(|link| link.index)).unwrap();
    node.ensure();
    link::set_mtu(&mut socket, index, 1400).unwrap();
    address::configure(&mut socket, index, &[("192.168.77.1".parse().unwrap(), "192.168.77.254".parse().unwrap())])
        .unwrap();
    let pod = node.pod("a", "10.99.1.2");
    let mut inside = node.own.inside(&pod, Socket::open).unwrap().unwrap();
    assert_eq!(link::by_name(&mut inside, POD_LINK).unwrap().unwrap().mtu, 1400);
    node.ensure();
    assert_eq!(link::by_name(&mut socket, "tbr0").unwrap().unwrap().mtu, 1400);
    node.remove("a");
}

#[test]
fn uplink_is_asked_for_its_mtu_once_for_pods_that_come_together() {
    if !isolate() {
        return;
    }
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.ensure();
    let mtu_of = |node: &mut Node, uid: &str, ip: &str| {
        let pod = node.pod(uid, ip);
        let mut inside = node.own.inside(&pod, Socket::open).unwrap().unwrap();
        link::by_name(&mut inside, POD_LINK).unwrap().unwrap().mtu
    };
    node.network.pods_mtu = Some((Instant::now() + Duration::from_secs(3600), 1333));
    assert_eq!(mtu_of(&mut node, "a", "10.99.1.2"), 1333);
    node.network.pods_mtu = Instant::now().checked_sub(MTU_AGE).map(|asked| (asked, 1333));
    assert_eq!(mtu_of(&mut node, "b", "10.99.1.3"), DEFAULT_MTU, "the answer is too old");
    ["a", "b"].iter().for_each(|uid| node.remove(uid));
}

#[test]
fn everything_converges_when_repeated_and_nothing_is_left() {
    if !isolate() {
        return;
    }
    let mut socket = Socket::open().unwrap();
    let before = link_count(&mut socket);
    let mut node = Node::new("tbr0", "10.99.1.0/24");
    node.ensure();
    node.ensure();
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
    moved.ensure();
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
    node.ensure();
    drop(node.pod("a", "10.99.1.2"));
    node.remove("a");
    let until = Instant::now() + Duration::from_secs(5);
    while !node.network.pod_links().unwrap().is_empty() {
        assert!(Instant::now() < until, "the link outlives its namespace");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn foreign_link_is_not_changed() {
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
    node.network.ensure().unwrap();
    assert!(matches!(node.firewall(), Err(NetError::Firewall(_))));
    // Pods from before run on; new ones are not let in, which is the node's to decide.
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
    let subnets = vec!["10.99.1.0/24".parse().unwrap()];
    let bad = NetworkSettings { bridge: "much-too-long-name".into(), subnets, neighbours: None };
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
    node.ensure();
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
        let ip = format!("10.99.1.{}", n + 2).parse().unwrap();
        node.network.attach(&n.to_string(), &dir(n).join("net"), &[ip], Bandwidth::default()).unwrap();
    });
    timed("etc files", &mut |n| {
        super::super::etc_files::write(&dir(n), &super::super::etc_files::EtcFiles::default()).unwrap()
    });
    timed("remove", &mut |n| namespaces::remove(&dir(n)).unwrap());
}
