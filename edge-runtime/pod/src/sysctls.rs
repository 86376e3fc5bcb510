//! Sysctls of a pod: which are allowed (K8s pkg/kubelet/sysctl), and the files that stand for them. Pure.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;

use super::spec::host_network;

/// The kernel namespace that a sysctl belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    Ipc,
    Net,
}

impl Namespace {
    /// The kubelet's name.
    fn name(self) -> &'static str {
        match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        }
    }
}

/// Sysctls that change nothing outside of their pod; each is namespaced in every supported kernel (4.15).
const SAFE: &str = "
    kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range
    net.ipv4.ip_unprivileged_port_start net.ipv4.ip_local_reserved_ports net.ipv4.tcp_keepalive_time
    net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl net.ipv4.tcp_keepalive_probes net.ipv4.tcp_rmem
    net.ipv4.tcp_wmem";

const IPC: &str = "
    kernel.sem kernel.shmall kernel.shmmax kernel.shmmni kernel.shm_rmid_forced kernel.shm kernel.msgmax
    kernel.msgmnb kernel.msgmni kernel.msg";

/// A sysctl that an administrator permits: a name, or a prefix of names followed by `*`.
///
/// # Errors
/// It is not in a namespace of the pod, so it would change the node.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    let normal = normalize(pattern);
    let stem = normal.split('*').next().unwrap_or_default();
    match namespace_of(stem) {
        Some(_) if !stem.contains("..") => Ok(()),
        _ => Err(format!("the sysctls {stem:?} are not known to be namespaced")),
    }
}

/// The kubelet's message for the first sysctl of `pod` that it must not have; `allowed` are the patterns of
/// [`check_pattern`].
pub fn forbidden(pod: &Pod, allowed: &[String]) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let (host_net, host_ipc) = (spec.host_network == Some(true), spec.host_ipc == Some(true));
    of(pod).find_map(|(name, _)| {
        let patterns = SAFE.split_whitespace().map(str::to_owned).chain(allowed.iter().map(|p| normalize(p)));
        let matching = patterns.into_iter().find_map(|pattern| match pattern.split_once('*') {
            Some((stem, _)) => name.starts_with(stem).then(|| namespace_of(stem)),
            None => (name == pattern).then(|| namespace_of(&pattern)),
        });
        let shared = match matching.flatten() {
            None => return Some(format!("forbidden sysctl: {name:?} not allowlisted")),
            Some(Namespace::Ipc) => host_ipc,
            Some(Namespace::Net) => host_net,
        };
        let host = matching.flatten().map_or("", Namespace::name);
        shared.then(|| format!("forbidden sysctl: {name:?} not allowed with host {host} enabled"))
    })
}

/// Returns the sysctls of a pod's namespaces. As in containerd and Docker, its own network permits every user to listen
/// on low ports and to ping; the pod's own sysctls follow.
pub fn of_sandbox(pod: &Pod) -> Vec<(String, String)> {
    let own_network = !host_network(pod);
    let defaults = [("net.ipv4.ip_unprivileged_port_start", "0"), ("net.ipv4.ping_group_range", "0 2147483647")];
    let defaults =
        defaults.into_iter().filter(|_| own_network).map(|(name, value)| (name.to_owned(), value.to_owned()));
    defaults.chain(of(pod)).collect()
}

/// The pod's sysctls: name with dots, and value.
fn of(pod: &Pod) -> impl Iterator<Item = (String, String)> + '_ {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let list = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
    list.map(|sysctl| (normalize(&sysctl.name), sysctl.value.clone()))
}

fn namespace_of(stem: &str) -> Option<Namespace> {
    if IPC.split_whitespace().any(|name| name == stem) || stem.starts_with("fs.mqueue.") {
        return Some(Namespace::Ipc);
    }
    stem.starts_with("net.").then_some(Namespace::Net)
}

/// Name with dots between its parts, as `sysctl` prints it: if a slash comes first, the two are exchanged.
fn normalize(name: &str) -> String {
    match name.find(['.', '/']).and_then(|at| name.as_bytes().get(at)) {
        Some(b'/') => swapped(name),
        _ => name.to_owned(),
    }
}

/// `net.ipv4.conf.eno2/100.rp_filter` is `/proc/sys/net/ipv4/conf/eno2.100/rp_filter`.
pub fn file(name: &str) -> Option<PathBuf> {
    let path = swapped(name);
    let proper = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.split('/').all(proper).then(|| PathBuf::from("/proc/sys").join(path))
}

fn swapped(name: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(names: &[&str], spec: &Value, allowed: &[&str]) -> Option<String> {
        let sysctls: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
        let mut whole = json!({"containers": [], "securityContext": {"sysctls": sysctls}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let pod: Pod = serde_json::from_value(json!({"spec": whole})).unwrap();
        forbidden(&pod, &allowed.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn in_the_kubelets_words() {
        let none = json!({});
        assert_eq!(refused(&["kernel.shm_rmid_forced", "net/ipv4/tcp_rmem"], &none, &[]), None);
        assert_eq!(
            refused(&["net.ipv4.tcp_syncookies", "kernel.msgmax"], &none, &[]),
            Some("forbidden sysctl: \"kernel.msgmax\" not allowlisted".into())
        );
        assert_eq!(refused(&["kernel.msgmax"], &none, &["kernel.msg*"]), None);
        assert_eq!(refused(&["net.core.somaxconn"], &none, &["net.core.somaxconn"]), None);
        assert_eq!(refused(&["net.ipv4.tcp_rmem"], &json!({"hostIPC": true}), &[]), None);
        assert_eq!(
            refused(&["net.ipv4.tcp_rmem"], &json!({"hostNetwork": true}), &[]),
            Some("forbidden sysctl: \"net.ipv4.tcp_rmem\" not allowed with host Net enabled".into())
        );
        assert_eq!(
            refused(&["kernel.shm_rmid_forced"], &json!({"hostIPC": true}), &[]),
            Some("forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host IPC enabled".into())
        );
    }

    #[test]
    fn only_namespaced_ones_can_be_allowed() {
        for good in ["net.*", "net.core.somaxconn", "kernel.msg*", "kernel/sem", "fs.mqueue.*"] {
            assert_eq!(check_pattern(good), Ok(()), "{good}");
        }
        for bad in ["*", "vm.swappiness", "kernel.*", "fs.file-max", ""] {
            assert!(check_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_and_files() {
        assert_eq!(file("kernel.sem"), Some("/proc/sys/kernel/sem".into()));
        assert_eq!(file("net.ipv4.conf.a/1.rp_filter"), Some("/proc/sys/net/ipv4/conf/a.1/rp_filter".into()));
        assert_eq!(normalize("net/ipv4/conf/a.1/rp_filter"), "net.ipv4.conf.a/1.rp_filter");
        assert_eq!((file("net.//.x"), file("net..x")), (None, None));
    }
}
