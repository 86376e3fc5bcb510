//! NetworkPolicies, stored as Kubernetes stores them. Nodes hold to them.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::api::networking::v1;
use serde_json::{Map, Value, json};

use super::cidr;
use super::columns::{AGE, NAME, Table, age, name};
use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, spec_changed};
use super::workload::selector::selector;
use crate::codec::decode;
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, invalid_number, invalid_text};
use apimachinery::json::{integer, items, items_mut, present, set_default, text};
use apimachinery::names;
use apimachinery::selector::format_label_selector;

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    singular: "networkpolicy",
    short_names: &["netpol"],
    namespaced: true,
    check: Some(decode::check::<v1::NetworkPolicy>),
    rules: Rules { structures: &["spec"], ..Rules::BUILT_IN },
    generation: Some(spec_changed),
    default,
    create: |policy| validate(policy, &Value::Null),
    update: validate,
    table: &Table { columns: [NAME, ("Pod-Selector", "string", 0, "Labels of the pods that it is for."), AGE], row },
    ..PLAIN
};

/// Follows pkg/apis/networking/v1/defaults.go.
fn default(policy: &mut Value) {
    let Some(spec) = policy.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    set_default(spec, "podSelector", Value::Object(Map::new()));
    for (direction, _) in DIRECTIONS {
        for rule in items_mut(spec, direction) {
            items_mut(rule, "ports").for_each(|port| set_default(port, "protocol", "TCP"));
        }
    }
    drop_zero(spec, &["policyTypes", "ingress", "egress"]);
    let types = if items(spec, "egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    set_default(spec, "policyTypes", types);
}

/// K8s pkg/apis/networking/validation. Ranges that the old object had may stay as they are.
fn validate(policy: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &policy["spec"];
    let known = ranges(&old["spec"]);
    selector(&mut errors, "spec.podSelector", &spec["podSelector"]);
    for (direction, peers) in DIRECTIONS {
        for (i, rule) in items(spec, direction).iter().enumerate() {
            let path = format!("spec.{direction}[{i}]");
            for (j, one) in items(rule, "ports").iter().enumerate() {
                port(&mut errors, &format!("{path}.ports[{j}]"), one);
            }
            for (j, one) in items(rule, peers).iter().enumerate() {
                peer(&mut errors, &format!("{path}.{peers}[{j}]"), one, &known);
            }
        }
    }
    const TYPES: &[&str] = &["Ingress", "Egress"];
    let types = items(spec, "policyTypes");
    if types.len() > TYPES.len() {
        let detail = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid("spec.policyTypes", &spec["policyTypes"], detail));
        return errors;
    }
    for (i, one) in types.iter().enumerate().filter(|(_, one)| !one.as_str().is_some_and(|one| TYPES.contains(&one))) {
        errors.push(FieldError::not_supported(format!("spec.policyTypes[{i}]"), one, TYPES));
    }
    errors
}

fn ranges(spec: &Value) -> HashSet<&str> {
    let rules =
        DIRECTIONS.iter().flat_map(|(direction, peers)| items(spec, direction).iter().map(move |one| (one, peers)));
    let blocks = rules.flat_map(|(rule, peers)| items(rule, peers)).map(|peer| &peer["ipBlock"]);
    blocks.flat_map(|block| items(block, "except").iter().chain([&block["cidr"]])).filter_map(Value::as_str).collect()
}

fn port(errors: &mut Errors, path: &str, port: &Value) {
    const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];
    if let Some(protocol) = present(port, "protocol")
        && !protocol.as_str().is_some_and(|protocol| PROTOCOLS.contains(&protocol))
    {
        errors.push(FieldError::not_supported(format!("{path}.protocol"), protocol, PROTOCOLS));
    }
    let (at, end_at, end) = (format!("{path}.port"), format!("{path}.endPort"), integer(port, "endPort"));
    let mut no_end = |detail: &str| {
        if let Some(end) = end {
            errors.push(FieldError::invalid(end_at.as_str(), &end.into(), detail));
        }
    };
    match present(port, "port") {
        None => no_end("may not be specified when `port` is not specified"),
        Some(Value::String(name)) => {
            no_end("may not be specified when `port` is non-numeric");
            invalid_text(errors, &at, name, names::port_name(name));
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or_default();
            invalid_number(errors, &at, number, names::port_number(number));
            if let Some(end) = end {
                if end < number {
                    let detail = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(end_at.as_str(), &number.into(), detail));
                }
                invalid_number(errors, &end_at, end, names::port_number(end));
            }
        }
    }
}

fn peer(errors: &mut Errors, path: &str, peer: &Value, known: &HashSet<&str>) {
    let mut peers = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(chosen) = present(peer, field) {
            peers += 1;
            selector(errors, &format!("{path}.{field}"), chosen);
        }
    }
    match present(peer, "ipBlock") {
        None if peers == 0 => errors.push(FieldError::required(path, "must specify a peer")),
        None => {}
        Some(block) => {
            ip_block(errors, &format!("{path}.ipBlock"), block, known);
            if peers > 0 {
                errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
            }
        }
    }
}

fn ip_block(errors: &mut Errors, path: &str, block: &Value, known: &HashSet<&str>) {
    let mut read = |at: &str, text: &str| match cidr::read(text) {
        Ok(cidr) => Some(cidr),
        Err((why, cidr)) => {
            if !known.contains(text) {
                errors.push(FieldError::invalid(at, &text.into(), &why));
            }
            cidr
        }
    };
    let whole = match text(block, "cidr") {
        "" => return errors.push(FieldError::required(format!("{path}.cidr"), "")),
        text => read(&format!("{path}.cidr"), text),
    };
    let Some(whole) = whole else { return };
    let mut outside = Vec::new();
    for (i, except) in items(block, "except").iter().enumerate() {
        let at = format!("{path}.except[{i}]");
        if read(&at, except.as_str().unwrap_or_default()).is_some_and(|part| !whole.is_beyond(part)) {
            outside.push(FieldError::invalid(at, except, "must be a strict subset of `cidr`"));
        }
    }
    errors.extend(outside);
}

fn row(policy: &Value, now: Timestamp) -> [Value; 3] {
    [name(policy), format_label_selector(&policy["spec"]["podSelector"]).into(), age(policy, now)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(spec: Value) -> Vec<String> {
        let mut policy = json!({ "spec": spec });
        default(&mut policy);
        validate(&policy, &Value::Null).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_policy_says_what_it_is_for() {
        let mut policy = json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}});
        default(&mut policy);
        let spec = json!({"podSelector": {}, "egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}],
            "policyTypes": ["Ingress", "Egress"]});
        assert_eq!(policy["spec"], spec);
        let mut empty = json!({"spec": {"ingress": []}});
        default(&mut empty);
        assert_eq!(empty["spec"], json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    }

    #[test]
    fn peers_and_ports_are_whole() {
        let none: [&str; 0] = [];
        let from = |peer: Value| complaints(json!({"ingress": [{"from": [peer]}]}));
        assert_eq!(from(json!({"podSelector": {}, "namespaceSelector": {}})), none);
        assert_eq!(from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}})), none);
        let path = "spec.ingress[0].from[0]";
        assert_eq!(from(json!({})), [format!("{path}: Required value: must specify a peer")]);
        let both = from(json!({"podSelector": {}, "ipBlock": {"cidr": "::/0"}}));
        assert_eq!(both, [format!("{path}: Forbidden: may not specify both ipBlock and another peer")]);
        let outside = from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}));
        assert_eq!(
            outside,
            [format!("{path}.ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`")]
        );
        assert!(from(json!({"ipBlock": {"cidr": "here"}}))[0].starts_with(&format!("{path}.ipBlock.cidr: Invalid")));
        let to = |port: Value| complaints(json!({"egress": [{"ports": [port]}]}));
        let path = "spec.egress[0].ports[0]";
        assert_eq!(to(json!({"port": 80, "endPort": 90})), none);
        assert_eq!(to(json!({"port": "http"})), none);
        assert_eq!(
            to(json!({"port": "http", "endPort": 90})),
            [format!("{path}.endPort: Invalid value: 90: may not be specified when `port` is non-numeric")]
        );
        assert_eq!(
            to(json!({"port": 90, "endPort": 80})),
            [format!("{path}.endPort: Invalid value: 90: must be greater than or equal to `port`")]
        );
        let types = complaints(json!({"policyTypes": ["Both"]}));
        assert_eq!(
            types,
            ["spec.policyTypes[0]: Unsupported value: \"Both\": supported values: \"Ingress\", \"Egress\""]
        );
    }

    #[test]
    fn a_range_that_was_there_before_may_stay() {
        let policy = json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.1/8"}}]}]}});
        assert_eq!(validate(&policy, &Value::Null).len(), 1);
        assert_eq!(validate(&policy, &policy), []);
    }
}
