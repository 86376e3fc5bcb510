//! Address families of Services, in a cluster whose Services have IPv4: defaults, and refusals (K8s
//! pkg/registry/core/service/storage/alloc.go `initIPFamilyFields`, pkg/apis/core/validation
//! `ValidateServiceClusterIPsRelatedFields`). Pure.

use std::net::IpAddr;

use sampan_json::SetField;
use serde_json::{Value, json};

use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{items, text};
use apimachinery::names;

const OURS: &str = "IPv4";
const FAMILIES: [&str; 2] = [OURS, "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const SINGLE: &str = "SingleStack";
const REQUIRED: &str = "RequireDualStack";
const POLICY: &str = "spec.ipFamilyPolicy";

/// Chooses the families that are left out and checks those that are given. Not for ExternalName Services.
pub(super) fn choose(service: &mut Value) -> Vec<FieldError> {
    let spec = &service["spec"];
    let alone = text(spec, "clusterIP") == "None" && spec["selector"].as_object().is_none_or(|all| all.is_empty());
    let policy = match text(spec, "ipFamilyPolicy") {
        "" if alone => REQUIRED,
        "" => SINGLE,
        given => given,
    }
    .to_owned();
    let mut families: Vec<String> =
        items(spec, "ipFamilies").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let mut errors = shapes(spec, &families, &policy);
    if errors.is_empty() {
        errors = agreement(spec, &mut families, &policy);
    }
    if errors.is_empty() && alone {
        // The endpoints of a Service without a selector may be of any family.
        if families.is_empty() {
            families.push(OURS.to_owned());
        }
        if families.len() < 2 && policy != SINGLE {
            families.extend(
                FAMILIES
                    .iter()
                    .filter(|family| **family != families[0])
                    .map(|family| (*family).to_owned())
                    .collect::<Vec<_>>(),
            );
        }
    } else if errors.is_empty() {
        if policy == REQUIRED {
            let detail = "this cluster is not configured for dual-stack services";
            errors.push(FieldError::invalid(POLICY, &policy.as_str().into(), detail));
        }
        for (i, family) in families.iter().enumerate().filter(|(_, family)| *family != OURS) {
            let detail = "not configured on this cluster";
            errors.push(FieldError::invalid(format!("spec.ipFamilies[{i}]"), &family.as_str().into(), detail));
        }
        if families.is_empty() {
            families.push(OURS.to_owned());
        }
    }
    if errors.is_empty() {
        service.set_at(&["spec", "ipFamilies"], json!(families));
        service.set_at(&["spec", "ipFamilyPolicy"], policy.into());
    }
    errors
}

/// Each field by itself.
fn shapes(spec: &Value, families: &[String], policy: &str) -> Errors {
    let mut errors = Errors::new();
    for (i, family) in families.iter().enumerate() {
        let path = format!("spec.ipFamilies[{i}]");
        if !FAMILIES.contains(&family.as_str()) {
            errors.push(FieldError::not_supported(path, &family.as_str().into(), &FAMILIES));
        } else if families[..i].contains(family) {
            errors.push(FieldError::duplicate(path, &family.as_str().into()));
        }
    }
    if !POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported(POLICY, &policy.into(), &POLICIES));
    }
    let (ip, ips) = (text(spec, "clusterIP"), items(spec, "clusterIPs"));
    let wrong = |detail: &str| FieldError::invalid("spec.clusterIPs", &spec["clusterIPs"], detail);
    let first = ips.first().and_then(Value::as_str);
    if !ip.is_empty() && first.is_some_and(|first| first != ip) {
        errors.push(wrong("first value must match `clusterIP`"));
    } else if ip.is_empty() && !ips.is_empty() {
        errors.push(wrong("must be empty when `clusterIP` is not specified"));
    }
    if ips.len() > 2 {
        errors.push(wrong("may only hold up to 2 values"));
    }
    if first == Some("None") {
        if ips.len() > 1 {
            errors.push(wrong("'None' must be the first and only value"));
        }
        return errors;
    }
    let known: Vec<Option<bool>> = addresses(spec).map(|ip| ip.map(|ip| ip.is_ipv6())).collect();
    for (i, text) in ips.iter().map(|ip| ip.as_str().unwrap_or_default()).enumerate() {
        invalid_text(&mut errors, &format!("spec.clusterIPs[{i}]"), text, names::ip_address(text));
    }
    if let [Some(one), Some(other)] = known[..]
        && one == other
    {
        errors.push(wrong("may specify no more than one IP for each IP family"));
    }
    for (i, (v6, family)) in known.iter().zip(families).enumerate() {
        let named = family_of(v6.unwrap_or_default());
        if v6.is_some() && named != family {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{i}]"), &ips[i], &detail));
        }
    }
    errors
}

/// Checks that the fields agree; adds families that only the addresses show.
fn agreement(spec: &Value, families: &mut Vec<String>, policy: &str) -> Errors {
    let mut errors = Errors::new();
    let told = families.len();
    for (what, count) in [("cluster IPs", items(spec, "clusterIPs").len()), ("IP families", told)] {
        if policy == SINGLE && count == 2 {
            let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(FieldError::invalid(POLICY, &policy.into(), &detail));
        }
    }
    for (i, ip) in addresses(spec).enumerate().skip(told) {
        match ip.map(|ip| family_of(ip.is_ipv6())) {
            Some(OURS) => families.push(OURS.to_owned()),
            Some(family) => {
                let detail = format!("{family} is not configured on this cluster");
                errors.push(FieldError::invalid(format!("spec.clusterIPs[{i}]"), &spec["clusterIPs"], &detail));
            }
            // Headless.
            None => {}
        }
    }
    errors
}

fn addresses(spec: &Value) -> impl Iterator<Item = Option<IpAddr>> {
    items(spec, "clusterIPs").iter().map(|ip| ip.as_str()?.parse().ok())
}

fn family_of(v6: bool) -> &'static str {
    FAMILIES[usize::from(v6)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(spec: Value) -> Result<(Value, Value), Vec<String>> {
        let mut service = json!({ "spec": spec });
        let errors = choose(&mut service);
        match errors.is_empty() {
            true => Ok((service["spec"]["ipFamilies"].take(), service["spec"]["ipFamilyPolicy"].take())),
            false => Err(errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()),
        }
    }

    #[test]
    fn who_says_nothing_has_ipv4_and_who_has_no_selector_both() {
        let four = json!(["IPv4"]);
        assert_eq!(chosen(json!({"selector": {"a": "b"}})).unwrap(), (four.clone(), json!("SingleStack")));
        assert_eq!(chosen(json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]})).unwrap().0, four);
        let prefers = json!({"ipFamilyPolicy": "PreferDualStack", "selector": {"a": "b"}});
        assert_eq!(chosen(prefers).unwrap(), (four.clone(), json!("PreferDualStack")));
        let headless = json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}});
        assert_eq!(chosen(headless).unwrap(), (four.clone(), json!("SingleStack")));
        let alone = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        assert_eq!(chosen(alone).unwrap(), (json!(["IPv4", "IPv6"]), json!("RequireDualStack")));
        let single = json!({"clusterIP": "None", "clusterIPs": ["None"], "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]});
        assert_eq!(chosen(single).unwrap().0, json!(["IPv6"]));
    }

    #[test]
    fn what_cannot_be_is_refused_in_kubernetes_words() {
        let dual = "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services";
        let wrong = |more: Value| {
            let mut spec = json!({"selector": {"a": "b"}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            chosen(spec).unwrap_err()
        };
        assert_eq!(wrong(json!({"ipFamilyPolicy": "RequireDualStack"})), [dual]);
        assert_eq!(
            wrong(json!({"ipFamilies": ["IPv6"]})),
            ["spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"]
        );
        let both = json!({"ipFamilies": ["IPv4", "IPv6"]});
        assert!(wrong(both)[0].contains("when multiple IP families are specified"));
        let six = json!({"clusterIP": "fd00::9", "clusterIPs": ["fd00::9"]});
        assert_eq!(
            wrong(six),
            ["spec.clusterIPs[0]: Invalid value: [\"fd00::9\"]: IPv6 is not configured on this cluster"]
        );
        let other = json!({"clusterIP": "fd00::9", "clusterIPs": ["fd00::9"], "ipFamilies": ["IPv4"]});
        assert_eq!(
            wrong(other),
            ["spec.clusterIPs[0]: Invalid value: \"fd00::9\": expected an IPv4 value as indicated by `ipFamilies[0]`"]
        );
        let not_first = json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.8"]});
        assert_eq!(
            wrong(not_first),
            ["spec.clusterIPs: Invalid value: [\"10.96.0.8\"]: first value must match `clusterIP`"]
        );
        assert!(wrong(json!({"clusterIPs": ["10.96.0.8"]}))[0].contains("must be empty when"));
        let twice = json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "10.96.0.8"]});
        assert!(wrong(twice)[0].contains("no more than one IP for each IP family"));
        assert!(
            wrong(json!({"ipFamilies": ["IPv5"]}))[0]
                .starts_with("spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values")
        );
        assert!(
            wrong(json!({"ipFamilyPolicy": "Both"}))[0]
                .starts_with("spec.ipFamilyPolicy: Unsupported value: \"Both\": supported values")
        );
        assert_eq!(wrong(json!({"clusterIP": "x", "clusterIPs": ["x"]})).len(), 1);
        for strange in [json!(1), json!([1, {}]), json!({}), json!("")] {
            drop(chosen(
                json!({"ipFamilies": strange, "clusterIPs": strange, "clusterIP": strange, "selector": strange}),
            ));
        }
    }
}
