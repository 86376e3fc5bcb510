//! EndpointSlices.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1;
use serde_json::Value;

use super::columns::{AGE, NAME, Table, age, name, with_more};
use super::kind::{Kind, PLAIN};
use super::service::validate::endpoint_ip;
use crate::codec::decode;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text, one_of, too_many};
use apimachinery::json::{integer, items, items_mut, set_default, set_default_text, text};
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    namespaced: true,
    check: Some(decode::check::<v1::EndpointSlice>),
    generation: Some(changed),
    default,
    create: |slice| validate(slice, &Value::Null),
    update: validate,
    warnings: |slice| {
        let named = text(slice, "addressType") == "FQDN";
        named.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect()
    },
    table: &Table {
        columns: [
            NAME,
            ("AddressType", "string", 0, "Type of all addresses in this slice."),
            ("Ports", "string", 0, "Ports of each endpoint."),
            ("Endpoints", "string", 0, "Addresses in this slice."),
            AGE,
        ],
        row,
    },
    ..PLAIN
};

/// Limits of one slice, and of one endpoint (`maxEndpoints`, `maxAddresses`).
const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;

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

/// The part of `ValidateEndpointSlice` (K8s pkg/apis/discovery/validation) that consumers of the addresses rely on.
fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let of = text(new, "addressType");
    one_of(&mut errors, "addressType".to_owned(), of, &["FQDN", "IPv4", "IPv6"]);
    if !old.is_null() {
        immutable(&mut errors, "addressType", &new["addressType"], &old["addressType"]);
    }
    // What an earlier version took may stay.
    if new["endpoints"] != old["endpoints"] {
        endpoints(&mut errors, of, items(new, "endpoints"));
    }
    errors
}

fn endpoints(errors: &mut Errors, of: &str, endpoints: &[Value]) {
    if endpoints.len() > MOST_ENDPOINTS {
        errors.push(too_many("endpoints", endpoints.len(), MOST_ENDPOINTS));
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = format!("endpoints[{i}].addresses");
        let addresses = items(endpoint, "addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(path.clone(), "must contain at least 1 address"));
        } else if addresses.len() > MOST_ADDRESSES {
            errors.push(too_many(path.clone(), addresses.len(), MOST_ADDRESSES));
        }
        for (j, address) in addresses.iter().enumerate() {
            let (path, address) = (format!("{path}[{j}]"), address.as_str().unwrap_or_default());
            let wrong = match address.parse::<IpAddr>() {
                _ if of == "FQDN" => {
                    invalid_text(errors, &path, address, names::dns_subdomain(address));
                    continue;
                }
                Ok(ip) if of == "IPv4" && !ip.is_ipv4() => Some("must be an IPv4 address"),
                Ok(ip) if of == "IPv6" && !ip.is_ipv6() => Some("must be an IPv6 address"),
                _ => None,
            };
            errors.extend(wrong.map(|wrong| FieldError::invalid(path.clone(), &address.into(), wrong)));
            endpoint_ip(errors, &path, address);
        }
    }
}

fn row(slice: &Value, now: Timestamp) -> [Value; 5] {
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
    [
        name(slice),
        text(slice, "addressType").into(),
        with_more(&ports, "<unset>").into(),
        with_more(&addresses, "<unset>").into(),
        age(slice, now),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_of_their_type_and_lead_to_no_loopback() {
        let of = |kind: &str, endpoints: Value| {
            let slice = json!({"addressType": kind, "endpoints": endpoints});
            validate(&slice, &Value::Null).into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        let one = |address: &str| json!([{"addresses": [address]}]);
        assert!(of("IPv4", one("192.0.2.7")).is_empty() && of("IPv6", one("2001:db8::7")).is_empty());
        assert!(of("FQDN", one("a.example")).is_empty() && of("IPv4", json!([])).is_empty());
        for (kind, address) in [
            ("IPv4", "127.0.0.1"),
            ("IPv4", "169.254.169.254"),
            ("IPv4", "2001:db8::7"),
            ("IPv4", "0.0.0.0"),
            ("IPv6", "::1"),
            ("IPv6", "::ffff:127.0.0.1"),
            ("IPv6", "::ffff:169.254.169.254"),
            ("IPv6", "192.0.2.7"),
            ("IPv4", "a.example"),
            ("FQDN", "a..b"),
        ] {
            assert_eq!(of(kind, one(address)), ["endpoints[0].addresses[0]"], "{kind} {address}");
        }
        assert_eq!(of("IPv4", json!([{"addresses": []}])), ["endpoints[0].addresses"]);
        assert_eq!(of("IPv4", json!([{"addresses": vec!["192.0.2.7"; 101]}])), ["endpoints[0].addresses"]);
        assert_eq!(of("IPv4", json!(vec![json!({"addresses": ["192.0.2.7"]}); 1001])), ["endpoints"]);
        assert_eq!(of("IPv5", json!([])), ["addressType"]);
    }

    #[test]
    fn the_type_stays_and_what_was_taken_may() {
        let slice = |kind: &str, address: &str| json!({"addressType": kind, "endpoints": [{"addresses": [address]}]});
        let old = slice("IPv4", "127.0.0.1");
        assert!(validate(&old, &old).is_empty());
        assert_eq!(validate(&slice("IPv4", "127.0.0.2"), &old).len(), 1);
        assert!(!validate(&slice("IPv6", "2001:db8::7"), &old).is_empty());
    }
}
