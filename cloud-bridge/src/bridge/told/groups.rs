//! Names of the groups of objects that nodes receive: Services, policies, devices and rules. Pure.

use clap::ValueEnum;
use edge_protocol::message::ObjectKey;

use super::kinds::Kind;

/// Every Service of the namespace.
pub(in crate::bridge) const ALL_SERVICES: &str = "all";
/// The API's own Service, in the namespace `default`.
pub(in crate::bridge) const API_SERVICE: &str = "kubernetes";
/// The namespace of [`API_SERVICE`].
pub(in crate::bridge) const API_NAMESPACE: &str = "default";
const ALL_POLICIES: &str = "all";
/// Label and namespace by which the cluster's DNS is recognized.
pub(in crate::bridge) const DNS_LABEL: (&str, &str) = ("k8s-app", DNS_SERVICE);
pub(in crate::bridge) const DNS_SERVICE: &str = "kube-dns";
pub(in crate::bridge) const DNS_NAMESPACE: &str = "kube-system";

/// The Services that a node gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ServiceScope {
    /// Services of the namespaces where the node has pods, or whose names its pods have asked for: for many nodes that
    /// are independent of each other.
    #[default]
    Namespaces,
    /// All Services, if the node has pods or routes to those of its LAN: for nodes that must answer at every node port.
    #[value(name = "cluster")]
    All,
    /// All Services and all NetworkPolicies: for a site.
    #[value(skip)]
    Site,
}

/// The groups of Services for a node with a pod in this namespace, with the endpoints of a site's pods. The name of a
/// group is [`ALL_SERVICES`], which excludes the two Services that every pod may use, or one of these two. After an `@`
/// follows the site.
pub(in crate::bridge) fn service_views(namespace: &str, scope: ServiceScope, site: Option<&str>) -> Vec<ObjectKey> {
    let key = |namespace: &str, name: &str| {
        let name = site.map_or_else(|| name.to_owned(), |site| format!("{name}@{site}"));
        Kind::ServiceViews.key(namespace, name)
    };
    match scope {
        ServiceScope::All | ServiceScope::Site => vec![key("", ALL_SERVICES)],
        ServiceScope::Namespaces => {
            vec![key(namespace, ALL_SERVICES), key(API_NAMESPACE, API_SERVICE), key(DNS_NAMESPACE, DNS_SERVICE)]
        }
    }
}

/// Splits the name of a group into the name of its Services, and the site of its pods.
pub(in crate::bridge) fn group_and_site(name: &str) -> (&str, Option<&str>) {
    name.split_once('@').map_or((name, None), |(group, site)| (group, Some(site)))
}

/// The group of NetworkPolicies for a node with a pod in this namespace.
pub(in crate::bridge) fn policy_views(namespace: &str, scope: ServiceScope) -> ObjectKey {
    let namespace = if scope == ServiceScope::Site { "" } else { namespace };
    Kind::PolicyViews.key(namespace, ALL_POLICIES)
}

/// The group of Devices of a node.
pub(in crate::bridge) fn device_views(node: &str) -> ObjectKey {
    Kind::DeviceViews.key("", node)
}

/// The group of rules of a node.
pub(in crate::bridge) fn rule_views(node: &str) -> ObjectKey {
    Kind::RuleViews.key("", node)
}
