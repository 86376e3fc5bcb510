//! The rules of the DNS specification, one by one.

use super::*;
use crate::dns::wire::{self, A, AAAA, CNAME, LONGEST, SHORTEST, SRV, TXT};

fn port(name: &str, protocol: &str, port: u16) -> Port {
    Port { name: name.into(), protocol: protocol.into(), port }
}

fn endpoint(ip: &str, hostname: Option<&str>) -> Endpoint {
    let ports = vec![port("http", "tcp", 8080)];
    Endpoint { ip: ip.parse().unwrap(), hostname: hostname.map(str::to_owned), ports }
}

fn zone() -> Zone {
    zone_following(&["shop", "none", "other"])
}

fn zone_following(followed: &[&str]) -> Zone {
    let service = |name: &str, ips: &[&str]| Service {
        namespace: "shop".into(),
        name: name.into(),
        ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        ports: vec![port("http", "tcp", 80), port("dns", "udp", 53)],
        ..Service::default()
    };
    let external = |name: &str, to: &str| Service { external_name: Some(to.into()), ..service(name, &[]) };
    let heads = vec![endpoint("10.0.0.2", Some("db-0")), endpoint("10.0.0.3", None), endpoint("fd00::", None)];
    let without_ports = Endpoint { ports: Vec::new(), ..endpoint("10.0.0.5", None) };
    Zone::new(Cluster {
        domain: "cluster.local".into(),
        listen: vec!["10.85.0.1".parse().unwrap()],
        services: vec![
            service("web", &["10.96.0.7", "fd00::7"]),
            Service { endpoints: heads, ..service("db", &[]) },
            service("empty", &[]),
            Service {
                endpoints: vec![endpoint("10.0.0.4", None)],
                ports: vec![port("", "tcp", 80)],
                ..service("v4", &["10.96.0.8"])
            },
            Service { endpoints: vec![without_ports], ports: Vec::new(), ..service("bare", &[]) },
            external("out", "example.com."),
            external("in", "web.shop.svc.cluster.local"),
            external("loop", "loop.shop.svc.cluster.local"),
            external("far", "web.far.svc.cluster.local"),
        ],
        pods: vec![("10.0.0.9".parse().unwrap(), "shop".into())],
        followed: followed.iter().map(|name| (*name).to_owned()).collect(),
        interests: vec!["other".into()],
        online: true,
        ..Cluster::default()
    })
}

/// Returns the answer as text: the code, then the records.
fn ask(name: &str, kind: u16) -> String {
    let word = |record: &Record| match &record.data {
        Data::Address(ip) => ip.to_string(),
        Data::Name(name) => format!("alias {name}"),
        Data::Server(name) => format!("server {name}"),
        Data::Pointer(name) => name.clone(),
        Data::Text(text) => text.clone(),
        Data::Service { weight, port, target } => format!("{weight} {port} {target}"),
        Data::Authority => "authority".into(),
    };
    match zone().answer(name, kind, LONGEST) {
        Answer::Known(code, records, _) => {
            let words: Vec<String> = records.iter().map(word).collect();
            format!("{code:?} {}", words.join(", ")).trim_end().to_owned()
        }
        Answer::Alias(record, target) => format!("{} at {target}", word(&record)),
        Answer::Foreign => "foreign".into(),
        Answer::Unknown(namespace) => format!("unknown {namespace}"),
    }
}

#[test]
fn s14_unfollowed_namespace_is_not_denied() {
    for name in ["web.far.svc.cluster.local", "_http._tcp.web.far.svc.cluster.local", "far.svc.cluster.local"] {
        assert_eq!(ask(name, A), "unknown far", "{name}");
    }
    assert_eq!(ask("far.shop.svc.cluster.local", A), "unknown far", "where an alias leads");
    // This cannot be the name of a namespace.
    assert_eq!(ask("web.a_b.svc.cluster.local", A), "NoSuchName");
    let site = zone_following(&[""]);
    assert_eq!(site.answer("web.far.svc.cluster.local", A, LONGEST), absent());
    let interest = |name: &str| zone().interest(name).map(str::to_owned);
    assert_eq!(interest("web.other.svc.cluster.local").as_deref(), Some("other"));
    assert_eq!(interest("web.shop.svc.cluster.local"), None);
    assert_eq!(interest("svc.cluster.local"), None);
}

#[test]
fn s13_service_has_its_addresses_by_family() {
    assert_eq!(ask("web.shop.svc.cluster.local", A), "NoError 10.96.0.7");
    assert_eq!(ask("web.shop.svc.cluster.local", AAAA), "NoError fd00::7");
    assert_eq!(ask("web.shop.svc.cluster.local", TXT), "NoError");
    assert_eq!(ask("none.shop.svc.cluster.local", A), "NoSuchName");
    assert_eq!(ask("web.none.svc.cluster.local", A), "NoSuchName");
    assert_eq!(ask("a.b.c.web.shop.svc.cluster.local", A), "NoSuchName");
}

#[test]
fn s13_headless_service_has_addresses_of_its_endpoints() {
    assert_eq!(ask("db.shop.svc.cluster.local", A), "NoError 10.0.0.2, 10.0.0.3");
    assert_eq!(ask("db-0.db.shop.svc.cluster.local", A), "NoError 10.0.0.2");
    assert_eq!(ask("10-0-0-3.db.shop.svc.cluster.local", A), "NoError 10.0.0.3");
    assert_eq!(ask("fd00--0.db.shop.svc.cluster.local", AAAA), "NoError fd00::");
    assert_eq!(ask("10-0-0-2.db.shop.svc.cluster.local", A), "NoSuchName");
    assert_eq!(ask("empty.shop.svc.cluster.local", A), "NoSuchName");
}

#[test]
fn s13_named_ports_have_srv_records() {
    let web = "NoError 100 80 web.shop.svc.cluster.local";
    assert_eq!(ask("_http._tcp.web.shop.svc.cluster.local", SRV), web);
    assert_eq!(ask("_http._udp.web.shop.svc.cluster.local", SRV), "NoSuchName");
    assert_eq!(ask("_http._tcp.web.shop.svc.cluster.local", A), "NoError");
    let heads = "NoError 33 8080 db-0.db.shop.svc.cluster.local, 33 8080 10-0-0-3.db.shop.svc.cluster.local, \
        33 8080 fd00--0.db.shop.svc.cluster.local";
    assert_eq!(ask("_http._tcp.db.shop.svc.cluster.local", SRV), heads);
    assert_eq!(ask("db.shop.svc.cluster.local", SRV), heads);
    let both = "NoError 50 80 web.shop.svc.cluster.local, 50 53 web.shop.svc.cluster.local";
    assert_eq!(ask("web.shop.svc.cluster.local", SRV), both);
}

#[test]
fn s13_query_of_another_type_is_answered_empty() {
    assert_eq!(ask("v4.shop.svc.cluster.local", A), "NoError 10.96.0.8");
    assert_eq!(ask("v4.shop.svc.cluster.local", AAAA), "NoError");
    assert_eq!(ask("10-0-0-4.v4.shop.svc.cluster.local", A), "NoError 10.0.0.4", "below any Service");
    assert_eq!(ask("dns-version.cluster.local", A), "NoError");
    assert_eq!(ask("10-0-0-9.shop.pod.cluster.local", AAAA), "NoError");
    assert_eq!(ask("out.shop.svc.cluster.local", TXT), "NoError");
}

#[test]
fn s13_unnamed_port_does_not_have_a_name_of_its_own() {
    assert_eq!(ask("_._tcp.v4.shop.svc.cluster.local", SRV), "NoSuchName");
    assert_eq!(ask("v4.shop.svc.cluster.local", SRV), "NoError 100 80 v4.shop.svc.cluster.local");
    assert_eq!(ask("bare.shop.svc.cluster.local", A), "NoError 10.0.0.5");
    assert_eq!(ask("bare.shop.svc.cluster.local", SRV), "NoError");
    assert_eq!(ask("empty.shop.svc.cluster.local", SRV), "NoSuchName");
    assert_eq!(ask("http._tcp.web.shop.svc.cluster.local", SRV), "NoSuchName");
    assert_eq!(ask("_http._tcp.db-0.db.shop.svc.cluster.local", SRV), "NoSuchName");
}

#[test]
fn s13_srv_answer_includes_addresses_of_targets() {
    let Answer::Known(_, _, more) = zone().answer("_http._tcp.db.shop.svc.cluster.local", SRV, LONGEST) else {
        panic!("it is known")
    };
    let more: Vec<String> = more.iter().map(|record| format!("{} {:?}", record.name, record.data)).collect();
    assert_eq!(more.len(), 3, "{more:?}");
    assert!(more.contains(&"db-0.db.shop.svc.cluster.local Address(10.0.0.2)".to_owned()), "{more:?}");
}

#[test]
fn s13_zone_has_soa_and_ns_records() {
    assert_eq!(ask("cluster.local", wire::SOA), "NoError authority");
    assert_eq!(ask("cluster.local", wire::NS), "NoError server ns.dns.cluster.local");
    assert_eq!(ask("ns.dns.cluster.local", A), "NoError 10.85.0.1");
    assert_eq!(ask("web.shop.svc.cluster.local", wire::SOA), "NoError");
}

#[test]
fn s13_external_names_are_aliases_without_loops() {
    assert_eq!(ask("out.shop.svc.cluster.local", A), "alias example.com at example.com");
    assert_eq!(ask("out.shop.svc.cluster.local", CNAME), "NoError alias example.com");
    assert_eq!(ask("in.shop.svc.cluster.local", A), "NoError alias web.shop.svc.cluster.local, 10.96.0.7");
    assert_eq!(ask("loop.shop.svc.cluster.local", A), "NoError alias loop.shop.svc.cluster.local");
    assert_eq!(ask("x.out.shop.svc.cluster.local", A), "NoSuchName");
}

#[test]
fn s13_addresses_have_pointers() {
    assert_eq!(ask("7.0.96.10.in-addr.arpa", PTR), "NoError web.shop.svc.cluster.local");
    assert_eq!(ask("2.0.0.10.in-addr.arpa", PTR), "NoError db-0.db.shop.svc.cluster.local");
    assert_eq!(ask("3.0.0.10.in-addr.arpa", PTR), "NoError 10-0-0-3.db.shop.svc.cluster.local");
    let v6 = "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa";
    assert_eq!(ask(v6, PTR), "NoError web.shop.svc.cluster.local");
    assert_eq!(ask("8.8.8.8.in-addr.arpa", PTR), "foreign");
}

#[test]
fn s13_only_pods_of_the_node_have_names() {
    assert_eq!(ask("10-0-0-9.shop.pod.cluster.local", A), "NoError 10.0.0.9");
    assert_eq!(ask("10-0-0-8.shop.pod.cluster.local", A), "NoSuchName");
    assert_eq!(ask("10-0-0-9.other.pod.cluster.local", A), "NoSuchName");
}

#[test]
fn s13_intermediate_names_exist_without_records() {
    for name in ["cluster.local", "svc.cluster.local", "shop.svc.cluster.local", "pod.cluster.local"] {
        assert_eq!(ask(name, A), "NoError", "{name}");
    }
    assert_eq!(ask("none.svc.cluster.local", A), "NoSuchName");
    assert_eq!(ask("dns-version.cluster.local", TXT), "NoError 1.1.0");
}

#[test]
fn names_outside_the_cluster_are_foreign() {
    for name in ["example.com", "notcluster.local", "local", "", "1.2.3.in-addr.arpa.example.com"] {
        assert_eq!(ask(name, A), "foreign", "{name}");
    }
    assert_eq!(Zone::default().answer("example.com", A, LONGEST), Answer::Foreign);
}

#[test]
fn long_answer_is_limited_to_the_message() {
    let ports = |count: u16| -> Vec<Port> {
        (0..count).map(|port| Port { name: format!("p{port}"), protocol: "tcp".into(), port }).collect()
    };
    let endpoint = |n: u32| Endpoint { ip: Ipv4Addr::from(n).into(), hostname: None, ports: ports(100) };
    let service = |name: &str, ips: Vec<IpAddr>| Service {
        namespace: "shop".into(),
        name: name.into(),
        ips,
        external_name: None,
        ports: ports(5000),
        endpoints: (0..5000).map(endpoint).collect(),
    };
    let services = vec![service("all", Vec::new()), service("one", vec!["10.96.0.1".parse().unwrap()])];
    let big = Zone::new(Cluster { domain: "z".into(), services, ..Cluster::default() });
    for (room, most) in [(512, 40), (LONGEST, 4097)] {
        for (name, kind) in [("all.shop.svc.z", SRV), ("one.shop.svc.z", SRV), ("all.shop.svc.z", A)] {
            let Answer::Known(Code::NoError, records, _) = big.answer(name, kind, room) else { panic!("{name}") };
            let least: usize = records
                .iter()
                .map(|record| match &record.data {
                    Data::Service { target, .. } => 18 + target.len(),
                    _ => SHORTEST,
                })
                .sum();
            assert!(records.len() <= most && least > room, "{name} {kind}: {} in {room} bytes", records.len());
        }
    }
}

/// Number of records of an answer; `None` if the name does not exist here.
fn records(zone: &Zone, name: &str, kind: u16) -> Option<usize> {
    match zone.answer(name, kind, LONGEST) {
        Answer::Known(Code::NoError, records, _) => Some(records.len()),
        _ => None,
    }
}

#[test]
fn partial_message_changes_only_what_it_names() {
    let mut zone = zone();
    let moved = Service {
        namespace: "shop".into(),
        name: "web".into(),
        ips: vec!["10.96.0.70".parse().unwrap()],
        ..Service::default()
    };
    zone.take(Cluster {
        domain: "cluster.local".into(),
        partial: true,
        services: vec![moved],
        gone: vec![("shop".into(), "v4".into()), ("none".into(), "never".into())],
        pods: vec![("10.0.0.10".parse().unwrap(), "batch".into())],
        followed: vec!["shop".into()],
        ..Cluster::default()
    });
    let ask = |name: &str, kind| records(&zone, name, kind);
    assert_eq!(ask("web.shop.svc.cluster.local", A), Some(1));
    assert_eq!(ask("70.0.96.10.in-addr.arpa", PTR), Some(1));
    assert_eq!(ask("7.0.96.10.in-addr.arpa", PTR), None, "its old address");
    assert_eq!(ask("v4.shop.svc.cluster.local", A), None, "it is gone");
    assert_eq!(ask("8.0.96.10.in-addr.arpa", PTR), None);
    assert_eq!(ask("db.shop.svc.cluster.local", A), Some(2), "it was not sent again");
    assert_eq!(ask("2.0.0.10.in-addr.arpa", PTR), Some(1));
    assert_eq!(ask("batch.svc.cluster.local", A), Some(0), "there is a pod in it");
    assert!(zone.is_pod("10.0.0.10".parse().unwrap()) && !zone.is_pod("10.0.0.9".parse().unwrap()));
}
