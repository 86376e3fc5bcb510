//! The row of a service.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, name, or_none};
use apimachinery::json::{integer, items, text, text_entries};

/// Table of services.
pub(crate) const TABLE: Table<7> = Table {
    columns: [
        NAME,
        ("Type", "string", 0, "How the service is exposed."),
        ("Cluster-IP", "string", 0, "Address of the service within the cluster."),
        ("External-IP", "string", 0, "Addresses of the service outside of the cluster."),
        ("Port(s)", "string", 0, "Ports of the service."),
        AGE,
        ("Selector", "string", 1, "Labels of the pods behind the service."),
    ],
    row,
};

/// The cells of one service.
fn row(service: &Value, now: Timestamp) -> [Value; 7] {
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
    [
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
