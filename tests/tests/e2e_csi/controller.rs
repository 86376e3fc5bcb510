//! The controller of a driver on a node, called by a sidecar in the cluster through `csi-proxy`.

use std::path::{Path, PathBuf};
use std::process::Command;

use sampan_tests::ports::free_address;
use sampan_tests::process::{Process, binary};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use crate::driver::packages;
use crate::{NAME, OTHER, SOON, Site};

const PROBE: &str = "/csi.v1.Identity/Probe";
const CREATE: &str = "/csi.v1.Controller/CreateVolume";
/// Name `a`, seven bytes.
const VOLUME: &str = "0a016112020807";

/// Calls a method at a socket, and returns what Google's client prints.
fn call(socket: &Path, method: &str, message: &str) -> String {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e_csi/client.py")).arg(socket).args([method, message]);
    command.env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("python3 is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Starts `cloud-bridge csi-proxy`, and returns its socket.
fn proxy(site: &Site, bridge: &str, driver: &str) -> (Process, PathBuf) {
    let folder = site.cluster.folder();
    let socket = folder.join(format!("{driver}.sock"));
    let mut command = Command::new(binary("cloud-bridge"));
    command.args(["csi-proxy", "--driver", driver, "--node", &site.node.name, "--bridge", bridge]);
    command.arg("--bridge-ca").arg(folder.join("bridge/pki/ca.crt")).arg("--socket").arg(&socket);
    command.arg("--token-file").arg(folder.join("token"));
    let process = Process::start(&mut command, &folder.join(format!("{driver}.log")));
    until(SOON, "the socket", || if socket.exists() { Ok(()) } else { Err("it is not there".to_owned()) });
    (process, socket)
}

/// Gives an account the rights of `docs/csi.md`, and writes its token to a file.
fn allow(site: &Site) {
    let (kubectl, namespace) = (site.kubectl(), &site.kubectl().namespace);
    let name = format!("csi-proxy-{namespace}");
    let group = "rbac.authorization.k8s.io";
    kubectl.apply_all(&[
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "csi-proxy"}}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": [
            {"apiGroups": [""], "resources": ["nodes/csi-controller"], "resourceNames": [site.node.name],
             "verbs": ["proxy"]},
            {"apiGroups": ["storage.k8s.io"], "resources": ["csidrivers/controller"], "resourceNames": [NAME],
             "verbs": ["proxy"]}]}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "csi-proxy", "namespace": namespace}]}),
    ]);
    let token = kubectl.ok(&["create", "token", "csi-proxy"]);
    std::fs::write(site.cluster.folder().join("token"), token).expect("written");
}

#[test]
fn sidecar_in_the_cluster_calls_a_controller_on_a_node() {
    if !can_run() {
        return;
    }
    let address = free_address();
    let cluster = Cluster::start_with("csi-proxy", &["--csi-listen", &address.to_string()]);
    // Beside a real API server the authority is in a Secret.
    if cluster.api_address().is_none() {
        return;
    }
    let socket = cluster.folder().join("kubelet/plugins").join(NAME).join("csi.sock");
    let mut site = Site::on(cluster, &format!(", csi-controllers: {{{NAME}: '{}'}}", socket.display()));
    allow(&site);
    let bridge = format!("https://{address}");
    let (_proxy, socket) = proxy(&site, &bridge, NAME);
    assert_eq!(call(&socket, PROBE, ""), "0a020801");
    // `volume of a`, seven bytes.
    assert_eq!(call(&socket, CREATE, VOLUME), "0a0f0807120b766f6c756d65206f662061");
    assert_eq!(site.driver().calls("CreateVolume"), 1);
    std::fs::write(site.cluster.folder().join(NAME).join("fail"), "CreateVolume").expect("written");
    assert_eq!(call(&socket, CREATE, VOLUME), "INTERNAL", "the driver's own code");

    // The right to a driver does not include another driver, or the node service of the same driver.
    let (_other, others) = proxy(&site, &bridge, OTHER);
    assert_eq!(call(&others, PROBE, ""), "PERMISSION_DENIED");
    assert_eq!(call(&socket, "/csi.v1.Node/NodeUnpublishVolume", ""), "UNIMPLEMENTED");

    // The driver goes and comes, the node as well; the proxy stays.
    site.driver = None;
    assert_eq!(call(&socket, PROBE, ""), "UNAVAILABLE");
    site.driver = Some(crate::Driver::start(site.cluster.folder(), NAME));
    until(SOON, "the driver is back", || match call(&socket, PROBE, "").as_str() {
        "0a020801" => Ok(()),
        other => Err(other.to_owned()),
    });
    site.node.kill();
    until(SOON, "the node is away", || match call(&socket, PROBE, "").as_str() {
        "UNAVAILABLE" => Ok(()),
        other => Err(other.to_owned()),
    });
    site.node.start();
    until(SOON, "the node is back", || match call(&socket, PROBE, "").as_str() {
        "0a020801" => Ok(()),
        other => Err(other.to_owned()),
    });
    assert_eq!(site.driver().calls("CreateVolume"), 1);
}
