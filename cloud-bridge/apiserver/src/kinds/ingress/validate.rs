//! Rules of Ingresses, after pkg/apis/networking/validation of Kubernetes 1.36.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::kinds::ingress_class::reference;
use apimachinery::field::{Errors, FieldError, invalid_number, invalid_text};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;

/// What named the class before there was a field for it.
pub(super) const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const SUBDOMAIN_MAX: usize = 253;
const NOT_AN_ADDRESS: &str = "must be a DNS name, not an IP address";

/// Validates a new Ingress.
pub(super) fn create(ingress: &Value) -> Vec<FieldError> {
    let mut errors = all(ingress, false);
    let old = present(&ingress["metadata"]["annotations"], CLASS_ANNOTATION);
    if let (Some(old), Some(class)) = (old, present(&ingress["spec"], "ingressClassName"))
        && old != class
    {
        let detail = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(format!("annotations.{CLASS_ANNOTATION}"), old, detail));
    }
    errors
}

/// Validates a change of one. What an old one has wrong in names of secrets may stay.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let wrong = items(&old["spec"], "tls").iter().any(|tls| !secret_name(text(tls, "secretName")).is_empty());
    all(new, wrong)
}

fn all(ingress: &Value, any_secret: bool) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &ingress["spec"];
    let backend = present(spec, "defaultBackend");
    if items(spec, "rules").is_empty() && backend.is_none() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", &spec["rules"], detail));
    }
    if let Some(one) = backend {
        self::backend(&mut errors, "spec.defaultBackend", one);
    }
    for (i, rule) in items(spec, "rules").iter().enumerate() {
        self::rule(&mut errors, &format!("spec.rules[{i}]"), rule);
    }
    for (i, tls) in items(spec, "tls").iter().enumerate() {
        for (j, host) in items(tls, "hosts").iter().filter_map(Value::as_str).enumerate() {
            invalid_text(&mut errors, &format!("spec.tls[{i}].hosts[{j}]"), host, wrong_host(host));
        }
        if !any_secret {
            let secret = text(tls, "secretName");
            invalid_text(&mut errors, &format!("spec.tls[{i}].secretName"), secret, secret_name(secret));
        }
    }
    if let Some(class) = present(spec, "ingressClassName").and_then(Value::as_str) {
        invalid_text(&mut errors, "spec.ingressClassName", class, names::dns_subdomain(class));
    }
    errors
}

fn secret_name(name: &str) -> Vec<String> {
    if name.is_empty() { Vec::new() } else { names::dns_subdomain(name) }
}

/// Errors of a host name, which may begin with a wildcard.
fn wrong_host(host: &str) -> Vec<String> {
    if !host.contains('*') {
        return names::dns_subdomain(host);
    }
    let mut wrong = Vec::new();
    if host.len() > SUBDOMAIN_MAX {
        wrong.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if host.strip_prefix("*.").is_none_or(|rest| !names::dns_subdomain(rest).is_empty()) {
        let rule = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                    consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        let pattern = "\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
        wrong.push(names::pattern_message(rule, pattern, &["*.example.com"]));
    }
    wrong
}

fn rule(errors: &mut Errors, path: &str, rule: &Value) {
    let host = text(rule, "host");
    if !host.is_empty() {
        let at = format!("{path}.host");
        if host.parse::<IpAddr>().is_ok() {
            errors.push(FieldError::invalid(at.as_str(), &host.into(), NOT_AN_ADDRESS));
        }
        invalid_text(errors, &at, host, wrong_host(host));
    }
    let Some(http) = present(rule, "http") else { return };
    let path = format!("{path}.http.paths");
    if items(http, "paths").is_empty() {
        errors.push(FieldError::required(path.as_str(), ""));
    }
    for (i, one) in items(http, "paths").iter().enumerate() {
        http_path(errors, &format!("{path}[{i}]"), one);
    }
}

fn http_path(errors: &mut Errors, path: &str, one: &Value) {
    let at = format!("{path}.path");
    let (value, shown) = (text(one, "path"), Value::from(text(one, "path")));
    let Some(kind) = present(one, "pathType") else {
        errors.push(FieldError::required(format!("{path}.pathType"), "pathType must be specified"));
        return;
    };
    let absolute = value.starts_with('/');
    let mut complain = |detail: &str| errors.push(FieldError::invalid(at.as_str(), &shown, detail));
    match kind.as_str().unwrap_or_default() {
        "Exact" | "Prefix" => {
            if !absolute {
                complain("must be an absolute path");
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|one| value.contains(**one)) {
                complain(&format!("must not contain '{sequence}'"));
            }
            for end in ["/..", "/."].iter().filter(|end| value.ends_with(**end)) {
                complain(&format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" if value.is_empty() || absolute => {}
        "ImplementationSpecific" => complain("must be an absolute path"),
        _ => {
            let known = &["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(FieldError::not_supported(format!("{path}.pathType"), kind, known));
        }
    }
    backend(errors, &format!("{path}.backend"), &one["backend"]);
}

fn backend(errors: &mut Errors, path: &str, backend: &Value) {
    let nothing = Value::from("");
    match (present(backend, "resource"), present(backend, "service")) {
        (Some(_), Some(_)) => {
            errors.push(FieldError::invalid(path, &nothing, "cannot set both resource and service backends"));
        }
        (Some(resource), None) => reference(errors, &format!("{path}.resource"), resource),
        (None, Some(service)) => self::service(errors, path, service),
        (None, None) => errors.push(FieldError::invalid(path, &nothing, "resource or service backend is required")),
    }
}

fn service(errors: &mut Errors, path: &str, service: &Value) {
    let at = format!("{path}.service.name");
    match text(service, "name") {
        "" => errors.push(FieldError::required(at, "")),
        name => invalid_text(errors, &at, name, names::dns_label(name)),
    }
    let port = &service["port"];
    match (text(port, "name"), integer(port, "number").unwrap_or_default()) {
        ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
        ("", number) => {
            invalid_number(errors, &format!("{path}.service.port.number"), number, names::port_number(number))
        }
        (name, 0) => invalid_text(errors, &format!("{path}.service.port.name"), name, names::port_name(name)),
        _ => errors.push(FieldError::invalid(path, &"".into(), "cannot set both port name & port number")),
    }
}

fn points(ingress: &Value) -> &[Value] {
    items(&ingress["status"]["loadBalancer"], "ingress")
}

/// Validates a change of the status. Addresses that the old one had may stay.
pub(super) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let known: HashSet<&str> = points(old).iter().map(|one| text(one, "ip")).collect();
    for (i, one) in points(new).iter().enumerate() {
        let path = format!("status.loadBalancer.ingress[{i}]");
        let (ip, host) = (text(one, "ip"), text(one, "hostname"));
        if !ip.is_empty() && !known.contains(ip) {
            invalid_text(&mut errors, &format!("{path}.ip"), ip, names::ip_address(ip));
        }
        if !host.is_empty() {
            let at = format!("{path}.hostname");
            invalid_text(&mut errors, &at, host, names::dns_subdomain(host));
            if host.parse::<IpAddr>().is_ok() {
                errors.push(FieldError::invalid(at, &host.into(), NOT_AN_ADDRESS));
            }
        }
    }
    errors
}
