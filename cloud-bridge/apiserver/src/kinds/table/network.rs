//! The rows of services, endpoints and endpoint slices.

use jiff::Timestamp;
use serde_json::Value;

use super::{AGE, NAME, Spec, age, name, or_none};
use apimachinery::json::{integer, items, text, text_entries};

/// Columns of services.
pub(crate) const SERVICE_COLUMNS: &[Spec] = &[
    NAME,
    ("Type", "string", 0, "How the service is exposed."),
    ("Cluster-IP", "string", 0, "Address of the service within the cluster."),
    ("External-IP", "string", 0, "Addresses of the service outside of the cluster."),
    ("Port(s)", "string", 0, "Ports of the service."),
    AGE,
    ("Selector", "string", 1, "Labels of the pods behind the service."),
];
/// Columns of endpoints.
pub(crate) const ENDPOINTS_COLUMNS: &[Spec] =
    &[NAME, ("Endpoints", "string", 0, "Addresses and ports behind the service."), AGE];
/// Columns of endpoint slices.
pub(crate) const ENDPOINT_SLICE_COLUMNS: &[Spec] = &[
    NAME,
    ("AddressType", "string", 0, "Type of all addresses in this slice."),
    ("Ports", "string", 0, "Ports of each endpoint."),
    ("Endpoints", "string", 0, "Addresses in this slice."),
    AGE,
];
/// Addresses and ports shown before `+ N more...`.
const SHOWN: usize = 3;

/// The cells of one service.
pub(crate) fn service(service: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &service["spec"];
    let cluster_ip = items(spec, "clusterIPs").first().and_then(Value::as_str).unwrap_or(text(spec, "clusterIP"));
    let ports: Vec<String> = items(spec, "ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (integer(port, "port").unwrap_or_default(), text(port, "protocol"));
            match integer(port, "nodePort").unwrap_or_default() {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    let selector: Vec<String> = text_entries(spec, "selector").map(|(k, v)| format!("{k}={v}")).collect();
    vec![
        name(service),
        text(spec, "type").into(),
        or_none(cluster_ip),
        external_ip(spec, &service["status"]).into(),
        or_none(&ports.join(",")),
        age(service, now),
        or_none(&selector.join(",")),
    ]
}

fn external_ip(spec: &Value, status: &Value) -> String {
    let own: Vec<&str> = items(spec, "externalIPs").iter().filter_map(Value::as_str).collect();
    match text(spec, "type") {
        "ExternalName" => text(spec, "externalName").to_owned(),
        "LoadBalancer" => {
            let mut all: Vec<&str> = items(&status["loadBalancer"], "ingress")
                .iter()
                .map(|entry| match text(entry, "ip") {
                    "" => text(entry, "hostname"),
                    ip => ip,
                })
                .filter(|address| !address.is_empty())
                .collect();
            all.sort_unstable();
            all.dedup();
            all.extend(own);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ if own.is_empty() => "<none>".to_owned(),
        _ => own.join(","),
    }
}

/// The cells of one Endpoints object.
pub(crate) fn endpoints(endpoints: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in items(endpoints, "subsets") {
        let addresses = || items(subset, "addresses").iter().map(|a| text(a, "ip"));
        let ports = items(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let port = integer(port, "port").unwrap_or_default();
            all.extend(
                addresses().map(|ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }),
            );
        }
    }
    let shown = if items(endpoints, "subsets").is_empty() { "<none>".to_owned() } else { with_more(&all, "") };
    vec![name(endpoints), shown.into(), age(endpoints, now)]
}

/// The cells of one EndpointSlice.
pub(crate) fn endpoint_slice(slice: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = items(slice, "ports")
        .iter()
        .map(|port| match (integer(port, "port"), port["name"].as_str()) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "*".to_owned(),
        })
        .collect();
    let addresses: Vec<String> = items(slice, "endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "addresses"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    vec![
        name(slice),
        text(slice, "addressType").into(),
        with_more(&ports, "<unset>").into(),
        with_more(&addresses, "<unset>").into(),
        age(slice, now),
    ]
}

fn with_more(all: &[String], empty: &str) -> String {
    let shown = all.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(",");
    if all.len() > SHOWN {
        format!("{shown} + {} more...", all.len() - SHOWN)
    } else if shown.is_empty() {
        empty.to_owned()
    } else {
        shown
    }
}
