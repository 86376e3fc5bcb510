//! The whole road of a node whose only way out is an HTTP proxy with a login: a card image enrols it; link, a pull from a
//! registry, `kubectl exec` and the API for pods follow. The proxy is that of the tests, and tinyproxy where it is
//! installed.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with, with_spec};
use sampan_tests::ports::free_address;
use sampan_tests::process::Process;
use sampan_tests::registry::{archive, tools};
use sampan_tests::{Cluster, EdgeNode, HttpProxy, Registry, Uplink, until};
use serde_json::{Value, json};

/// Names that only the proxy finds (RFC 6761, 6.4).
const BRIDGE: &str = "bridge.invalid";
const REGISTRY: &str = "registry.invalid";
const LOGIN: &str = "name:hunter22";
const BASE64: &str = "bmFtZTpodW50ZXIyMg==";
const SERIAL: &str = "1000abcd";
const SECRETS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Time until a node has dialled again.
const LINK: Duration = Duration::from_secs(45);

trait Proxy {
    fn address(&self) -> SocketAddr;

    /// First lines of the requests so far.
    fn asked(&self) -> Vec<String>;

    /// Ends all tunnels, and takes new ones.
    fn restart(&mut self);
}

impl Proxy for HttpProxy {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn asked(&self) -> Vec<String> {
        Self::asked(self)
    }

    fn restart(&mut self) {
        self.cut();
    }
}

/// tinyproxy, with names of its own.
struct Tinyproxy {
    address: SocketAddr,
    folder: PathBuf,
    process: Process,
}

impl Tinyproxy {
    fn start(ends: &Ends) -> Self {
        let folder = ends.folder.join("tinyproxy");
        std::fs::create_dir(&folder).expect("a folder");
        let hosts = format!("127.0.0.1 localhost\n{} {BRIDGE}\n{} {REGISTRY}\n", ends.bridge.ip(), ends.registry.ip());
        std::fs::write(folder.join("hosts"), hosts).expect("written");
        let address = SocketAddr::new(ends.ip, free_address().port());
        let login = LOGIN.replace(':', " ");
        let config = format!(
            "Port {}\nListen {}\nTimeout 600\nMaxClients 100\nLogLevel Info\nBasicAuth {login}\n",
            address.port(),
            address.ip()
        );
        std::fs::write(folder.join("conf"), config).expect("written");
        let process = Self::run(&folder, address);
        Self { address, folder, process }
    }

    fn run(folder: &Path, address: SocketAddr) -> Process {
        let file = |name: &str| folder.join(name).display().to_string();
        let script = format!("mount --bind {} /etc/hosts && exec tinyproxy -d -c {}", file("hosts"), file("conf"));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let process = Process::start(&mut command, &folder.join("log"));
        until(Duration::from_secs(10), "tinyproxy listens", || {
            TcpStream::connect(address).map(drop).map_err(|error| format!("{error}: {}", process.log()))
        });
        process
    }
}

impl Proxy for Tinyproxy {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn asked(&self) -> Vec<String> {
        let log = self.process.log();
        let requests = log.lines().filter(|line| line.contains("Request (file descriptor"));
        requests.filter_map(|line| Some(line.split_once("): ")?.1.to_owned())).collect()
    }

    fn restart(&mut self) {
        self.process.kill();
        self.process = Self::run(&self.folder, self.address);
    }
}

/// Where the proxy listens, and where its tunnels lead.
struct Ends {
    ip: IpAddr,
    bridge: SocketAddr,
    registry: SocketAddr,
    folder: PathBuf,
}

/// Dropped in this order: the node ends before its cluster and its network.
struct Site {
    node: EdgeNode,
    proxy: Box<dyn Proxy>,
    registry: Registry,
    cluster: Cluster,
    uplink: Rc<Uplink>,
}

impl Site {
    /// A board that has not joined, with a card image that names the proxy.
    fn new(test: &str, start: impl FnOnce(&Ends) -> Box<dyn Proxy>) -> Self {
        let uplink = Rc::new(Uplink::new());
        let cluster = Cluster::start_at(test, uplink.bridge_ip(), &["--advertise", BRIDGE]);
        let registry = Registry::start(cluster.folder(), false);
        registry.push(&archive(cluster.folder(), "road"), "tools/road:1");
        let folder = cluster.folder().to_owned();
        let proxy = start(&Ends { ip: uplink.bridge_ip(), bridge: cluster.listen, registry: registry.address, folder });
        close(&uplink, cluster.listen, proxy.address());
        let mut node = EdgeNode::bare(&cluster, &format!("{}-{SERIAL}", cluster.kubectl.namespace));
        node.uplink = Some(Rc::clone(&uplink));
        let site = Self { node, proxy, registry, cluster, uplink };
        site.write_card();
        site
    }

    fn write_card(&self) {
        let root = self.node.root();
        let user_file = root.join("proxy.user");
        std::fs::write(&user_file, format!("{LOGIN}\n")).expect("written");
        self.node.configure(&format!(
            "local-api: {{listen: gateway}}\nregistry: [{{host: '{}', plain-http: true}}]\nproxy:\n  user-file: {}\n",
            self.registry_host(),
            user_file.display()
        ));
        let firmware = root.join("proc/device-tree");
        std::fs::create_dir_all(&firmware).expect("a folder");
        std::fs::write(firmware.join("serial-number"), format!("{SERIAL}\0")).expect("written");
        let card = root.join("boot/firmware");
        std::fs::create_dir_all(&card).expect("a folder");
        let file = card.join("edge-runtime.join").display().to_string();
        let name = format!("{}-{{serial}}", self.cluster.kubectl.namespace);
        let bridge = format!("https://{BRIDGE}:{}", self.cluster.listen.port());
        let words = ["token", "claim", "--name", &name, "--uses", "1", "--approve", "auto", "--bridge", &bridge];
        let _ = self.cluster.bridge_verb(&[&words[..], &["--file", &file]].concat()).expect("a claim token");
        let text = std::fs::read_to_string(&file).expect("a file");
        let text = format!("{}\nproxy: http://{}\n", text.trim_end(), self.proxy.address());
        std::fs::write(&file, text).expect("written");
    }

    fn registry_host(&self) -> String {
        format!("{REGISTRY}:{}", self.registry.address.port())
    }

    /// A pod of the image in the registry that uses the local API.
    fn start_pod(&self) {
        let kubectl = &self.cluster.kubectl;
        let subject = format!("--serviceaccount={}:reader", kubectl.namespace);
        for words in [
            &["create", "serviceaccount", "reader"][..],
            &["create", "role", "reader", "--verb=get,list", "--resource=configmaps"],
            &["create", "rolebinding", "reader", "--role=reader", &subject],
            &["create", "configmap", "fixed", "--from-literal=a=1"],
        ] {
            let _ = kubectl.ok(words);
        }
        let image = format!("{}/tools/road:1", self.registry_host());
        let container = with(
            shell("c", "echo pulled; exec sleep 1000"),
            &json!({"image": image, "imagePullPolicy": "IfNotPresent"}),
        );
        let mut asks = pod("asks", &self.node.name, json!([container]));
        asks["metadata"]["annotations"] = json!({"sampan.dev/local-api": "true"});
        kubectl.apply_all(&[with_spec(asks, &json!({"serviceAccountName": "reader"}))]);
        kubectl.wait_ready("asks");
        kubectl.wait_log("asks", "pulled");
    }

    /// What a program in the pod needs for the API, read with `kubectl exec`.
    fn caller(&self) -> Caller {
        let kubectl = &self.cluster.kubectl;
        let id = container_id(&kubectl.wait_ready("asks")["status"]["containerStatuses"][0]);
        let read = |file: &str| kubectl.ok(&["exec", "asks", "--", "cat", &format!("{SECRETS}/{file}")]);
        let certificate = self.cluster.folder().join("ca.crt");
        std::fs::write(&certificate, read("ca.crt")).expect("written");
        let env = kubectl.ok(&["exec", "asks", "--", "env"]);
        let value =
            |name: &str| env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
        let host = value("KUBERNETES_SERVICE_HOST").expect("an address");
        assert_eq!(value("KUBERNETES_SERVICE_PORT").as_deref(), Some("6443"), "{env}");
        Caller {
            pid: self.node.container_pids()[&id],
            url: format!("https://{host}:6443"),
            token: read("token"),
            certificate,
        }
    }

    /// Packets to a name server or to the bridge's port, by rule.
    fn dropped(&self) -> Vec<String> {
        let chain = self.uplink.output(&["nft", "list", "chain", "inet", "faults", "out"]);
        chain.lines().filter(|line| line.contains("counter")).map(|line| line.trim().to_owned()).collect()
    }
}

/// Drops all that the namespace sends anywhere but to the proxy, pods included.
fn close(uplink: &Uplink, bridge: SocketAddr, proxy: SocketAddr) {
    uplink.inside(&["nft", "add chain inet faults through { type filter hook forward priority -300; }"]);
    for rule in [
        "out udp dport 53 counter drop".to_owned(),
        "out tcp dport 53 counter drop".to_owned(),
        format!("out tcp dport {} counter drop", bridge.port()),
        format!("out oifname \"up*\" tcp dport != {} drop", proxy.port()),
        "out oifname \"up*\" meta l4proto udp drop".to_owned(),
        "through oifname \"up*\" drop".to_owned(),
    ] {
        uplink.inside(&["nft", &format!("add rule inet faults {rule}")]);
    }
}

struct Caller {
    pid: u32,
    url: String,
    token: String,
    certificate: PathBuf,
}

impl Caller {
    /// The answer with its head.
    fn ask(&self, path: &str) -> String {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid)).args(["curl", "-sSi", "--noproxy", "*"]);
        command.args(["--max-time", "20", "-H", &format!("Authorization: Bearer {}", self.token)]);
        let output = command.arg("--cacert").arg(&self.certificate).arg(format!("{}{path}", self.url)).output();
        let output = output.expect("nsenter starts");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// Waits for an answer of the API itself, not one that the node has kept.
    fn wait(&self, path: &str) -> String {
        until(LINK, path, || {
            let answer = self.ask(path);
            let is_online = answer.starts_with("HTTP/1.1 200") && !answer.to_ascii_lowercase().contains("\nwarning:");
            if is_online { Ok(answer) } else { Err(answer) }
        })
    }
}

/// From the card to a pod that reads the API, and again after the proxy has ended all tunnels.
fn road(site: &mut Site) {
    site.node.edge_ok(&["first-boot"]);
    site.node.start();
    site.node.wait_ready();
    site.start_pod();
    let caller = site.caller();
    let fixed = format!("/api/v1/namespaces/{}/configmaps/fixed", site.cluster.kubectl.namespace);
    let answer = caller.wait(&fixed);
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let object: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(object["data"]["a"], "1", "{object}");

    let before = site.proxy.asked().len();
    site.proxy.restart();
    until(LINK, "the node has asked for a tunnel again", || match site.proxy.asked() {
        asked if asked.len() > before => Ok(()),
        asked => Err(format!("{asked:?}")),
    });
    caller.wait(&fixed);

    let dropped = site.dropped();
    assert!(dropped.len() == 3 && dropped.iter().all(|line| line.contains("packets 0 ")), "{dropped:?}");
    let tunnel = |host: &str| format!("CONNECT {host} HTTP/1.1");
    let tunnels = [tunnel(&format!("{BRIDGE}:{}", site.cluster.listen.port())), tunnel(&site.registry_host())];
    let asked = site.proxy.asked();
    assert!(asked.iter().all(|line| tunnels.contains(line)), "{asked:?}");
    assert!(tunnels.iter().all(|tunnel| asked.contains(tunnel)), "{asked:?}");
}

fn installed(program: &str, flag: &str) -> bool {
    Command::new(program).arg(flag).output().is_ok()
}

#[test]
fn enrolment_link_pull_and_api_pass_a_proxy() {
    if !tools() || !installed("curl", "--version") {
        return;
    }
    road(&mut Site::new("road", |ends| {
        let names = [
            (format!("{BRIDGE}:{}", ends.bridge.port()), ends.bridge),
            (format!("{REGISTRY}:{}", ends.registry.port()), ends.registry),
        ];
        let names = names.each_ref().map(|(name, target)| (name.as_str(), *target));
        Box::new(HttpProxy::start(ends.ip, &names, Some(&format!("Basic {BASE64}"))))
    }));
}

#[test]
fn enrolment_link_pull_and_api_pass_tinyproxy() {
    if !tools() || !installed("curl", "--version") || !installed("tinyproxy", "-v") {
        return;
    }
    road(&mut Site::new("tinyproxy", |ends| Box::new(Tinyproxy::start(ends))));
}
