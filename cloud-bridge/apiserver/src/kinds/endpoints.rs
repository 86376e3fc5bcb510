//! Endpoints.

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use serde_json::Value;

use super::columns::{AGE, NAME, Table, age, name, with_more};
use super::kind::{Kind, PLAIN};
use super::service::validate::{endpoint_ip, port_and_protocol, port_name};
use crate::codec::decode;
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{integer, items, items_mut, set_default_text, text};
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    namespaced: true,
    check: Some(decode::check::<v1::Endpoints>),
    rules: Rules {
        allow_create_on_update: true,
        deprecated: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ..Rules::BUILT_IN
    },
    default,
    create: validate,
    update: |new, _| validate(new),
    table: &Table { columns: [NAME, ("Endpoints", "string", 0, "Addresses and ports behind the service."), AGE], row },
    ..PLAIN
};

fn default(endpoints: &mut Value) {
    for subset in items_mut(endpoints, "subsets") {
        for port in items_mut(subset, "ports") {
            set_default_text(port, "protocol", "TCP");
        }
    }
}

fn validate(endpoints: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    for (i, subset) in items(endpoints, "subsets").iter().enumerate() {
        let path = format!("subsets[{i}]");
        if items(subset, "addresses").is_empty() && items(subset, "notReadyAddresses").is_empty() {
            errors.push(FieldError::required(path.clone(), "must specify `addresses` or `notReadyAddresses`"));
        }
        for list in ["addresses", "notReadyAddresses"] {
            for (j, address) in items(subset, list).iter().enumerate() {
                let path = format!("{path}.{list}[{j}].ip");
                let ip = text(address, "ip");
                invalid_text(&mut errors, &path, ip, names::ip_address(ip));
                endpoint_ip(&mut errors, &path, ip);
            }
        }
        let ports = items(subset, "ports");
        for (j, port) in ports.iter().enumerate() {
            let path = format!("{path}.ports[{j}]");
            port_name(&mut errors, &path, port, ports.len() > 1);
            port_and_protocol(&mut errors, &path, port);
        }
    }
    errors
}

fn row(endpoints: &Value, now: Timestamp) -> [Value; 3] {
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
    [name(endpoints), shown.into(), age(endpoints, now)]
}
