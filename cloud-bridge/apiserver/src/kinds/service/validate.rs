//! Rules of services.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::kinds::pod::validate::probe;
use crate::resource::object_meta;
use apimachinery::field::{Errors, FieldError, invalid_number, invalid_text, one_of};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
/// Longest session affinity: a day.
const AFFINITY_MAX: i64 = 86400;

/// Validates a Service.
pub(crate) fn create(service: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &service["spec"];
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = items(spec, "ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if headless && ["LoadBalancer", "NodePort"].contains(&kind) {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &"None".into(), &detail));
    }
    if kind == "ExternalName" {
        external_name(&mut errors, spec);
    }
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{i}]");
        port_name(&mut errors, &path, port, ports.len() > 1);
        let name = text(port, "name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        port_and_protocol(&mut errors, &path, port);
        probe::port(&mut errors, &format!("{path}.targetPort"), &port["targetPort"]);
    }
    object_meta::labels(&mut errors, "spec.selector", spec, "selector");
    session_affinity(&mut errors, spec);
    for (i, ip) in items(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        let path = format!("spec.externalIPs[{i}]");
        let complaints = names::ip_address(ip);
        if complaints.is_empty() {
            endpoint_ip(&mut errors, &path, ip);
        }
        invalid_text(&mut errors, &path, ip, complaints);
    }
    one_of(&mut errors, "spec.type".into(), kind, TYPES);
    duplicate_ports(&mut errors, ports, kind);
    errors
}

/// Validates a change of a Service.
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    addresses(&mut errors, &new["spec"], &old["spec"]);
    errors.extend(create(new));
    errors
}

/// Allocated values of a Service cannot change (`upgradeDowngradeClusterIPsErrs`).
fn addresses(errors: &mut Errors, new: &Value, old: &Value) {
    let named = [new, old].iter().any(|spec| text(spec, "type") == "ExternalName");
    let headless = [new, old].iter().all(|spec| text(spec, "clusterIP") == "None");
    if named || headless {
        return;
    }
    let (now, before) = (items(new, "clusterIPs"), items(old, "clusterIPs"));
    for (i, ip) in before.iter().enumerate() {
        let why = match now.get(i) {
            Some(now) if now != ip => "may not change once set",
            None if i == 0 => "primary clusterIP can not be unset",
            _ => continue,
        };
        errors.push(FieldError::invalid(format!("spec.clusterIPs[{i}]"), &new["clusterIPs"], why));
    }
    if now.len() == 1 && before.len() > 1 && text(new, "ipFamilyPolicy") != "SingleStack" {
        let why = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", &new["ipFamilyPolicy"], why));
    }
}

fn external_name(errors: &mut Errors, spec: &Value) {
    if !text(spec, "clusterIP").is_empty() {
        errors.push(FieldError::forbidden("spec.clusterIPs", "may not be set for ExternalName services"));
    }
    let name = text(spec, "externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.push(FieldError::required("spec.externalName", "")),
        name => invalid_text(errors, "spec.externalName", name, names::dns_subdomain(name)),
    }
}

/// A port's name, which must be there if there are others.
pub(crate) fn port_name(errors: &mut Errors, path: &str, port: &Value, required: bool) {
    match text(port, "name") {
        "" if required => errors.push(FieldError::required(format!("{path}.name"), "")),
        "" => {}
        name => invalid_text(errors, &format!("{path}.name"), name, names::dns_label(name)),
    }
}

/// A port's number and protocol.
pub(crate) fn port_and_protocol(errors: &mut Errors, path: &str, port: &Value) {
    let number = integer(port, "port").unwrap_or_default();
    invalid_number(errors, &format!("{path}.port"), number, names::port_number(number));
    one_of(errors, format!("{path}.protocol"), text(port, "protocol"), PROTOCOLS);
}

fn session_affinity(errors: &mut Errors, spec: &Value) {
    let kind = text(spec, "sessionAffinity");
    one_of(errors, "spec.sessionAffinity".into(), kind, &["ClientIP", "None"]);
    if kind == "ClientIP" {
        let seconds = integer(&spec["sessionAffinityConfig"]["clientIP"], "timeoutSeconds").unwrap_or_default();
        if !(1..=AFFINITY_MAX).contains(&seconds) {
            let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            let detail = format!("must be greater than 0 and less than {AFFINITY_MAX}");
            errors.push(FieldError::invalid(path, &seconds.into(), &detail));
        }
    } else if kind == "None" && present(spec, "sessionAffinityConfig").is_some() {
        let detail = "must not be set when session affinity is None";
        errors.push(FieldError::forbidden("spec.sessionAffinityConfig", detail));
    }
}

fn duplicate_ports(errors: &mut Errors, ports: &[Value], kind: &str) {
    let node_port = |port: &Value| integer(port, "nodePort").filter(|n| *n != 0);
    if kind == "ClusterIP" {
        for (i, _) in ports.iter().enumerate().filter(|(_, p)| node_port(p).is_some()) {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(format!("spec.ports[{i}].nodePort"), detail));
        }
    }
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        if let Some(number) = node_port(port)
            && !seen.insert((text(port, "protocol"), number))
        {
            errors.push(FieldError::duplicate(format!("spec.ports[{i}].nodePort"), &number.into()));
        }
    }
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let number = integer(port, "port").unwrap_or_default();
        if !seen.insert((text(port, "protocol"), number)) {
            let shown = Value::from(format!("{}/{number}", text(port, "protocol")));
            errors.push(FieldError::duplicate(format!("spec.ports[{i}]"), &shown));
        }
    }
}

/// Refuses addresses to which another machine cannot connect.
pub(crate) fn endpoint_ip(errors: &mut Errors, path: &str, text: &str) {
    let Ok(ip) = text.parse::<IpAddr>() else {
        errors.push(FieldError::invalid(path, &text.into(), "must be a valid IP address"));
        return;
    };
    // `::ffff:127.0.0.1` is 127.0.0.1, as for Go (K8s pkg/apis/core/validation, `ValidateNonSpecialIP`).
    let ip = ip.to_canonical();
    let (link_local, link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0 == 0xfe80, ip.segments()[0] & 0xff0f == 0xff02),
    };
    let complaint = if ip.is_unspecified() {
        format!("may not be unspecified ({text})")
    } else if ip.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return;
    };
    errors.push(FieldError::invalid(path, &text.into(), &complaint));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_may_not_change_once_set() {
        let of = |ips: Value| json!({"clusterIP": ips[0], "clusterIPs": ips, "ipFamilyPolicy": "PreferDualStack"});
        let told = |new: Value, old: Value| {
            let mut errors = Errors::new();
            addresses(&mut errors, &new, &old);
            errors.iter().map(|one| format!("{}: {}", one.field, one.message)).collect::<Vec<_>>()
        };
        let old = of(json!(["10.96.0.9"]));
        assert_eq!(told(old.clone(), old.clone()), [""; 0]);
        assert_eq!(
            told(of(json!(["10.96.0.8"])), old.clone()),
            ["spec.clusterIPs[0]: Invalid value: [\"10.96.0.8\"]: may not change once set"]
        );
        assert_eq!(
            told(json!({"clusterIPs": []}), old.clone()),
            ["spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset"]
        );
        assert_eq!(told(old.clone(), of(json!(["10.96.0.9", "fd00::1"]))).len(), 1);
        assert_eq!(told(json!({"type": "ExternalName"}), old), [""; 0]);
    }
}
