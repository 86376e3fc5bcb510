//! A hostile pod, or a user who may only create Services, tries to get more rights. `docs/security.md` has the promises
//! and the limits.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sampan_tests::wait::patient;
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, get, until};
use serde_json::{Value, json};

use super::traffic::{inside, leads_somewhere, look_up, name_server, network, question};
use super::{address, answered_by, client, server, service};

/// Name server of the node in these tests: it never answers.
const SILENT: &str = "127.0.53.53";

fn zone(kubectl: &Kubectl, service: &str) -> String {
    format!("{service}.{}.svc.cluster.local", kubectl.namespace)
}

/// A node that forwards unknown names to this server.
fn quiet_node(cluster: &Cluster) -> EdgeNode {
    let mut node = EdgeNode::prepare(cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let file = cluster.folder().join("resolv.conf");
    std::fs::write(&file, format!("nameserver {SILENT}\n")).expect("written");
    let script = format!("mount --bind {} /etc/resolv.conf && exec \"$0\" \"$@\"", file.display());
    node.wrapper = ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned).into();
    node.start();
    node.wait_ready();
    node
}

/// A server on the host that answers with a word, at every address.
fn host_server() -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let (port, asked) = (listener.local_addr().expect("has one").port(), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            told.store(true, Relaxed);
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhost\n");
        }
    });
    (port, asked)
}

/// The answer that a pod gets from an address.
fn asked_from(network: &std::fs::File, at: SocketAddr) -> Result<String, String> {
    inside(Some(network), move || get(at)).join().expect("the client lives").map(|body| body.trim().to_owned())
}

fn answers(network: &std::fs::File, at: SocketAddr, wanted: &str) {
    until(Duration::from_secs(15), &format!("{at} is answered by {wanted}"), || match asked_from(network, at) {
        Ok(body) if body == wanted => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_pod_reaches_nothing_of_the_node_by_the_address_of_a_service() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostile-ports");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let ports = json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": 8080}]});
    kubectl.apply_all(&[service("web", "web", &ports), client("client", &on), server("a", &on, "web")]);
    ["client", "a"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let ip = address(kubectl, "web");
    answered_by(&node, "client", &format!("http://{ip}:80/"), &["a"]);
    let network = network(kubectl, "client");
    let (port, asked) = host_server();
    let begin = Instant::now();
    let said = asked_from(&network, format!("{ip}:{port}").parse().expect("an address"));
    assert!(said.as_ref().is_err_and(|why| why.contains("refused")), "{said:?}");
    assert!(begin.elapsed() < patient(Duration::from_secs(1)) && !asked.load(Relaxed));
    // Endpoints and external addresses cannot lead to loopback either: the API refuses them.
    let port = json!([{"port": port}]);
    let slice = |ip: &str| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": port,
            "metadata": {"name": "inner", "labels": {"kubernetes.io/service-name": "inner"}},
            "endpoints": [{"addresses": [ip]}]})
    };
    for ip in ["127.0.0.1", "169.254.169.254"] {
        let refused = kubectl.try_apply(&slice(ip).to_string());
        assert!(refused.is_err(), "{ip}: {refused:?}");
    }
    let outside = service("outside", "web", &json!({"externalIPs": ["127.0.0.1"]}));
    assert!(kubectl.try_apply(&outside.to_string()).is_err());
    let node_port = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}"]);
    assert!(TcpStream::connect(format!("127.0.0.1:{node_port}")).is_err(), "a node port on loopback");
}

#[test]
fn the_helper_takes_news_from_the_daemon_alone() {
    fn sockets(below: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a type");
            if kind.is_socket() && entry.file_name().to_string_lossy().contains("dns") {
                found.push(entry.path());
            } else if kind.is_dir() && !below.ends_with("containers") {
                sockets(&entry.path(), found);
            }
        }
    }
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostile-socket");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &node.name)]);
    kubectl.wait_ready("client");
    let helper = until(Duration::from_secs(10), "a helper runs", || node.dns_pid().ok_or_else(String::new));
    let socket = until(Duration::from_secs(10), "it has its socket", || {
        let mut found = Vec::new();
        sockets(&node.root().join("run"), &mut found);
        if let [socket] = &found[..] { Ok(socket.clone()) } else { Err(format!("{found:?}")) }
    });
    // Connecting requires write access: only root has it, not even the helper's own user.
    let meta = std::fs::metadata(&socket).expect("it is there");
    assert_eq!((meta.uid(), meta.mode() & 0o022), (0, 0), "{socket:?}");
    let status = std::fs::read_to_string(format!("/proc/{helper}/status")).expect("it runs");
    for line in
        ["Uid:\t65534\t65534\t65534\t65534", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"]
    {
        assert!(status.contains(line), "{line}: {status}");
    }
    // No name of it is in the pod's network or among its files.
    let seen = node.edge_ok(&["exec", "client", "--", "sh", "-c", "cat /proc/net/unix; ls /run"]);
    assert!(!seen.contains("dns"), "{seen}");
}

#[test]
fn s14_a_pod_that_floods_keeps_no_other_from_names() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostile-flood");
    let _silent = UdpSocket::bind((SILENT, 53)).expect("port 53 of loopback");
    let node = quiet_node(&cluster);
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &on), client("loud", &on)]);
    ["client", "loud"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let [calm, loud] = ["client", "loud"].map(|pod| network(kubectl, pod));
    let (at, name) = (name_server(&node, "client"), zone(kubectl, "web"));
    let known = move |name: String| {
        inside(Some(&calm), move || {
            // As a resolver does: lost questions are repeated.
            let once = |_| look_up(at, &name, patient(Duration::from_millis(500))).ok();
            let ask = |_| {
                std::thread::sleep(Duration::from_millis(5));
                let begin = Instant::now();
                (0..4).find_map(once).map(|_| begin.elapsed())
            };
            (0..100).map(ask).collect::<Vec<Option<Duration>>>()
        })
    };
    until(Duration::from_secs(15), "the name is known", || node.edge(&["exec", "client", "--", "nslookup", &name]));
    let stop = Arc::new(AtomicBool::new(false));
    // At most 64 questions of one pod about foreign names wait at a time; questions about cluster names are not
    // limited.
    for foreign in [true, false] {
        stop.store(false, Relaxed);
        let (told, of_cluster) = (Arc::clone(&stop), name.clone());
        let flood = inside(Some(&loud), move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            socket.connect((at, 53)).expect("an address");
            socket.set_nonblocking(true).expect("set");
            let (mut sent, mut refused) = (0u64, 0u64);
            let mut answer = [0; 512];
            while !told.load(Relaxed) {
                let asked = if foreign { format!("x{}.example.invalid", sent % 50_000) } else { of_cluster.clone() };
                let _ = socket.send(&question(&asked));
                sent += 1;
                while let Ok(length) = socket.recv(&mut answer) {
                    // Further ones get an answer that demands TCP (RFC 1035 4.1.1, TC), with which a pod cannot forge
                    // its address.
                    refused += u64::from(length > 3 && answer[2] & 0x02 != 0);
                }
            }
            (sent, refused)
        });
        std::thread::sleep(Duration::from_millis(500));
        let seen = known(name.clone()).join().expect("the client lives");
        stop.store(true, Relaxed);
        let (sent, refused) = flood.join().expect("the flood ends");
        let mut took: Vec<Duration> = seen.iter().flatten().copied().collect();
        took.sort_unstable();
        let median = took.get(took.len() / 2);
        let what = format!("{} of 100 answered, median {median:?}; {sent} sent, {refused} refused", took.len());
        assert!(took.len() >= 98, "foreign {foreign}: {what}");
        assert!(!foreign || refused > 0, "{what}");
    }
}

#[test]
fn names_are_for_pods_of_the_node_alone() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostile-source");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &node.name)]);
    let pod = kubectl.wait_ready("client")["status"]["podIP"].as_str().expect("has one").to_owned();
    let network = network(kubectl, "client");
    let (at, name) = (name_server(&node, "client"), zone(kubectl, "web"));
    let asked = name.clone();
    until(Duration::from_secs(15), "the name is known", || {
        let asked = asked.clone();
        inside(Some(&network), move || leads_somewhere(at, &asked)).join().expect("the client lives")
    });
    // A pod with NET_ADMIN sets an address, and the node even has the route back.
    let foreign: IpAddr = "198.18.53.9".parse().expect("an address");
    let route = Command::new("ip").args(["route", "get", &pod]).output().expect("ip starts");
    let route = String::from_utf8_lossy(&route.stdout).into_owned();
    let bridge = route.split("dev ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a bridge").to_owned();
    let ip = |args: &[&str]| Command::new("ip").args(args).status().is_ok_and(|status| status.success());
    let address = format!("{foreign}/32");
    let inner = format!("ip address add {address} dev eth0");
    inside(Some(&network), move || {
        let words: Vec<&str> = inner.split(' ').collect();
        assert!(Command::new(words[0]).args(&words[1..]).status().expect("ip starts").success());
    })
    .join()
    .expect("added");
    assert!(ip(&["route", "add", &address, "dev", &bridge]));
    let said = inside(Some(&network), move || {
        let socket = UdpSocket::bind((foreign, 0)).expect("its address");
        socket.connect((at, 53)).expect("an address");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("set");
        socket.send(&question(&name)).expect("sent");
        let over_tcp = TcpStream::connect_timeout(&(at, 53).into(), Duration::from_secs(1)).map(|_| ());
        (socket.recv(&mut [0; 512]), over_tcp)
    })
    .join()
    .expect("asked");
    assert!(ip(&["route", "delete", &address, "dev", &bridge]));
    assert!(said.0.is_err(), "{said:?}");
    assert!(said.1.is_ok(), "from its own address it may: {said:?}");
}

/// A user who may create Services may attract packets to arbitrary addresses, in Kubernetes (CVE-2020-8554) as here;
/// but not to other Services' own addresses or the node's name server.
#[test]
fn external_ips_take_no_address_of_services_or_name_servers() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostile-outside");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[
        service("web", "web", &json!({})),
        client("client", &on),
        server("a", &on, "web"),
        server("thief", &on, "thief"),
    ]);
    let host = kubectl.wait_ready("a")["status"]["hostIP"].as_str().expect("has one").to_owned();
    ["client", "thief"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let network = network(kubectl, "client");
    let (port, _) = host_server();
    let at: SocketAddr = format!("{host}:{port}").parse().expect("an address");
    let web: SocketAddr = format!("{}:80", address(kubectl, "web")).parse().expect("an address");
    answers(&network, web, "a");
    answers(&network, at, "host");

    let take =
        |name: &str, ip: String, ports: Value| service(name, "thief", &json!({"externalIPs": [ip], "ports": ports}));
    kubectl.apply_all(&[take("node", host.clone(), json!([{"port": port, "targetPort": 8080}]))]);
    answers(&network, at, "thief");
    let _ = kubectl.ok(&["delete", "service", "node"]);
    answers(&network, at, "host");

    let (server, name) = (name_server(&node, "client"), zone(kubectl, "web"));
    let dns = ["UDP", "TCP"]
        .map(|protocol| json!({"name": protocol.to_lowercase(), "port": 53, "protocol": protocol, "targetPort": 8080}));
    kubectl.apply_all(&[
        // Services with the first name and with the latest creation.
        take("aaa", web.ip().to_string(), json!([{"name": "http", "port": 80, "targetPort": 8080}])),
        take("names", server.to_string(), json!(dns)),
        take("last", host.clone(), json!([{"name": "mark", "port": port, "targetPort": 8080}])),
    ]);
    let mark = at;
    answers(&network, mark, "thief");
    let hold = || {
        for _ in 0..20 {
            let (asked, name) = (server, name.clone());
            assert_eq!(asked_from(&network, web), Ok("a".to_owned()));
            let named = inside(Some(&network), move || leads_somewhere(asked, &name)).join().expect("lives");
            assert_eq!(named, Ok(()));
        }
    };
    hold();
    // Also after everything was created again.
    node.kill();
    let nft = |words: &str| {
        let output = Command::new("nft").args(words.split(' ')).output().expect("nft starts");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let mut deleted = Vec::new();
    for table in nft("list tables ip").lines().filter(|table| table.contains("services-")) {
        if nft(&format!("list {table}")).contains(&format!("{}/web/", kubectl.namespace)) {
            deleted.push((table.to_owned(), nft(&format!("delete {table}"))));
        }
    }
    assert!(deleted.len() == 1 && super::tables(&node).is_empty(), "{deleted:?}");
    node.start();
    answers(&network, mark, "thief");
    hold();
}

/// A Service with too many ports is refused, with its name in the message; others work, and names resolve.
#[test]
fn a_service_of_too_many_ports_is_left_out_alone() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostile-many");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let ports: Vec<Value> = (1..=400).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    kubectl.apply_all(&[
        service("huge", "web", &json!({ "ports": ports })),
        service("web", "web", &json!({})),
        client("client", &on),
        server("a", &on, "web"),
    ]);
    ["client", "a"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let at = |name: &str| -> SocketAddr { format!("{}:80", address(kubectl, name)).parse().expect("an address") };
    let network = network(kubectl, "client");
    answers(&network, at("web"), "a");
    let refused = asked_from(&network, at("huge"));
    assert!(refused.as_ref().is_err_and(|why| why.contains("refused")), "{refused:?}");
    let huge = format!("{}/huge", kubectl.namespace);
    until(Duration::from_secs(30), "the event names it", || {
        let events = kubectl.ok(&["get", "events", "-A", "-o", "json"]);
        if events.contains("ServicesLeftOut") && events.contains(&huge) { Ok(()) } else { Err(events) }
    });
    let (server, name) = (name_server(&node, "client"), zone(kubectl, "huge"));
    assert_eq!(inside(Some(&network), move || leads_somewhere(server, &name)).join().expect("lives"), Ok(()));
    // A change that makes it small enough is accepted.
    kubectl.apply_all(&[service("huge", "web", &json!({"ports": [{"name": "p80", "port": 80, "targetPort": 8080}]}))]);
    answers(&network, at("huge"), "a");
}

#[test]
fn s08_ten_thousand_flows_of_a_pod_keep_nobody_from_the_next_endpoint() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostile-flows");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let ports = json!({"ports": [{"name": "echo", "port": 80, "targetPort": 8080, "protocol": "UDP"},
        {"name": "http", "port": 80, "targetPort": 8080}]});
    kubectl.apply_all(&[
        service("web", "web", &ports),
        client("client", &on),
        server("a", &on, "web"),
        server("b", &on, "web"),
    ]);
    ["client", "a", "b"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let at: SocketAddr = format!("{}:80", address(kubectl, "web")).parse().expect("an address");
    answered_by(&node, "client", &format!("http://{at}/"), &["a", "b"]);
    let inside_of = network(kubectl, "client");
    let sent = inside(Some(&inside_of), move || {
        (0..10_000).filter(|_| UdpSocket::bind("0.0.0.0:0").is_ok_and(|one| one.send_to(b"x", at).is_ok())).count()
    });
    assert!(sent.join().expect("sent") > 9_900);
    let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").expect("a count");
    assert!(count.trim().parse::<u32>().is_ok_and(|count| count > 5_000), "{count}");
    node.edge_ok(&["exec", "b", "--", "rm", "/tmp/ready"]);
    answered_by(&node, "client", &format!("http://{at}/"), &["a"]);
}
