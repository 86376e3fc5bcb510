//! ServiceCIDRs: ranges of addresses that Services get. The one called `kubernetes` is the range that the API was started
//! with (`service/cluster_ip.rs`).

use jiff::Timestamp;
use k8s_openapi::api::networking::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::cidr::read_canonical;
use super::columns::{AGE, NAME, Table, age, name};
use super::kind::{Kind, PLAIN, any_status, keep_status};
use super::service::range::ServiceRange;
use crate::codec::decode;
use crate::patch::merge_keys::{CONDITIONS, META, Type, object};
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::items;
use apimachinery::meta;

/// Where they are stored.
pub(crate) const STORAGE: &str = "servicecidrs.networking.k8s.io";
/// Name of the object for the API's own range.
pub(crate) const DEFAULT: &str = "kubernetes";
/// Keeps one whose addresses Services have.
pub(crate) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const IMMUTABLE: &str = "field is immutable";

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    singular: "servicecidr",
    check: Some(decode::check::<v1::ServiceCIDR>),
    rules: Rules { immortal: &[DEFAULT], ..Rules::SPEC_AND_STATUS },
    prepare_create,
    prepare_update: keep_status,
    create: validate,
    update,
    status: Some(any_status),
    table: &Table {
        columns: [NAME, ("CIDRs", "string", 0, "Ranges of addresses for Services."), AGE],
        row: |cidr, now| [name(cidr), ranges(cidr).collect::<Vec<_>>().join(",").into(), age(cidr, now)],
    },
    keys: &Type { fields: &[META, object("status", &CONDITIONS)] },
    ..PLAIN
};

/// Its ranges as text.
pub(crate) fn ranges(cidr: &Value) -> impl Iterator<Item = &str> {
    items(&cidr["spec"], "cidrs").iter().filter_map(Value::as_str)
}

/// A written range is in force at once, because allocations read the same storage. So it is ready, if addresses can be
/// allocated from it here.
fn prepare_create(cidr: &mut Value) {
    let mut finalizers = meta::finalizers(cidr);
    if !finalizers.iter().any(|one| one == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
        meta::set_finalizers(cidr, &finalizers);
    }
    let usable = ranges(cidr).any(|range| ServiceRange::parse(range).is_ok());
    let ready = match usable {
        true => condition("True", "", "Kubernetes Service CIDR is ready"),
        false => condition(
            "False",
            "NoUsableRange",
            "Services get IPv4 addresses here, of ranges with a prefix from 8 to 30",
        ),
    };
    cidr.set("status", json!({"conditions": [ready]}));
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    let since = meta::rfc3339(Timestamp::now());
    json!({"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
}

/// The condition that it cannot be deleted yet; `None` if it has it already.
pub(crate) fn terminating(cidr: &Value) -> Option<Value> {
    const REASON: &str = "Terminating";
    let why = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
    let is_ready = |one: &&Value| one["type"] == "Ready";
    if items(&cidr["status"], "conditions").iter().find(is_ready).is_some_and(|one| one["reason"] == REASON) {
        return None;
    }
    let mut new = cidr.clone();
    let others = items(&cidr["status"], "conditions").iter().filter(|one| one["type"] != "Ready").cloned();
    let conditions: Vec<Value> = others.chain([condition("False", REASON, why)]).collect();
    new.set_at(&["status", "conditions"], conditions.into());
    Some(new)
}

/// K8s pkg/apis/networking/validation `validateServiceCIDRSpec`.
fn validate(cidr: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.cidrs";
    let mut errors = Errors::new();
    let texts: Vec<&str> = ranges(cidr).collect();
    match texts.len() {
        0 => errors.push(FieldError::required(PATH, "at least one CIDR required")),
        1 | 2 => {
            let mut of_v4 = Vec::new();
            for (i, text) in texts.iter().enumerate() {
                match read_canonical(text) {
                    Ok(v4) => of_v4.push(v4),
                    Err(why) => invalid_text(&mut errors, &format!("{PATH}[{i}]"), text, vec![why]),
                }
            }
            if let [one, other] = of_v4.as_slice()
                && one == other
            {
                let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                errors.push(FieldError::invalid(PATH, &cidr["spec"]["cidrs"], why));
            }
        }
        _ => errors.push(FieldError::invalid(PATH, &cidr["spec"], "may only hold up to 2 values")),
    }
    errors
}

/// K8s pkg/apis/networking/validation `ValidateServiceCIDRUpdate`: a second family may be added.
fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.cidrs";
    let mut errors = Errors::new();
    let (is, was): (Vec<&str>, Vec<&str>) = (ranges(new).collect(), ranges(old).collect());
    let grows = (was.len(), is.len()) == (1, 2);
    if is.len() != was.len() && !grows {
        errors.push(FieldError::invalid(PATH, &new["spec"]["cidrs"], IMMUTABLE));
        return errors;
    }
    for (i, (is, was)) in is.iter().zip(&was).enumerate() {
        if is != was {
            errors.push(FieldError::invalid(format!("{PATH}[{i}]"), &(*is).into(), IMMUTABLE));
        }
    }
    if grows {
        errors.extend(validate(new));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cidrs: &[&str]) -> Value {
        json!({"metadata": {"name": "more"}, "spec": {"cidrs": cidrs}})
    }

    fn fields(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_range_of_each_family_at_most() {
        assert!(validate(&of(&["10.1.0.0/16"])).is_empty());
        assert!(validate(&of(&["10.1.0.0/16", "2001:db8::/64"])).is_empty());
        assert_eq!(fields(validate(&of(&[]))), ["spec.cidrs"]);
        assert_eq!(fields(validate(&of(&["10.1.0.0/16", "10.2.0.0/16"]))), ["spec.cidrs"]);
        assert_eq!(fields(validate(&of(&["10.1.0.0/16", "::/64", "::/65"]))), ["spec.cidrs"]);
        for wrong in ["10.1.0.1/16", "10.1.0.0", "010.1.0.0/16", "2001:DB8::/64", "::ffff:10.0.0.0/104"] {
            assert_eq!(fields(validate(&of(&[wrong]))), ["spec.cidrs[0]"], "{wrong}");
        }
    }

    #[test]
    fn what_it_has_it_keeps() {
        let one = of(&["10.1.0.0/16"]);
        assert!(update(&one, &one).is_empty());
        assert!(update(&of(&["10.1.0.0/16", "2001:db8::/64"]), &one).is_empty());
        assert_eq!(fields(update(&of(&["10.2.0.0/16"]), &one)), ["spec.cidrs[0]"]);
        assert_eq!(fields(update(&of(&[]), &one)), ["spec.cidrs"]);
        assert_eq!(fields(update(&of(&["10.1.0.0/16", "10.3.0.0/16"]), &one)), ["spec.cidrs"]);
    }

    #[test]
    fn it_says_whether_addresses_are_given_of_it() {
        let ready = |cidrs: &[&str]| {
            let mut one = of(cidrs);
            prepare_create(&mut one);
            assert_eq!(meta::finalizers(&one), [FINALIZER]);
            one["status"]["conditions"][0]["status"].as_str().unwrap().to_owned()
        };
        assert_eq!(ready(&["10.1.0.0/16"]), "True");
        assert_eq!(ready(&["2001:db8::/64", "10.1.0.0/16"]), "True");
        assert_eq!(ready(&["2001:db8::/64"]), "False");
        assert_eq!(ready(&["10.1.0.0/32"]), "False");
        let told = terminating(&of(&["10.1.0.0/16"])).unwrap();
        assert_eq!(told["status"]["conditions"][0]["reason"], "Terminating");
        assert!(terminating(&told).is_none(), "once is enough");
    }
}
