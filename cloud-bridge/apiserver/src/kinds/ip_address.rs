//! IPAddresses: addresses of Services that another allocator holds. The API writes none, since its Services name their
//! addresses; an address held here is given to no Service (`service/cluster_ip.rs`).

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::networking::v1;
use serde_json::Value;

use super::columns::{NAME, Table, name};
use super::kind::{Kind, PLAIN};
use crate::codec::decode;
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text};
use apimachinery::json::{present, text};
use apimachinery::names;

/// Where they are stored.
pub(crate) const STORAGE: &str = "ipaddresses.networking.k8s.io";

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IPAddress",
    plural: "ipaddresses",
    singular: "ipaddress",
    short_names: &["ip"],
    check: Some(decode::check::<v1::IPAddress>),
    rules: Rules { name: address, structures: &["spec"], ..Rules::BUILT_IN },
    create: validate,
    update,
    table: &Table { columns: [NAME, ("ParentRef", "string", 0, "What the address belongs to.")], row },
    ..PLAIN
};

/// K8s apimachinery pkg/util/validation/ip.go `IsValidIP`.
fn address(name: &str) -> Vec<String> {
    let Ok(address) = name.parse::<IpAddr>() else { return names::ip_address(name) };
    if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        return vec!["must not be an IPv4-mapped IPv6 address".to_owned()];
    }
    let shown = address.to_string();
    if shown == name { Vec::new() } else { vec![format!("must be in canonical form ({shown:?})")] }
}

/// K8s pkg/apis/networking/validation `ValidateIPAddress`.
fn validate(address: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.parentRef";
    let mut errors = Errors::new();
    let Some(parent) = present(&address["spec"], "parentRef") else {
        errors.push(FieldError::required(PATH, ""));
        return errors;
    };
    match text(parent, "group") {
        "" => {}
        group => invalid_text(&mut errors, &format!("{PATH}.group"), group, names::dns_subdomain(group)),
    }
    for field in ["resource", "name", "namespace"] {
        let path = format!("{PATH}.{field}");
        match text(parent, field) {
            "" if field == "namespace" => {}
            "" => errors.push(FieldError::required(path, "")),
            value => invalid_text(&mut errors, &path, value, names::path_segment(value)),
        }
    }
    errors
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    immutable(&mut errors, "spec.parentRef", &new["spec"]["parentRef"], &old["spec"]["parentRef"]);
    errors
}

fn row(address: &Value, _now: Timestamp) -> [Value; 2] {
    let shown = present(&address["spec"], "parentRef").map(|parent| {
        let resource = match (text(parent, "resource"), text(parent, "group")) {
            (resource, "") => resource.to_lowercase(),
            (resource, group) => format!("{resource}.{group}").to_lowercase(),
        };
        let place = [resource.as_str(), text(parent, "namespace"), text(parent, "name")];
        place
            .into_iter()
            .enumerate()
            .filter(|(i, part)| *i != 1 || !part.is_empty())
            .map(|(_, part)| part)
            .collect::<Vec<_>>()
            .join("/")
    });
    [name(address), shown.unwrap_or_else(|| "<none>".to_owned()).into()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn its_name_is_an_address_as_everybody_writes_it() {
        for right in ["10.0.0.1", "255.255.255.255", "fe80::42:1dff:fe84:f9e2", "::"] {
            assert!(address(right).is_empty(), "{right}");
        }
        assert_eq!(address("::FF"), ["must be in canonical form (\"::ff\")"]);
        assert_eq!(address("::ffff:10.0.0.1"), ["must not be an IPv4-mapped IPv6 address"]);
        for wrong in ["", "010.0.0.1", "10.0.0", "a"] {
            assert!(address(wrong)[0].starts_with("must be a valid IP address"), "{wrong}");
        }
    }

    #[test]
    fn it_belongs_to_something_and_stays_with_it() {
        let one = |parent: Value| json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": parent}});
        let fields = |parent: Value| validate(&one(parent)).into_iter().map(|e| e.field).collect::<Vec<_>>();
        let parent = json!({"group": "g", "resource": "services", "namespace": "n", "name": "s"});
        assert!(fields(parent.clone()).is_empty());
        assert_eq!(fields(Value::Null), ["spec.parentRef"]);
        let wrong = json!({"group": "A_", "resource": "a/b", "namespace": ".."});
        let expected = ["group", "resource", "name", "namespace"].map(|field| format!("spec.parentRef.{field}"));
        assert_eq!(fields(wrong), expected);
        let other = json!({"resource": "services", "name": "t"});
        assert_eq!(update(&one(other.clone()), &one(parent.clone()))[0].field, "spec.parentRef");
        assert_eq!(row(&one(parent), Timestamp::UNIX_EPOCH), [json!("10.0.0.1"), json!("services.g/n/s")]);
        assert_eq!(row(&one(other), Timestamp::UNIX_EPOCH)[1], "services/t");
    }
}
