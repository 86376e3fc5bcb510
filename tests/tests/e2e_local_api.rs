//! Pods that reach the API through the link of their node: real bridge, helper and pods, and curl in a pod's network.
//! Guarantees are L1 to L5 (docs/guarantees.md, docs/api-for-pods.md).

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with_spec};
use sampan_tests::process::{self, signal};
use sampan_tests::{Cluster, EdgeNode, FaultProxy, Faults, Kubectl, can_run, until};
use serde_json::{Value, json};

const SECRETS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Time until the node and its helper count a link as lost, and until the node has dialled again.
const LINK: Duration = Duration::from_secs(40);

/// Dropped in this order: the node ends before its cluster.
struct Site {
    node: EdgeNode,
    proxy: FaultProxy,
    cluster: Cluster,
}

impl Site {
    /// A node with a local API, behind a link that can be cut, and accounts `reader` and `other` with the same rights.
    fn start(test: &str) -> Self {
        let cluster = Cluster::start_at(test, Ipv4Addr::LOCALHOST.into(), &[]);
        let proxy = FaultProxy::start(Ipv4Addr::LOCALHOST.into(), cluster.listen);
        let name = format!("edge-{}", cluster.kubectl.namespace);
        let mut node = EdgeNode::prepare_behind(&cluster, &name, &proxy.url(), None);
        node.configure("local-api: {listen: gateway}\n");
        node.start();
        node.wait_ready();
        accounts(&cluster.kubectl);
        Self { node, proxy, cluster }
    }

    fn kubectl(&self) -> &Kubectl {
        &self.cluster.kubectl
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.kubectl().namespace)
    }

    /// Starts pods, and returns what each has read of its own address, token and certificate.
    fn callers<const N: usize>(&self, pods: [Value; N]) -> [Caller; N] {
        self.kubectl().apply_all(&pods);
        pods.map(|pod| self.caller(pod["metadata"]["name"].as_str().expect("a name")))
    }

    fn caller(&self, name: &str) -> Caller {
        let kubectl = self.kubectl();
        let pod = kubectl.wait_ready(name);
        let id = container_id(&pod["status"]["containerStatuses"][0]);
        let read = |file: &str| kubectl.ok(&["exec", name, "--", "cat", &format!("{SECRETS}/{file}")]);
        let folder = self.cluster.folder().join(format!("caller-{name}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("ca.crt"), read("ca.crt")).expect("written");
        let env = kubectl.ok(&["exec", name, "--", "env"]);
        let value =
            |name: &str| env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
        Caller {
            net: self.node.container_pids().get(&id).map(|pid| format!("/proc/{pid}/ns/net")),
            address: value("KUBERNETES_SERVICE_HOST").zip(value("KUBERNETES_SERVICE_PORT")),
            token: read("token"),
            folder,
        }
    }

    fn cut(&self) {
        self.proxy.set(Faults { refuse: true, ..Faults::default() });
        self.proxy.cut();
    }

    fn mend(&self) {
        self.proxy.set(Faults::default());
        self.node.wait_connected(&self.cluster);
    }
}

/// ServiceAccounts that may read pods, and read and create ConfigMaps, in the test's namespace only.
fn accounts(kubectl: &Kubectl) {
    let rules = json!([{"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["get", "list", "create"]}]);
    let group = "rbac.authorization.k8s.io";
    let subject = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": kubectl.namespace});
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    kubectl.apply_all(&[
        account("reader"),
        account("other"),
        json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "reader"}, "rules": rules}),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
            "subjects": [subject("reader"), subject("other")],
        }),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fixed"}, "data": {"a": "1"}}),
    ]);
}

/// A pod of this account that uses the local API.
fn using(name: &str, node: &str, account: &str) -> Value {
    let mut pod = plain(name, node, account);
    pod["metadata"]["annotations"] = json!({"sampan.dev/local-api": "true"});
    pod
}

fn plain(name: &str, node: &str, account: &str) -> Value {
    let pod = pod(name, node, json!([shell("c", "exec sleep 1000")]));
    with_spec(pod, &json!({"serviceAccountName": account}))
}

/// What a program in a pod knows.
struct Caller {
    /// The pod's network, while it is there.
    net: Option<String>,
    address: Option<(String, String)>,
    token: String,
    folder: PathBuf,
}

#[derive(Debug)]
struct Answer {
    code: String,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn has(&self, header: &str) -> bool {
        self.head.to_ascii_lowercase().lines().any(|line| line.starts_with(header))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Caller {
    fn ask(&self, path: &str) -> Answer {
        self.ask_with(Some(&self.token), path, &[])
    }

    /// A request with more arguments of curl, from the pod's network.
    fn ask_with(&self, token: Option<&str>, path: &str, more: &[&str]) -> Answer {
        let (host, port) = self.address.as_ref().expect("the pod has the variables");
        let mut command = Command::new(if self.net.is_some() { "nsenter" } else { "curl" });
        if let Some(net) = &self.net {
            command.arg(format!("--net={net}")).arg("curl");
        }
        let file = |name: &str| self.folder.join(name);
        command.args(["-s", "--noproxy", "*", "--max-time", "20", "-w", "%{http_code}"]);
        command.arg("--cacert").arg(file("ca.crt")).arg("-D").arg(file("head")).arg("-o").arg(file("body"));
        if let Some(token) = token {
            command.args(["-H", &format!("Authorization: Bearer {token}")]);
        }
        for old in ["head", "body"] {
            let _ = std::fs::remove_file(file(old));
        }
        let output = command.args(more).arg(format!("https://{host}:{port}{path}")).output().expect("curl starts");
        Answer {
            code: String::from_utf8_lossy(&output.stdout).into_owned(),
            head: std::fs::read_to_string(file("head")).unwrap_or_default(),
            body: std::fs::read(file("body")).unwrap_or_default(),
        }
    }

    /// Creates a ConfigMap.
    fn create(&self, site: &Site, name: &str) -> Answer {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string();
        let more = ["-X", "POST", "-H", "Content-Type: application/json", "--data-binary", &object];
        self.ask_with(Some(&self.token), &site.path("configmaps"), &more)
    }

    fn wait(&self, limit: Duration, path: &str, accept: impl Fn(&Answer) -> bool) -> Answer {
        until(limit, path, || {
            let answer = self.ask(path);
            if accept(&answer) { Ok(answer) } else { Err(format!("{} {} {}", answer.code, answer.head, answer.text())) }
        })
    }
}

fn can_ask() -> bool {
    can_run() && Command::new("curl").arg("--version").output().is_ok()
}

/// Processes of the helper that serve this root.
fn helpers(root: &Path) -> Vec<u32> {
    process::helpers(root, "edge-api", "api.sock")
}

#[test]
fn l1_pods_have_the_rights_of_their_own_account() {
    if !can_ask() {
        return;
    }
    let site = Site::start("own-rights");
    let name = &site.node.name;
    let hosted = with_spec(using("hosted", name, "reader"), &json!({"hostNetwork": true}));
    let [reader, hosted, plain] =
        site.callers([using("reader", name, "reader"), hosted, plain("plain", name, "reader")]);
    let pods = site.path("pods");
    for caller in [&reader, &hosted] {
        assert_eq!(caller.address.as_ref().map(|(_, port)| port.as_str()), Some("6443"));
        let answer = caller.wait(Duration::from_secs(10), &pods, |answer| answer.code == "200");
        let list: Value = serde_json::from_slice(&answer.body).expect("JSON");
        let items = list["items"].as_array().expect("a list");
        assert!(items.iter().any(|item| item["metadata"]["name"] == "reader"), "{list}");
        assert!(!answer.has("warning"), "{}", answer.head);
    }
    assert_eq!(reader.ask("/api/v1/namespaces/kube-system/pods").code, "403");
    assert_eq!(reader.ask("/api/v1/nodes").code, "403", "the node may, and its pods may not");
    assert_eq!(reader.create(&site, "made").code, "201");
    assert!(site.kubectl().get("configmap", "made").is_ok());

    // The local API is not for these, whatever the API would say.
    assert_eq!(reader.ask_with(None, &pods, &[]).code, "401");
    let unbound = site.kubectl().ok(&["create", "token", "reader"]);
    for token in [unbound.trim(), "nonsense", &plain.token] {
        assert_eq!(reader.ask_with(Some(token), &pods, &[]).code, "401");
    }
    let impersonates = ["-H", "Impersonate-User: system:admin", "-H", "Impersonate-Group: system:masters"];
    assert_eq!(reader.ask_with(Some(&reader.token), "/api/v1/nodes", &impersonates).code, "403");

    // A pod without the annotation is as on a node without a local API.
    assert_ne!(plain.address.as_ref().map(|(_, port)| port.as_str()), Some("6443"));
    let blocks = |caller: &Caller| {
        let text = std::fs::read_to_string(caller.folder.join("ca.crt")).expect("a file");
        text.matches("BEGIN CERTIFICATE").count()
    };
    assert_eq!(blocks(&reader), blocks(&plain) + 1);
}

#[test]
fn l2_l5_reads_are_answered_offline_and_writes_refused() {
    if !can_ask() {
        return;
    }
    let site = Site::start("offline-api");
    let name = &site.node.name;
    let [reader, other] = site.callers([using("reader", name, "reader"), using("other", name, "other")]);
    let fixed = site.path("configmaps/fixed");
    let online = reader.wait(Duration::from_secs(10), &fixed, |answer| answer.code == "200");
    assert!(!online.has("warning"), "{}", online.head);

    site.cut();
    let offline = reader.wait(LINK, &fixed, |answer| answer.code == "200" && answer.has("warning"));
    assert_eq!(offline.body, online.body, "byte for byte");
    assert_eq!(reader.ask(&site.path("pods")).code, "503", "it has not read them");
    assert_eq!(other.ask(&fixed).code, "503", "an answer is for the account that has read it");
    assert_eq!(reader.ask_with(Some("nonsense"), &fixed, &[]).code, "401");
    let refused = reader.create(&site, "never");
    assert!(refused.code == "503" && refused.has("retry-after"), "{refused:?}");
    let status: Value = serde_json::from_slice(&refused.body).expect("a Status");
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("ServiceUnavailable")));

    site.mend();
    reader.wait(LINK, &fixed, |answer| answer.code == "200" && !answer.has("warning"));
    assert!(site.kubectl().get("configmap", "never").is_err(), "the write is not made up for");
}

#[test]
fn l3_token_of_a_deleted_pod_is_refused_within_a_second() {
    if !can_ask() {
        return;
    }
    let site = Site::start("gone-api");
    let name = &site.node.name;
    let [mut gone, stays] = site.callers([using("gone", name, "reader"), using("stays", name, "reader")]);
    let pods = site.path("pods");
    for caller in [&gone, &stays] {
        caller.wait(Duration::from_secs(10), &pods, |answer| answer.code == "200");
    }
    // Its network goes with it; the node's own reaches the address, too.
    gone.net = None;
    let _ = site.kubectl().ok(&["delete", "pod", "gone", "--wait=true"]);
    gone.wait(Duration::from_secs(1), &pods, |answer| answer.code == "401");
    assert_eq!(stays.ask(&pods).code, "200");

    // Offline, too: no answer that is kept is for it.
    site.cut();
    stays.wait(LINK, &pods, |answer| answer.code == "200" && answer.has("warning"));
    assert_eq!(gone.ask(&pods).code, "401");
}

#[test]
fn helper_that_is_killed_is_replaced() {
    if !can_ask() {
        return;
    }
    let mut site = Site::start("killed-api");
    let name = site.node.name.clone();
    let [reader] = site.callers([using("reader", &name, "reader")]);
    let pods = site.path("pods");
    reader.wait(Duration::from_secs(10), &pods, |answer| answer.code == "200");
    let before = helpers(site.node.root());
    assert_eq!(before.len(), 1);
    signal(before[0], "KILL");
    // The pod trusts the certificate of the helper before.
    reader.wait(Duration::from_secs(10), &pods, |answer| answer.code == "200");
    let after = helpers(site.node.root());
    assert!(after.len() == 1 && after != before, "{after:?}");
    // It outlives the daemon.
    site.node.kill();
    site.node.start();
    site.node.wait_connected(&site.cluster);
    reader.wait(Duration::from_secs(10), &pods, |answer| answer.code == "200" && !answer.has("warning"));
    assert_eq!(helpers(site.node.root()), after);
}

#[test]
fn off_is_off() {
    if !can_ask() {
        return;
    }
    let cluster = Cluster::start("api-off");
    accounts(&cluster.kubectl);
    let mut node = cluster.node("edge");
    cluster.kubectl.apply_all(&[using("reader", &node.name, "reader")]);
    cluster.kubectl.wait_ready("reader");
    let nothing = |node: &EdgeNode| {
        let root = node.root();
        let files = ["run/edge-runtime/api.sock", "run/edge-runtime/api.json", "var/lib/edge-runtime/api"];
        helpers(root).is_empty() && files.iter().all(|file| !root.join(file).exists())
    };
    assert!(nothing(&node));
    let env = cluster.kubectl.ok(&["exec", "reader", "--", "env"]);
    assert!(!env.contains("6443"), "{env}");

    let restart = |node: &mut EdgeNode, config: &str| {
        node.configure(config);
        node.kill();
        node.start();
        node.wait_connected(&cluster);
    };
    restart(&mut node, "local-api: {listen: gateway}\n");
    let count = |node: &EdgeNode, wanted: usize| {
        until(Duration::from_secs(10), "the helper", || match helpers(node.root()).len() {
            found if found == wanted => Ok(()),
            found => Err(format!("{found} helpers")),
        });
    };
    count(&node, 1);
    restart(&mut node, "");
    count(&node, 0);
    assert!(!node.root().join("run/edge-runtime/api.sock").exists());
}
