//! Content of a pod's `/etc/hosts`, in the kubelet's layout. Pure; [`super::etc_files`] writes it.

use k8s_openapi::api::core::v1::{HostAlias, Pod};

use super::hostname::{fqdn, short_hostname};

/// First lines that tell a reader (and some init scripts) who owns the file; the wording is the kubelet's.
const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_HOST_NETWORK: &str = "# Kubernetes-managed hosts file (host network).\n";

const LOOPBACK: &str = "127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

/// The file of a pod with its own addresses.
pub fn hosts_file(pod: &Pod, pod_ips: &[String], cluster_domain: &str) -> String {
    let short = short_hostname(pod);
    let names = match fqdn(pod, cluster_domain) {
        Some(fqdn) => format!("{fqdn}\t{short}"),
        None => short,
    };
    let mut file = format!("{HEADER}{LOOPBACK}");
    for ip in pod_ips {
        file.push_str(&format!("{ip}\t{names}\n"));
    }
    push_aliases(&mut file, pod);
    file
}

/// The file of a `hostNetwork` pod: the node's own `/etc/hosts` and the pod's aliases.
pub fn hosts_file_host_network(pod: &Pod, node_hosts: &str) -> String {
    let mut file = format!("{HEADER_HOST_NETWORK}{node_hosts}");
    push_aliases(&mut file, pod);
    file
}

fn push_aliases(file: &mut String, pod: &Pod) {
    let aliases: &[HostAlias] = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if aliases.is_empty() {
        return;
    }
    file.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        file.push_str(&format!("{}\t{names}\n", alias.ip));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "web-0", "namespace": "shop"},
            "spec": {"containers": [], "subdomain": "web",
                "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["db", "db.local"]}]}}))
        .unwrap()
    }

    #[test]
    fn a_pod_finds_itself_and_its_aliases() {
        let file = hosts_file(&pod(), &["10.88.0.2".to_string()], "cluster.local");
        assert!(file.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{file}");
        let end = "\n10.88.0.2\tweb-0.web.shop.svc.cluster.local\tweb-0\n\n\
            # Entries added by HostAliases.\n10.0.0.9\tdb\tdb.local\n";
        assert!(file.ends_with(end), "{file}");
    }

    #[test]
    fn host_network_keeps_the_nodes_file() {
        let file = hosts_file_host_network(&pod(), "127.0.0.1 board\n");
        assert!(file.starts_with("# Kubernetes-managed hosts file (host network).\n127.0.0.1 board\n\n#"), "{file}");
    }
}
