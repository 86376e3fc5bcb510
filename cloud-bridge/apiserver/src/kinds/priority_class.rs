//! PriorityClasses: names for how important pods are. The admission of pods asks them (`admission/priority.rs`).

use jiff::Timestamp;
use k8s_openapi::api::scheduling::v1;
use serde_json::{Value, json};

use super::columns::{AGE, NAME, Table, age, name};
use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN};
use crate::codec::decode;
use apimachinery::field::{Errors, FieldError, immutable, one_of};
use apimachinery::json::{flag, integer, set_default, text};
use apimachinery::meta;

/// The storage of the classes.
pub(crate) const STORAGE: &str = "priorityclasses.scheduling.k8s.io";
/// Beyond it there are only the classes of the system.
const HIGHEST: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
/// The two classes of every cluster: name, value and description.
pub(crate) const SYSTEM: &[(&str, i64, &str)] = &[
    (
        "system-node-critical",
        2 * HIGHEST + 1000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2 * HIGHEST,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];
const POLICIES: &[&str] = &["PreemptLowerPriority", "Never"];

pub(crate) static KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    check: Some(decode::check::<v1::PriorityClass>),
    generation: Some(|_, _| false),
    default,
    create: validate,
    update,
    table: &Table {
        columns: [
            NAME,
            ("Value", "integer", 0, "The priority that pods of this class get."),
            ("Global-Default", "boolean", 0, "Whether pods that name no class are of this one."),
            AGE,
            ("PreemptionPolicy", "string", 1, "Whether its pods may take the place of less important ones."),
        ],
        row,
    },
    ..PLAIN
};

/// The two classes as objects.
pub(crate) fn system(now: Timestamp) -> impl Iterator<Item = Value> {
    SYSTEM.iter().map(move |(name, value, description)| {
        let mut class = json!({"metadata": {"name": name}, "value": value, "description": description});
        default(&mut class);
        meta::fill_new(&mut class, now);
        meta::set(&mut class, "generation", 1.into());
        class
    })
}

fn default(class: &mut Value) {
    drop_zero(class, &["globalDefault", "description"]);
    set_default(class, "preemptionPolicy", "PreemptLowerPriority");
}

/// K8s pkg/apis/scheduling/validation.
fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (name, value) = (meta::text(class, "name"), integer(class, "value").unwrap_or_default());
    if name.starts_with(SYSTEM_PREFIX) {
        if let Some(why) = unlike_the_system(name, value, flag(class, "globalDefault")) {
            let detail = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
            );
            errors.push(FieldError::forbidden("metadata.name", &detail));
        }
    } else if value > HIGHEST {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(FieldError::forbidden("value", &detail));
    }
    one_of(&mut errors, "preemptionPolicy".into(), text(class, "preemptionPolicy"), POLICIES);
    errors
}

/// The difference between a class with a system name and the system's own.
fn unlike_the_system(name: &str, value: i64, default: bool) -> Option<String> {
    match SYSTEM.iter().find(|(known, ..)| *known == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, right, _)) if *right != value => Some(format!("value of {name} PriorityClass must be {right}")),
        Some(_) if default => Some(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => None,
    }
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if new["value"] != old["value"] {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    immutable(&mut errors, "preemptionPolicy", &new["preemptionPolicy"], &old["preemptionPolicy"]);
    errors
}

fn row(class: &Value, now: Timestamp) -> [Value; 5] {
    [
        name(class),
        integer(class, "value").unwrap_or_default().into(),
        flag(class, "globalDefault").into(),
        age(class, now),
        text(class, "preemptionPolicy").into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(class: Value) -> Vec<String> {
        let mut class = class;
        default(&mut class);
        validate(&class).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn names_and_values_of_the_system_are_its_own() {
        let none: [&str; 0] = [];
        let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
        assert_eq!(complaints(class("high", HIGHEST)), none);
        assert_eq!(
            complaints(class("high", HIGHEST + 1)),
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]
        );
        let reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
                        only. error: ";
        assert_eq!(
            complaints(class("system-x", 1)),
            [format!("{reserved}system-x is not a known system priority class")]
        );
        assert_eq!(
            complaints(class("system-node-critical", 1)),
            [format!("{reserved}value of system-node-critical PriorityClass must be 2000001000")]
        );
        for class in system(Timestamp::UNIX_EPOCH) {
            assert_eq!(complaints(class), none);
        }
    }

    #[test]
    fn what_pods_were_told_stays() {
        let old = json!({"value": 1, "preemptionPolicy": "Never"});
        let new = json!({"value": 2, "preemptionPolicy": "PreemptLowerPriority"});
        let fields: Vec<String> = update(&new, &old).into_iter().map(|e| e.field).collect();
        assert_eq!(fields, ["value", "preemptionPolicy"]);
        assert_eq!(complaints(json!({"preemptionPolicy": "Always"})).len(), 1);
    }
}
