//! A node whose only way out is an HTTP proxy: P1.1 to P1.3 of the list of guarantees, with real binaries in a network of their
//! own.

use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, EdgeNode, HttpProxy, Uplink, can_run, until};
use serde_json::json;

/// Name of the bridge, which no resolver knows (RFC 6761, 6.4).
const NAME: &str = "bridge.invalid";
const PASSWORD: &str = "hunter22";
/// `name:hunter22`.
const BASE64: &str = "bmFtZTpodW50ZXIyMg==";
/// Two heartbeats, and some time for a busy host to write and read the result.
const FOUND: Duration = Duration::from_secs(30 + 5);

/// Dropped in this order: the node ends before its cluster and its network.
struct Site {
    node: EdgeNode,
    proxy: HttpProxy,
    cluster: Cluster,
    uplink: Rc<Uplink>,
}

impl Site {
    /// A node that has not joined. What it sends anywhere but to the proxy is dropped, and counted if it is a question for
    /// a name or for the bridge.
    fn new(test: &str, login: Option<&str>) -> Self {
        let uplink = Rc::new(Uplink::new());
        let cluster = Cluster::start_at(test, uplink.bridge_ip(), &["--advertise", NAME]);
        let bridge = format!("{NAME}:{}", cluster.listen.port());
        let proxy = HttpProxy::start(uplink.bridge_ip(), &[(bridge.as_str(), cluster.listen)], login);
        let (bridge, own) = (cluster.listen.port(), proxy.address.port());
        for rule in [
            "udp dport 53 counter drop",
            "tcp dport 53 counter drop",
            &format!("tcp dport {bridge} counter drop"),
            &format!("oifname \"up*\" tcp dport != {own} drop"),
            "oifname \"up*\" meta l4proto udp drop",
        ] {
            uplink.inside(&["nft", &format!("add rule inet faults out {rule}")]);
        }
        let mut node = EdgeNode::bare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
        node.uplink = Some(Rc::clone(&uplink));
        node.env.push(("EDGE_RUNTIME_LOG".to_owned(), "debug".to_owned()));
        Self { node, proxy, cluster, uplink }
    }

    fn join(&self, token: &str, more: &[&str]) -> Result<String, String> {
        let (bridge, url) = (format!("https://{NAME}:{}", self.cluster.listen.port()), self.proxy.url());
        let words = ["join", "--bridge", &bridge, "--token", token, "--node", &self.node.name, "--proxy", &url];
        self.node.edge(&[&words[..], more].concat())
    }

    fn start(&mut self) {
        self.node.import_busybox(&self.cluster);
        self.node.start();
        self.node.wait_ready();
    }

    fn connections(&self) -> usize {
        self.cluster.log().matches(&format!("node {}: connected", self.node.name)).count()
    }

    /// Waits until the node has connected once more than `before` times.
    fn reconnected(&self, before: usize, within: Duration) {
        until(within, "the node is connected again", || match self.connections() {
            now if now > before => Ok(()),
            _ => Err(self.node.log().lines().rev().take(5).collect::<Vec<_>>().join("; ")),
        });
    }
}

#[test]
fn p1_1_p1_3_proxy_is_the_only_way_and_keeps_its_login() {
    if !can_run() {
        return;
    }
    let mut site = Site::new("proxied", Some(&format!("Basic {BASE64}")));
    let token = site.cluster.token(&site.node.name);
    let refused = site.join(&token, &[]).expect_err("without a login");
    assert!(refused.contains("it wants a login (407): set proxy.user-file"), "{refused}");
    let user_file = site.node.root().join("proxy.user");
    std::fs::write(&user_file, format!("name:{PASSWORD}\n")).expect("written");
    let user_file = user_file.display().to_string();
    let joined = site.join(&token, &["--proxy-user-file", &user_file]).expect("the token is not spent");
    assert!(joined.contains("joined cluster"), "{joined}");
    site.start();
    let on = site.node.name.clone();
    site.cluster.kubectl.apply_all(&[pod("runs", &on, json!([shell("c", "echo hello; exec sleep 1000")]))]);
    site.cluster.kubectl.wait_ready("runs");
    site.cluster.kubectl.wait_log("runs", "hello");
    // Before doctor, which asks the name servers.
    let dropped = site.uplink.output(&["nft", "list", "chain", "inet", "faults", "out"]);
    let counted: Vec<&str> = dropped.lines().filter(|line| line.contains("counter")).collect();
    assert!(counted.len() == 3 && counted.iter().all(|line| line.contains("packets 0 ")), "{dropped}");
    let tunnel = format!("CONNECT {NAME}:{} HTTP/1.1", site.cluster.listen.port());
    assert!(site.proxy.asked().iter().all(|line| *line == tunnel), "{:?}", site.proxy.asked());

    let findings = site.node.edge(&["doctor", "--all"]).unwrap_or_else(|text| text);
    assert!(findings.contains(&format!("through the proxy {}", site.proxy.address)), "{findings}");
    let bundle = site.cluster.folder().join("bundle.tar.gz").display().to_string();
    site.node.edge_ok(&["doctor", "--bundle", &bundle]);
    let unpacked = Command::new("tar").args(["-xzOf", &bundle]).output().expect("tar is installed");
    assert!(unpacked.status.success() && unpacked.stdout.len() > 1000, "{unpacked:?}");
    let printed = site.node.edge_ok(&["run", "--print-config"]);
    assert!(printed.contains(&user_file), "{printed}");
    let status = site.node.edge_ok(&["status"]);
    for shown in [refused, joined, findings, printed, status, site.node.log(), site.cluster.log()] {
        assert!(!shown.contains(PASSWORD) && !shown.contains(BASE64), "{shown}");
    }
    let unpacked = String::from_utf8_lossy(&unpacked.stdout);
    assert!(!unpacked.contains(PASSWORD) && !unpacked.contains(BASE64), "the bundle");
}

#[test]
fn p1_2_proxy_that_goes_away_is_noticed_and_used_again() {
    if !can_run() {
        return;
    }
    let mut site = Site::new("gone", None);
    let token = site.cluster.token(&site.node.name);
    let _ = site.join(&token, &[]).expect("joins");
    site.start();

    // As if it had ended and was started again.
    let before = site.connections();
    site.proxy.cut();
    site.reconnected(before, Duration::from_secs(10));

    // Half-open: no packet passes, and no connection is closed.
    let before = site.connections();
    site.uplink.lose(100, 100);
    until(FOUND, "the node has noticed", || match site.node.log() {
        log if log.contains("nothing heard from the peer") => Ok(()),
        log => Err(log.lines().rev().take(5).collect::<Vec<_>>().join("; ")),
    });
    site.uplink.lose(0, 0);
    site.reconnected(before, Duration::from_secs(45));
}
