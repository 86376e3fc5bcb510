//! Content of a pod's `/etc/resolv.conf` for the four `dnsPolicy` values and `dnsConfig`. Pure but for reading the
//! node's own file.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::pod::spec::{host_network, pod_ref};
use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

/// Limits of Kubernetes' validation: resolvers read three servers, glibc fails on a search name above 255.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
const MAX_NAME_CHARS: usize = 253;

/// DNS settings of the node, one value for all pods.
#[derive(Clone, Debug, Default)]
pub struct NodeDns {
    /// Addresses of the cluster's DNS service; empty without one.
    pub cluster_dns: Vec<String>,
    /// Usually `cluster.local`; empty adds no search names.
    pub cluster_domain: String,
    /// Where this node answers for names itself; empty if it does not.
    pub own: Vec<String>,
    /// Text of the node's `resolv.conf`.
    pub node_resolv_conf: String,
}

/// A finished file, and a warning for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    pub content: String,
    /// `(reason, message)` of Warning events on the pod.
    pub warnings: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, Default)]
struct Settings {
    nameservers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

/// Text of the file that pods with the node's DNS get; empty if it does not exist. Read it per pod: DHCP changes it.
///
/// A stub resolver on the node's loopback (systemd-resolved, NetworkManager with dnsmasq) answers no pod; its own
/// upstream servers stand in a second file.
pub fn read_node_resolv_conf() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let text = read("/etc/resolv.conf");
    if !only_loopback(&text) {
        return text;
    }
    let upstream = ["/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"];
    upstream.into_iter().map(read).find(|text| !only_loopback(text)).unwrap_or(text)
}

fn only_loopback(text: &str) -> bool {
    parse(text).nameservers.iter().all(|server| is_only_here(server))
}

/// The file of `pod`. Never fails: what does not fit is left out and named in a warning, as the kubelet does it.
pub fn resolv_conf(pod: &Pod, dns: &NodeDns) -> ResolvConf {
    let spec = pod.spec.as_ref();
    let host_network = host_network(pod);
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let mut warnings = Vec::new();
    let mut settings = match policy {
        "None" => Settings::default(),
        "Default" => like_the_node(dns, host_network),
        "ClusterFirst" if host_network => like_the_node(dns, host_network),
        _ if dns.cluster_dns.is_empty() => {
            warnings.push(("MissingClusterDNS", missing_cluster_dns(pod)));
            like_the_node(dns, host_network)
        }
        _ => cluster_first(pod, dns),
    };
    if let Some(config) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        merge(&mut settings, config);
    }
    fit(&mut settings, &mut warnings);
    ResolvConf { content: render(&settings), warnings }
}

/// In the kubelet's words (K8s pkg/kubelet/network/dns/dns.go `GetPodDNS`).
fn missing_cluster_dns(pod: &Pod) -> String {
    format!(
        "pod: \"{}\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
         \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
        pod_ref(pod)
    )
}

/// The node's own settings. A pod with its own network cannot reach servers on the node's loopback or links. If the
/// node has only such servers, the pod asks the node, which forwards to them.
fn like_the_node(dns: &NodeDns, host_network: bool) -> Settings {
    let mut settings = parse(&dns.node_resolv_conf);
    let (near, usable): (Vec<String>, _) = settings.nameservers.into_iter().partition(|server| is_only_here(server));
    settings.nameservers = match (host_network, usable.is_empty(), dns.own.is_empty()) {
        (true, ..) | (_, true, true) => near.into_iter().chain(usable).collect(),
        (_, true, false) => dns.own.clone(),
        (_, false, _) => usable,
    };
    settings
}

/// Whether the server is reachable only from the node itself: on loopback, or by an address of one link.
fn is_only_here(server: &str) -> bool {
    let (ip, scope) = server.split_once('%').map_or((server, false), |(ip, _)| (ip, true));
    let near = |ip: IpAddr| ip.is_loopback() || matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    scope || ip.parse().is_ok_and(near)
}

fn cluster_first(pod: &Pod, dns: &NodeDns) -> Settings {
    let node = parse(&dns.node_resolv_conf);
    let mut searches = Vec::new();
    if !dns.cluster_domain.is_empty() {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let domain = &dns.cluster_domain;
        searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
    }
    searches.extend(node.searches);
    Settings { nameservers: dns.cluster_dns.clone(), searches: unique(searches), options: vec!["ndots:5".to_string()] }
}

/// `resolv.conf(5)`: servers add up, the last search line wins, options override by name.
fn parse(text: &str) -> Settings {
    let mut settings = Settings::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut fields = line.split_whitespace();
        match fields.next() {
            Some("nameserver") => settings.nameservers.extend(fields.next().map(str::to_string)),
            Some("search" | "domain") => {
                let names = fields.filter(|name| *name != ".");
                settings.searches = names.map(|name| name.trim_end_matches('.').to_string()).collect();
            }
            Some("options") => fields.for_each(|option| set_option(&mut settings.options, option.to_string())),
            _ => {}
        }
    }
    settings
}

fn merge(settings: &mut Settings, config: &PodDNSConfig) {
    for (names, more) in [(&mut settings.nameservers, &config.nameservers), (&mut settings.searches, &config.searches)]
    {
        names.extend(more.iter().flatten().cloned());
        *names = unique(std::mem::take(names));
    }
    for option in config.options.iter().flatten() {
        let Some(name) = option.name.as_deref() else { continue };
        let text = match option.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{name}:{value}"),
            _ => name.to_string(),
        };
        set_option(&mut settings.options, text);
    }
}

fn set_option(options: &mut Vec<String>, option: String) {
    let name = |text: &str| text.split(':').next().unwrap_or_default().to_string();
    match options.iter_mut().find(|known| name(known) == name(&option)) {
        Some(known) => *known = option,
        None => options.push(option),
    }
}

fn fit(settings: &mut Settings, warnings: &mut Vec<(&'static str, String)>) {
    let mut warn = |(limits, left_out, line): (&str, &str, &str), applied: &[String]| {
        let applied = applied.join(" ");
        let text = format!(
            "{limits} limits were exceeded, some {left_out} have been omitted, the applied {line} line is: {applied}"
        );
        warnings.push(("DNSConfigForming", text));
    };
    if settings.nameservers.len() > MAX_NAMESERVERS {
        settings.nameservers.truncate(MAX_NAMESERVERS);
        warn(("Nameserver", "nameservers", "nameserver"), &settings.nameservers);
    }
    let wanted = settings.searches.len();
    settings.searches.truncate(MAX_SEARCHES);
    settings.searches.retain(|name| name.len() <= MAX_NAME_CHARS);
    while settings.searches.join(" ").len() > MAX_SEARCH_CHARS {
        settings.searches.pop();
    }
    if settings.searches.len() < wanted {
        warn(("Search Line", "search paths", "search"), &settings.searches);
    }
}

fn render(settings: &Settings) -> String {
    let mut file = String::new();
    if !settings.searches.is_empty() {
        file.push_str(&format!("search {}\n", settings.searches.join(" ")));
    }
    for server in &settings.nameservers {
        file.push_str(&format!("nameserver {server}\n"));
    }
    if !settings.options.is_empty() {
        file.push_str(&format!("options {}\n", settings.options.join(" ")));
    }
    file
}

fn unique(names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

#[cfg(test)]
mod tests;
