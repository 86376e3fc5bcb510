//! The `network` section: the pods' subnets, and who connects them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use super::node::instance_suffix;
use crate::net::{NetError, Subnet};

/// The section as typed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NetworkFile {
    pub bridge: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_cidrs: Option<Vec<String>>,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: Option<String>,
    pub mode: NetworkMode,
    pub routes: Routes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<bool>,
    pub cni: CniFile,
}

/// What connects pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// The built-in bridge.
    Builtin,
    /// CNI plugins; the node is not ready without a CNI configuration.
    Cni,
    /// CNI plugins if there is a configuration, else the built-in bridge.
    #[default]
    Auto,
}

/// Pods that this node's pods reach at their own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routes {
    /// Those of this node.
    #[default]
    None,
    /// Also pods of nodes on its LAN. The cluster then assigns the subnets of its pods, in the Node.
    Lan,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CniFile {
    pub conf_dir: Option<PathBuf>,
    pub bin_dirs: Option<Vec<PathBuf>>,
}

/// Where distributions (Debian, Fedora) and Kubernetes' own packages put plugins.
const PLUGINS: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

#[derive(Clone, Debug)]
pub struct NetworkConfig {
    pub bridge: String,
    /// Pod subnets of this node: one, or one of each family. With [`Routes::Lan`] those that the cluster has assigned,
    /// empty before that.
    pub subnets: Vec<Subnet>,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    pub mode: NetworkMode,
    pub routes: Routes,
    /// NetworkPolicies hold for pods on the built-in bridge.
    pub policies: bool,
    /// Folder of CNI configurations, and folders of plugins in the order of search.
    pub cni_conf_dir: PathBuf,
    pub cni_bin_dirs: Vec<PathBuf>,
}

impl NetworkConfig {
    pub(super) fn from_file(file: NetworkFile, root: &Path) -> Result<Self, Wrong> {
        if file.routes == Routes::Lan {
            for (key, given) in
                [("network.subnet", file.subnet.is_some()), ("network.pod-cidrs", file.pod_cidrs.is_some())]
            {
                if given {
                    let why =
                        "is given by the cluster (spec.podCIDRs of the Node) with network.routes: lan: leave it out";
                    return Err(wrong(key, why));
                }
            }
            if file.mode == NetworkMode::Cni {
                return Err(wrong("network.routes", "lan is of the built-in bridge: plugins make their own routes"));
            }
        }
        let (key, subnets) = match (file.subnet, file.pod_cidrs) {
            (Some(_), Some(_)) => {
                return Err(wrong("network.subnet", "is the same as network.pod-cidrs: give only one"));
            }
            (_, Some(several)) => ("network.pod-cidrs", several),
            (one, None) => ("network.subnet", vec![one.unwrap_or_else(|| subnet(root))]),
        };
        let subnets = match file.routes {
            Routes::None => parse_subnets(&subnets).map_err(|why| wrong(key, why))?,
            Routes::Lan => Vec::new(),
        };
        let bridge = file.bridge.unwrap_or_else(|| bridge_name(instance_suffix(root).as_deref()));
        // The kernel's IFNAMSIZ is 16 with the terminating zero.
        if bridge.is_empty() || bridge.len() > 15 || bridge.contains(['/', ' ']) {
            return Err(wrong("network.bridge", format!("'{bridge}' is no interface name of 1 to 15 characters")));
        }
        Ok(Self {
            bridge,
            subnets,
            cluster_dns: file.cluster_dns,
            cluster_domain: file.cluster_domain.unwrap_or_else(|| "cluster.local".into()),
            mode: file.mode,
            routes: file.routes,
            policies: file.policies.unwrap_or(true),
            cni_conf_dir: file.cni.conf_dir.unwrap_or_else(|| root.join("etc/cni/net.d")),
            cni_bin_dirs: file.cni.bin_dirs.unwrap_or_else(|| PLUGINS.map(PathBuf::from).into()),
        })
    }

    /// Whether it has routes to the pods of other nodes.
    pub fn has_routes(&self) -> bool {
        self.routes == Routes::Lan
    }

    /// Returns `file` with the defaults filled in.
    pub(super) fn filled(&self, mut file: NetworkFile) -> NetworkFile {
        file.bridge = Some(self.bridge.clone());
        // The same by two names, of which a file may have one.
        if file.subnet.is_none() && !self.has_routes() {
            file.pod_cidrs = Some(self.subnets.iter().map(ToString::to_string).collect());
        }
        file.cluster_domain = Some(self.cluster_domain.clone());
        file.policies = Some(self.policies);
        file.cni.conf_dir = Some(self.cni_conf_dir.clone());
        file.cni.bin_dirs = Some(self.cni_bin_dirs.clone());
        file
    }
}

fn bridge_name(suffix: Option<&str>) -> String {
    suffix.map_or_else(|| "sampan0".into(), |suffix| format!("smp-{suffix}"))
}

/// 10.85.0.0/24 for the only node of a host; a /24 of 10.86.0.0 to 10.101.255.0 by the root's path otherwise.
fn subnet(root: &Path) -> String {
    if root == Path::new("/") {
        return "10.85.0.0/24".into();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, root.as_os_str().as_encoded_bytes());
    let bytes = digest.as_ref();
    format!("10.{}.{}.0/24", 86 + bytes[0] % 16, bytes[1])
}

/// One subnet, or one of each family; the first one's family is the pods' main one.
fn parse_subnets(texts: &[String]) -> Result<Vec<Subnet>, String> {
    let subnets: Vec<Subnet> =
        texts.iter().map(|text| text.parse().map_err(|error: NetError| error.to_string())).collect::<Result<_, _>>()?;
    match subnets.as_slice() {
        [_] => Ok(subnets),
        [one, other] if one.is_ipv4() != other.is_ipv4() => Ok(subnets),
        _ => Err("give one subnet, or one of IPv4 and one of IPv6".into()),
    }
}
