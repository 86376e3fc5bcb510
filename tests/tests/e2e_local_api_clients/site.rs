//! A node with a local API, and pods on it that run programs of this host with the API's files and variables.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::process::binary;
use sampan_tests::{Cluster, EdgeNode, FaultProxy, Kubectl, until};
use serde_json::{Value, json};

/// Where a pod finds what this host has; the folders of the test are beside them.
const OF_THE_HOST: [&str; 4] = ["/usr", "/lib", "/lib64", "/etc/ssl"];
/// Until a client has done its work in a pod.
const WORK: Duration = Duration::from_secs(90);

/// Dropped in this order: the node ends before its cluster.
pub(crate) struct Site {
    pub(crate) node: EdgeNode,
    pub(crate) proxy: FaultProxy,
    pub(crate) cluster: Cluster,
}

impl Site {
    /// A node with a local API behind a link that can be cut, and the ServiceAccount `client`.
    pub(crate) fn start(test: &str) -> Self {
        let cluster = Cluster::start_at(test, Ipv4Addr::LOCALHOST.into(), &[]);
        let proxy = FaultProxy::start(Ipv4Addr::LOCALHOST.into(), cluster.listen);
        let name = format!("edge-{}", cluster.kubectl.namespace);
        let mut node = EdgeNode::prepare_behind(&cluster, &name, &proxy.url(), None);
        node.configure("local-api: {listen: gateway}\n");
        node.start();
        node.wait_ready();
        account(&cluster.kubectl);
        let site = Self { node, proxy, cluster };
        std::fs::create_dir(site.out()).expect("a folder");
        site
    }

    pub(crate) fn kubectl(&self) -> &Kubectl {
        &self.cluster.kubectl
    }

    /// The folder that pods see as `/out`.
    fn out(&self) -> PathBuf {
        self.cluster.folder().join("out")
    }

    /// What the pod of this name has written so far: its file does not need the link.
    pub(crate) fn said(&self, pod: &str) -> String {
        std::fs::read_to_string(self.out().join(pod)).unwrap_or_default()
    }

    /// Waits until a pod has written this line; returns all lines.
    pub(crate) fn wait_said(&self, pod: &str, line: &str) -> String {
        until(WORK, &format!("{pod} says {line:?}"), || {
            let said = self.said(pod);
            if said.lines().any(|one| one == line) { Ok(said) } else { Err(said + &self.errors(pod)) }
        })
    }

    /// What the pod of this name has written as errors, which libraries do, too.
    pub(crate) fn errors(&self, pod: &str) -> String {
        self.said(&format!("{pod}.errors"))
    }

    /// A pod that uses the local API, and runs a command whose output goes to its files. It stays after the end of the
    /// command.
    pub(crate) fn pod(&self, name: &str, command: &str) -> Value {
        let script =
            format!("{command} >/out/{name} 2>/out/{name}.errors; echo \"ended $?\" >>/out/{name}; exec sleep 1000");
        let mut volumes = Volumes::default();
        for path in OF_THE_HOST.map(Path::new).into_iter().filter(|path| path.is_dir()) {
            volumes.add(path, path, true);
        }
        volumes.add(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e_local_api_clients"),
            Path::new("/clients"),
            true,
        );
        volumes.add(&python_packages(), Path::new("/python"), true);
        if let Some(modules) = node_modules() {
            volumes.add(&modules, Path::new("/node_modules"), true);
        }
        volumes.add(&folder_of(&binary("api-client")), Path::new("/programs"), true);
        for (number, program) in kubectls(self.kubectl()).iter().enumerate() {
            volumes.add(&folder_of(program), Path::new(&format!("/kubectl-{number}")), true);
        }
        volumes.add(&self.out(), Path::new("/out"), false);
        let env = [("HOME", "/tmp"), ("PYTHONPATH", "/python"), ("PYTHONDONTWRITEBYTECODE", "1")];
        let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let container = with(shell("c", &script), &json!({"env": env, "volumeMounts": volumes.mounts}));
        let mut pod = pod(name, &self.node.name, json!([container]));
        pod["metadata"]["annotations"] = json!({"sampan.dev/local-api": "true"});
        with_spec(pod, &json!({"serviceAccountName": "client", "volumes": volumes.volumes}))
    }

    /// Runs a command in a pod until it ends; returns what it said.
    pub(crate) fn run(&self, name: &str, command: &str) -> String {
        self.kubectl().apply_all(&[self.pod(name, command)]);
        let said = until(WORK, &format!("{name} runs {command}"), || {
            let said = self.said(name);
            if said.contains("ended ") { Ok(said) } else { Err(said + &self.errors(name)) }
        });
        assert!(said.ends_with("ended 0\n"), "{command}: {said}{}", self.errors(name));
        said
    }
}

/// hostPath volumes and where they are mounted.
#[derive(Default)]
struct Volumes {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
}

impl Volumes {
    fn add(&mut self, path: &Path, at: &Path, read_only: bool) {
        let name = format!("v{}", self.volumes.len());
        self.volumes.push(json!({"name": name, "hostPath": {"path": path, "type": "Directory"}}));
        self.mounts.push(json!({"name": name, "mountPath": at, "readOnly": read_only}));
    }
}

/// A ServiceAccount with the rights of a small operator in the test's namespace, and none elsewhere.
fn account(kubectl: &Kubectl) {
    let group = "rbac.authorization.k8s.io";
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    kubectl.apply_all(&[
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "client"}}),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "client"},
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs},
            ],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "client"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "client"},
            "subjects": [{"kind": "ServiceAccount", "name": "client", "namespace": kubectl.namespace}],
        }),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fixed"}, "data": {"n": "0"}}),
    ]);
}

/// Where `requirements.txt` is installed.
fn python_packages() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/kubernetes");
    let packages = std::env::var_os("SAMPAN_KUBERNETES").map_or(usual, PathBuf::from);
    assert!(
        packages.join("kubernetes").is_dir(),
        "PyPI kubernetes is to be in {}: see tests/tests/e2e_local_api_clients/requirements.txt",
        packages.display()
    );
    packages.canonicalize().expect("a folder")
}

/// Where `scripts/test` installs @kubernetes/client-node, if it does.
pub(crate) fn node_modules() -> Option<PathBuf> {
    let modules =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/client-node/node_modules").canonicalize().ok()?;
    modules.join("@kubernetes/client-node").is_dir().then_some(modules)
}

/// The kubectl programs of this run: an old and a current one, or the one that the test uses.
pub(crate) fn kubectls(usual: &Kubectl) -> Vec<PathBuf> {
    let named = ["SAMPAN_KUBECTL_OLD", "SAMPAN_KUBECTL_NEW"].map(std::env::var_os);
    let mut programs: Vec<PathBuf> = named.into_iter().flatten().map(PathBuf::from).collect();
    if programs.is_empty() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(&usual.program)).find(|file| file.is_file());
        programs.extend(found);
    }
    programs.iter().map(|program| program.canonicalize().expect("a program")).collect()
}

fn folder_of(program: &Path) -> PathBuf {
    let program = program.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    program.parent().expect("a folder").to_owned()
}
