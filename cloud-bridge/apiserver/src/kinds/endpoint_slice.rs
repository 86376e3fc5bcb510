//! EndpointSlices.

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1;
use serde_json::Value;

use super::columns::{AGE, NAME, age, name, with_more};
use super::kind::{Kind, PLAIN};
use crate::codec::decode;
use apimachinery::json::{integer, items, items_mut, set_default, set_default_text, text};

pub(crate) static KIND: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    namespaced: true,
    check: Some(decode::check::<v1::EndpointSlice>),
    generation: Some(changed),
    default,
    columns: &[
        NAME,
        ("AddressType", "string", 0, "Type of all addresses in this slice."),
        ("Ports", "string", 0, "Ports of each endpoint."),
        ("Endpoints", "string", 0, "Addresses in this slice."),
        AGE,
    ],
    row,
    ..PLAIN
};

/// All but the metadata counts, and of that the labels.
fn changed(new: &Value, old: &Value) -> bool {
    let body = |slice: &Value| {
        let mut slice = slice.clone();
        slice.as_object_mut().map(|map| map.remove("metadata"));
        slice
    };
    body(new) != body(old) || new["metadata"]["labels"] != old["metadata"]["labels"]
}

fn default(slice: &mut Value) {
    for port in items_mut(slice, "ports") {
        set_default(port, "name", "");
        set_default_text(port, "protocol", "TCP");
    }
}

fn row(slice: &Value, now: Timestamp) -> Vec<Value> {
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
