//! Policies as text of nft, and what must not be in it.

use serde_json::{Value, json};

use super::super::bounds::POLICIES_OF_A_NAMESPACE;
use super::super::peers::Link;
use super::super::view::Peers;
use super::*;

fn pod(namespace: &str, app: &str, ip: &str) -> LocalPod {
    LocalPod {
        namespace: namespace.into(),
        labels: [("app".to_owned(), app.to_owned())].into(),
        ips: ip.split(' ').map(|ip| ip.parse().unwrap()).collect(),
        ports: vec![("http".into(), Protocol::Tcp, 8080)],
        link: Some(Link {
            name: format!("veth{}", ip.split(['.', ':', ' ']).next_back().unwrap()),
            mac: [2, 0, 0, 0, 0, ip.as_bytes()[ip.len() - 1]],
        }),
    }
}

struct Site {
    policies: BTreeMap<Name, Policy>,
    others: BTreeMap<Name, Peers>,
    pods: Vec<LocalPod>,
    subnets: Vec<Subnet>,
}

impl Site {
    /// Three pods: `web` and `db` of `shop`, `web` of `other`.
    fn new() -> Self {
        let pods =
            vec![pod("shop", "web", "10.85.0.2"), pod("shop", "db", "10.85.0.3"), pod("other", "web", "10.85.0.4")];
        let subnets = vec!["10.85.0.0/24".parse().unwrap()];
        Self { policies: BTreeMap::new(), others: BTreeMap::new(), pods, subnets }
    }

    fn with(mut self, name: &str, spec: Value) -> Self {
        let policy = Policy::read(&json!({ "spec": spec }));
        self.policies.insert(("shop".into(), name.into()), policy);
        self
    }

    fn others(mut self, pods: Value) -> Self {
        let peers = Peers::read(&json!({ "pods": pods })).unwrap();
        self.others.insert(("shop".into(), "0".into()), peers);
        self
    }

    fn world(&self) -> World<'_> {
        World {
            bridge: "b0",
            mac: [2; 6],
            subnets: &self.subnets,
            node: "here",
            policies: &self.policies,
            others: &self.others,
            pods: &self.pods,
        }
    }

    fn tables(&self) -> Tables {
        tables(&self.world()).expect("somebody is isolated")
    }

    /// Traffic permitted into `web` of `shop`, with sets in place of their names.
    fn lets(&self, way: Way) -> Vec<String> {
        let text = self.tables().script;
        let sets = text.lines().filter_map(|line| line.trim().strip_prefix("set set-")?.split_once(" { type "));
        let sets: BTreeMap<&str, &str> = sets.map(|(name, rest)| (name, rest.trim_end_matches("; }"))).collect();
        let map = if way == Way::In { "map isolated-in" } else { "map isolated-out" };
        let map = text.lines().find(|line| line.contains(map)).unwrap();
        let group = map.split("10.85.0.2 : goto ").nth(1).expect("isolated").split([' ', ',']).next().unwrap();
        let mut all = Vec::new();
        for jump in body(&text, group).iter().filter_map(|rule| rule.strip_prefix("jump ")) {
            for rule in body(&text, jump) {
                let words =
                    rule.trim_end_matches("accept").trim().split(' ').map(|word| match word.strip_prefix("@set-") {
                        Some(set) => sets[set].split_once("elements = ").unwrap().1.to_owned(),
                        None => word.to_owned(),
                    });
                all.push(words.collect::<Vec<_>>().join(" "));
            }
        }
        all
    }
}

fn body(text: &str, chain: &str) -> Vec<String> {
    let begin = format!("\tchain {chain} {{");
    let lines = text.lines().skip_while(|line| *line != begin).skip(1).take_while(|line| *line != "\t}");
    lines.map(|line| line.trim().to_owned()).collect()
}

fn web(ingress: Value) -> Value {
    json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": ingress})
}

fn pods(id: &str, namespaces: Value, app: &str) -> Value {
    json!({"id": id, "namespaces": namespaces, "podSelector": {"matchLabels": {"app": app}}})
}

#[test]
fn default_deny_isolates_the_pods_of_the_namespace_alone() {
    let site = Site::new().with("deny", json!({"podSelector": {}, "ingress": []}));
    let Tables { script, denied, .. } = site.tables();
    assert!(script.contains("map isolated-in { type ipv4_addr : verdict; elements = { 10.85.0.2 : goto pods-0, 10.85.0.3 : goto pods-0 }; }"), "{script}");
    assert!(script.contains("map isolated-out { type ipv4_addr : verdict; }"), "{script}");
    assert!(!script.contains("10.85.0.4") && denied.is_empty(), "{script}");
    assert_eq!(body(&script, "pods-0"), ["iifname \"b0\" ip saddr != 10.85.0.0/24 drop", "drop"]);
    assert!(site.lets(Way::In).is_empty());
}

#[test]
fn no_selected_pod_means_no_table() {
    assert!(tables(&Site::new().world()).is_none());
    let nobody = json!({"podSelector": {"matchLabels": {"app": "none"}}, "ingress": []});
    assert!(tables(&Site::new().with("p", nobody).world()).is_none());
    let neither = json!({"podSelector": {}});
    assert!(tables(&Site::new().with("p", neither).world()).is_none());
    let mut elsewhere = Site::new().with("deny", json!({"podSelector": {}, "ingress": []}));
    elsewhere.pods.iter_mut().for_each(|pod| pod.link = None);
    assert!(tables(&elsewhere.world()).is_none(), "plugins' pods are theirs to guard");
}

#[test]
fn peers_are_local_pods_and_records_of_the_bridge() {
    let others = json!([
        {"node": "there", "ips": ["10.86.0.9", "fd00::9"], "peers": ["x"]},
        {"node": "here", "ips": ["10.86.0.10"], "peers": ["x"]},
        {"node": "there", "ips": ["10.85.0.4"], "peers": ["x"]},
        {"node": "there", "ips": ["10.86.0.11"], "peers": ["y"]},
    ]);
    let site =
        Site::new().with("p", web(json!([{"peers": [pods("x", json!(["shop"]), "db")]}]))).others(others.clone());
    assert_eq!(site.lets(Way::In), ["ip saddr { 10.85.0.3, 10.86.0.9 }"], "of the node itself its own word alone");
    let site = Site::new().with("p", web(json!([{"peers": [pods("z", Value::Null, "web")]}]))).others(others);
    assert_eq!(site.lets(Way::In), ["ip saddr { 10.85.0.2, 10.85.0.4 }"], "of all namespaces");
    // Either, and both of one.
    let either = json!([{"peers": [pods("a", json!(["other"]), "db"), pods("b", json!(["shop"]), "db")]}]);
    assert_eq!(Site::new().with("p", web(either)).lets(Way::In), ["ip saddr { 10.85.0.3 }"]);
    let nobody = json!([{"peers": [pods("a", json!(["other"]), "db")]}, {"peers": []}, {"ports": []}]);
    assert!(Site::new().with("p", web(nobody)).lets(Way::In).is_empty());
    assert_eq!(Site::new().with("p", web(json!([{}]))).lets(Way::In), [""], "everybody");
}

#[test]
fn named_ports_belong_to_the_receiving_pod() {
    let ports = json!([{"ports": [{"port": "http"}, {"port": 9000, "endPort": 9010, "protocol": "UDP"}]}]);
    assert_eq!(Site::new().with("p", web(ports)).lets(Way::In), ["tcp dport { 8080 }", "udp dport { 9000-9010 }"]);
    let both =
        json!([{"ports": [{"port": 80}], "peers": [pods("x", json!(["shop"]), "db"), {"cidr": "192.0.2.0/24"}]}]);
    let wanted = ["ip saddr { 10.85.0.3 } tcp dport { 80 }", "ip saddr { 192.0.2.0/24 } tcp dport { 80 }"];
    assert_eq!(Site::new().with("p", web(both)).lets(Way::In), wanted);
    let others = json!([{"node": "there", "ips": ["10.86.0.9"], "peers": ["x"], "ports": [["http", "", 81], ["dns", "UDP", 53]]}]);
    let out = json!({"podSelector": {}, "egress": [{"ports": [{"port": "http"}], "peers": [pods("x", json!(["shop"]), "db")]}]});
    let lets = Site::new().with("p", out).others(others).lets(Way::Out);
    assert_eq!(lets, ["meta l4proto tcp ip daddr . th dport { 10.85.0.3 . 8080, 10.86.0.9 . 81 }"]);
}

#[test]
fn exceptions_of_blocks_are_excluded() {
    let block = |cidr: &str, except: Value| json!([{"peers": [{"cidr": cidr, "except": except}]}]);
    let lets = |rules: Value| Site::new().with("p", web(rules)).lets(Way::In);
    assert_eq!(lets(block("10.0.0.0/8", json!([]))), ["ip saddr { 10.0.0.0/8 }"]);
    let except = json!(["10.1.0.0/16", "10.1.2.0/24", "fd00::/64"]);
    assert_eq!(lets(block("10.0.0.0/8", except)), ["ip saddr 10.0.0.0/8 ip saddr != { 10.1.0.0/16 }"]);
    assert_eq!(lets(block("0.0.0.0/0", json!(["10.0.0.0/8"]))), ["ip saddr != { 10.0.0.0/8 }"]);
    assert_eq!(lets(block("0.0.0.0/0", json!([]))), [""]);
    assert!(lets(block("0.0.0.0/0", json!(["0.0.0.0/0"]))).is_empty());
    // A range of the other family selects no peer, instead of all.
    assert!(lets(block("fd00::/8", json!([]))).is_empty());
    let several = json!([{"peers": [{"cidr": "10.1.0.0/16"}, {"cidr": "10.0.0.0/8"}, {"cidr": "192.0.2.7/32"}]}]);
    assert_eq!(lets(several), ["ip saddr { 10.0.0.0/8, 192.0.2.7/32 }"]);
}

#[test]
fn policies_add_up_and_ways_are_apart() {
    let site = Site::new()
        .with("deny", json!({"podSelector": {}, "ingress": [], "egress": []}))
        .with("http", web(json!([{"ports": [{"port": 80}]}])))
        .with("dns", json!({"podSelector": {}, "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}));
    assert_eq!(
        (site.lets(Way::In), site.lets(Way::Out)),
        (vec!["tcp dport { 80 }".to_owned()], vec!["udp dport { 53 }".to_owned()])
    );
}

#[test]
fn each_family_has_its_own() {
    let mut site =
        Site::new().with("p", web(json!([{"peers": [{"cidr": "fd00:1::/64"}, pods("x", json!(["shop"]), "db")]}])));
    site.subnets.push("fd00:85::/64".parse().unwrap());
    site.pods[0].ips.push("fd00:85::2".parse().unwrap());
    site.pods[1].ips.push("fd00:85::3".parse().unwrap());
    let script = site.tables().script;
    for wanted in [
        "table ip6 policies-b0 {",
        "elements = { fd00:85::2 : goto pods-0 }",
        "elements = { fd00:85::3 }",
        "elements = { fd00:1::/64 }",
        "elements = { 10.85.0.3 }",
    ] {
        assert!(script.contains(wanted), "{wanted}: {script}");
    }
}

#[test]
fn what_is_not_understood_or_too_large_isolates_and_is_told() {
    let site = Site::new().with("odd", json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": 7}));
    let Tables { script, denied, .. } = site.tables();
    assert!(denied.keys().map(|name| name.1.as_str()).eq(["odd"]));
    for map in ["isolated-in", "isolated-out"] {
        assert!(
            script.contains(&format!("map {map} {{ type ipv4_addr : verdict; elements = {{ 10.85.0.3 : goto")),
            "{script}"
        );
    }
    // Ranges without end, too many policies, and names that mean something to nft.
    let blocks = |count: usize| -> Value {
        (0..count).map(|n| json!({"cidr": format!("{}.{}.{}.0/24", n >> 16, (n >> 8) & 255, n & 255)})).collect()
    };
    let site = Site::new().with("huge", web(json!([{"peers": blocks(19_000)}])));
    assert_eq!(site.lets(Way::In).len(), 1);
    let site = Site::new().with("huge", web(json!([{"peers": blocks(30_000)}])));
    assert!(site.lets(Way::In).is_empty() && site.tables().denied.len() == 1);
    let many =
        (0..12).fold(Site::new(), |site, n| site.with(&format!("p{n}"), web(json!([{"peers": blocks(18_000 + n)}]))));
    let Tables { script, denied, .. } = many.tables();
    assert!(script.len() < 2 * TEXT && denied.len() > 2, "{} {}", script.len(), denied.len());
    let many = (0..=POLICIES_OF_A_NAMESPACE).fold(Site::new(), |site, n| site.with(&format!("p{n}"), web(json!([{}]))));
    assert!(many.lets(Way::In).is_empty() && many.tables().denied.len() == 1);
    let odd = Site::new().with("x; drop }\ntable", web(json!([{}])));
    assert!(odd.tables().script.contains("\tchain policy-0 {\n"));
}

/// The kernel's time is quadratic in the sets of a transaction.
#[test]
fn rules_of_all_policies_together_are_bounded() {
    let rules = |from: usize| -> Value {
        (from..from + 1000)
            .map(|port| json!({"ports": [{"port": port}], "peers": [pods("x", json!(["shop"]), "db")]}))
            .collect()
    };
    let spec = |n: usize| json!({"podSelector": {"matchLabels": {"app": "web"}}, "egress": rules(1 + n * 1000)});
    let many = (0..5).fold(Site::new(), |site, n| site.with(&format!("p{n}"), spec(n)));
    let Tables { script, denied, .. } = many.tables();
    let count = script.lines().filter(|line| line.trim_end().ends_with("accept") && line.contains("dport")).count();
    assert!((RULES - 1000..=RULES).contains(&count) && denied.len() == 2, "{count} {denied:?}");
}

/// A namespace with many rules does not displace those with few.
#[test]
fn a_namespace_that_asks_for_much_is_the_first_to_do_without() {
    let blocks: Value = (0..19_000).map(|n| json!({"cidr": format!("10.{}.{}.0/24", n >> 8, n & 255)})).collect();
    let mut site = (0..12).fold(Site::new(), |site, n| {
        site.with(
            &format!("p{n}"),
            json!({"podSelector": {}, "ingress": [{"peers": blocks, "ports": [{"port": n + 1}]}]}),
        )
    });
    site.policies
        .insert(("zoo".into(), "p".into()), Policy::read(&json!({"spec": {"podSelector": {}, "ingress": [{}]}})));
    site.pods.push(pod("zoo", "web", "10.85.0.9"));
    let denied = site.tables().denied;
    assert!(!denied.is_empty() && denied.keys().all(|(namespace, _)| namespace == "shop"));
}

/// The kernel itself takes every form that there is.
#[test]
fn nft_takes_all_of_it() {
    let can =
        nix::unistd::Uid::effective().is_root() && std::process::Command::new("nft").arg("--version").output().is_ok();
    if !can {
        return;
    }
    let all = json!([{}, {"ports": [{"port": "http"}, {"protocol": "SCTP"}, {"port": 1, "endPort": 65_535, "protocol": "SCTP"}]},
        {"peers": [pods("x", json!(["shop"]), "db"), {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "192.168.0.0/16"]},
            {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}, {"cidr": "fd00::/8", "except": ["fd00::/64"]}, {"cidr": "192.0.2.7/32"}],
            "ports": [{"port": 80}, {"port": "http"}, {}]}]);
    let mut site = Site::new()
        .with("all", json!({"podSelector": {}, "ingress": all, "egress": all}))
        .with("x; drop }\n", json!({"podSelector": {}, "egress": []}))
        .with(&"n".repeat(250), json!({"podSelector": {}, "egress": [{}]}))
        .others(
            json!([{"node": "there", "ips": ["10.86.0.9", "fd00::9"], "peers": ["x"], "ports": [["http", "TCP", 81]]}]),
        );
    site.subnets.push("fd00:85::/64".parse().unwrap());
    site.pods.iter_mut().zip(2..).for_each(|(pod, n)| pod.ips.push(format!("fd00:85::{n}").parse().unwrap()));
    let Tables { script, neighbours, .. } = site.tables();
    let check = |script: &str| {
        use std::io::Write;
        let mut nft = std::process::Command::new("nft");
        nft.args(["-c", "-f", "-"]).stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = nft.spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
    };
    check(&script);
    check(&neighbours);
}
