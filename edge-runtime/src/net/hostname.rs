//! The name a pod gives itself. Pure.

use k8s_openapi::api::core::v1::Pod;

/// A DNS label ends at 63 characters.
const LABEL_LIMIT: usize = 63;
/// The kernel's `__NEW_UTS_LEN`.
const KERNEL_LIMIT: usize = 64;

/// The whole name of a pod with `setHostnameAsFQDN` does not fit the kernel's field.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({KERNEL_LIMIT} characters is the max, {} characters requested)", fqdn.len())]
pub struct HostnameTooLong {
    pub fqdn: String,
}

/// Host name of the pod's UTS namespace: `spec.hostnameOverride`, else `spec.hostname`, else the pod's name cut to a DNS label.
/// With `setHostnameAsFQDN` and a subdomain it is the whole name. A `hostNetwork` pod has the node's name instead.
pub fn pod_hostname(pod: &Pod, cluster_domain: &str) -> Result<String, HostnameTooLong> {
    let as_fqdn = pod.spec.as_ref().and_then(|spec| spec.set_hostname_as_fqdn).unwrap_or(false);
    match fqdn(pod, cluster_domain) {
        Some(fqdn) if as_fqdn && fqdn.len() > KERNEL_LIMIT => Err(HostnameTooLong { fqdn }),
        Some(fqdn) if as_fqdn => Ok(fqdn),
        _ => Ok(short_hostname(pod)),
    }
}

/// `hostname.subdomain.namespace.svc.DOMAIN`, for pods with `spec.subdomain`. A name that overrides all others has no
/// domain (K8s `GeneratePodHostNameAndDomain`).
pub fn fqdn(pod: &Pod, cluster_domain: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if overridden(pod).is_some() {
        return None;
    }
    let subdomain = spec.subdomain.as_deref().filter(|name| !name.is_empty())?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    Some(format!("{}.{subdomain}.{namespace}.svc.{cluster_domain}", short_hostname(pod)))
}

/// The name without its domain, as it stands in `/etc/hosts`.
pub fn short_hostname(pod: &Pod) -> String {
    let wanted = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref()).filter(|name| !name.is_empty());
    cut(overridden(pod).or(wanted).or(pod.metadata.name.as_deref()).unwrap_or("localhost"))
}

fn overridden(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.hostname_override.as_deref().filter(|name| !name.is_empty())
}

/// A cut may end on a separator, which no DNS label may do: those go too, as the kubelet does it.
fn cut(name: &str) -> String {
    let head: String = name.chars().take(LABEL_LIMIT).collect();
    head.trim_end_matches(['-', '.']).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_long_pod_name_is_cut_and_never_ends_on_a_separator() {
        let name = format!("{}-tail", "a".repeat(62));
        let hostname = pod_hostname(&pod(serde_json::json!({"metadata": {"name": name}})), "cluster.local").unwrap();
        assert_eq!(hostname, "a".repeat(62));
    }

    #[test]
    fn hostname_and_subdomain_come_from_the_spec() {
        let spec = serde_json::json!({"metadata": {"name": "web-0", "namespace": "shop"},
            "spec": {"containers": [], "hostname": "front", "subdomain": "web"}});
        assert_eq!(pod_hostname(&pod(spec.clone()), "cluster.local").unwrap(), "front");
        assert_eq!(fqdn(&pod(spec), "cluster.local").as_deref(), Some("front.web.shop.svc.cluster.local"));
    }

    #[test]
    fn an_override_goes_before_all_and_has_no_domain() {
        let spec = serde_json::json!({"metadata": {"name": "web-0", "namespace": "shop"}, "spec": {"containers": [],
            "hostname": "front", "subdomain": "web", "hostnameOverride": "override.example.host"}});
        assert_eq!(pod_hostname(&pod(spec.clone()), "cluster.local").unwrap(), "override.example.host");
        assert_eq!(fqdn(&pod(spec), "cluster.local"), None);
    }

    #[test]
    fn the_fqdn_becomes_the_hostname_when_asked() {
        let spec = serde_json::json!({"metadata": {"name": "web-0", "namespace": "shop"},
            "spec": {"containers": [], "subdomain": "web", "setHostnameAsFQDN": true}});
        assert_eq!(pod_hostname(&pod(spec.clone()), "x.y").unwrap(), "web-0.web.shop.svc.x.y");
        assert!(pod_hostname(&pod(spec), &"y".repeat(50)).is_err());
    }
}
