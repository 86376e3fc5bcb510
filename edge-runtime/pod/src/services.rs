//! Environment variables that name the Services of a pod's namespace, as every Kubernetes container has them. Pure.
//! K8s pkg/kubelet/envvars/envvars.go.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::local_api::PORT;

/// Kind of the object in which the bridge sends Services; its name is one of the next two.
pub const KIND: &str = "ServiceLinks";
/// Every Service of the namespace.
pub const ALL: &str = "all";
/// The Service of the API, in [`API_NAMESPACE`]: every pod gets its variables, whatever its `enableServiceLinks`.
pub const API: &str = "kubernetes";
pub const API_NAMESPACE: &str = "default";

#[derive(Debug, Default, Deserialize)]
struct Links {
    #[serde(default)]
    services: Vec<Link>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    name: String,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Debug, Deserialize)]
struct Port {
    port: u16,
    #[serde(default)]
    name: String,
    #[serde(default)]
    protocol: String,
}

/// Variables of all Services in `all` (of the pod's namespace) and of the API's own; of two Services with one name the
/// namespace's wins. A missing or malformed object has no variables. `local`: the local API's address, which takes the
/// place of both for a pod that uses it.
pub fn variables(all: Option<Value>, api: Option<Value>, local: Option<IpAddr>) -> Vec<(String, String)> {
    let read = |object: Option<Value>| -> Vec<Link> {
        let links: Option<Links> = object.and_then(|object| serde_json::from_value(object).ok());
        links.unwrap_or_default().services
    };
    let mut links = read(all);
    let api: Vec<Link> = read(api).into_iter().filter(|link| links.iter().all(|own| own.name != link.name)).collect();
    links.extend(api);
    if let Some(local) = local {
        links.retain(|link| link.name != API);
        let port = Port { port: PORT, name: "https".to_owned(), protocol: String::new() };
        links.push(Link { name: API.to_owned(), cluster_ip: local.to_string(), ports: vec![port] });
    }
    links.sort_by(|a, b| a.name.cmp(&b.name));
    links.iter().flat_map(of_service).collect()
}

fn of_service(link: &Link) -> Vec<(String, String)> {
    let prefix = name(&link.name);
    let mut vars = Vec::new();
    let Some(first) = link.ports.first() else { return vars };
    vars.push((format!("{prefix}_SERVICE_HOST"), link.cluster_ip.clone()));
    vars.push((format!("{prefix}_SERVICE_PORT"), first.port.to_string()));
    for port in link.ports.iter().filter(|port| !port.name.is_empty()) {
        vars.push((format!("{prefix}_SERVICE_PORT_{}", name(&port.name)), port.port.to_string()));
    }
    for (index, port) in link.ports.iter().enumerate() {
        let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
        let small = protocol.to_lowercase();
        let host =
            if link.cluster_ip.contains(':') { format!("[{}]", link.cluster_ip) } else { link.cluster_ip.clone() };
        let url = format!("{small}://{host}:{}", port.port);
        if index == 0 {
            vars.push((format!("{prefix}_PORT"), url.clone()));
        }
        let of_port = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        vars.push((of_port.clone(), url));
        vars.push((format!("{of_port}_PROTO"), small));
        vars.push((format!("{of_port}_PORT"), port.port.to_string()));
        vars.push((format!("{of_port}_ADDR"), link.cluster_ip.clone()));
    }
    vars
}

fn name(text: &str) -> String {
    text.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_values_are_dockers() {
        let all = json!({"kind": KIND, "services": [{"name": "my-web", "clusterIP": "10.0.0.7",
            "ports": [{"port": 80, "name": "http-alt"}, {"port": 53, "protocol": "UDP"}]}]});
        let vars: Vec<String> =
            variables(Some(all), None, None).iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            vars,
            [
                "MY_WEB_SERVICE_HOST=10.0.0.7",
                "MY_WEB_SERVICE_PORT=80",
                "MY_WEB_SERVICE_PORT_HTTP_ALT=80",
                "MY_WEB_PORT=tcp://10.0.0.7:80",
                "MY_WEB_PORT_80_TCP=tcp://10.0.0.7:80",
                "MY_WEB_PORT_80_TCP_PROTO=tcp",
                "MY_WEB_PORT_80_TCP_PORT=80",
                "MY_WEB_PORT_80_TCP_ADDR=10.0.0.7",
                "MY_WEB_PORT_53_UDP=udp://10.0.0.7:53",
                "MY_WEB_PORT_53_UDP_PROTO=udp",
                "MY_WEB_PORT_53_UDP_PORT=53",
                "MY_WEB_PORT_53_UDP_ADDR=10.0.0.7",
            ]
        );
    }

    #[test]
    fn a_service_of_the_namespace_hides_the_apis_own() {
        let link = |address: &str| {
            Some(json!({"services": [
            {"name": "kubernetes", "clusterIP": address, "ports": [{"port": 443}]}]}))
        };
        let host =
            |vars: Vec<(String, String)>| vars.into_iter().find(|(n, _)| n == "KUBERNETES_SERVICE_HOST").unwrap().1;
        assert_eq!(host(variables(link("10.0.0.9"), link("10.0.0.1"), None)), "10.0.0.9");
        assert_eq!(host(variables(None, link("fd00::1"), None)), "fd00::1");
        assert!(variables(Some(json!({"services": 3})), None, None).is_empty());
    }

    #[test]
    fn local_api_takes_the_place_of_the_clusters() {
        let link = |name: &str| {
            Some(json!({"services": [
            {"name": name, "clusterIP": "10.0.0.1", "ports": [{"port": 443, "name": "https"}]}]}))
        };
        let api = |all, api, local: &str| {
            let vars = variables(all, api, Some(local.parse().unwrap())).into_iter();
            vars.filter(|(name, _)| name.starts_with("KUBERNETES_SERVICE_"))
                .map(|(_, value)| value)
                .collect::<Vec<String>>()
        };
        let wanted = ["10.85.0.1", "6443", "6443"];
        assert_eq!(api(None, link("kubernetes"), "10.85.0.1"), wanted);
        assert_eq!(api(link("kubernetes"), link("kubernetes"), "10.85.0.1"), wanted, "in namespace default");
        assert_eq!(api(None, None, "10.85.0.1"), wanted, "the bridge has sent no Service yet");
        assert_eq!(api(None, None, "fd00::1"), ["fd00::1", "6443", "6443"]);
        let web = variables(link("web"), None, "::1".parse().ok());
        assert_eq!(web.iter().filter(|(name, _)| name.starts_with("WEB_")).count(), 8, "others stay");
    }
}
