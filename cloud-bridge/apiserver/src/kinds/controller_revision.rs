//! ControllerRevisions: earlier templates of a controller. Their data belongs to the controller and is stored
//! unchanged.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1;
use serde_json::{Map, Value, json};

use super::columns::{AGE, NAME, Table, age, name};
use super::kind::{Kind, PLAIN};
use crate::codec::decode::{self, Decoded};
use apimachinery::field::{Errors, FieldError, immutable, not_negative};
use apimachinery::json::{integer, items, text};

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    namespaced: true,
    check: Some(check),
    create,
    update,
    table: &Table {
        columns: [
            NAME,
            ("Controller", "string", 0, "Controller of the object"),
            ("Revision", "string", 0, "Its place among the revisions of its controller."),
            AGE,
        ],
        row,
    },
    ..PLAIN
};

/// The typed check of everything except the data, which is kept completely, including empty and null values.
fn check(revision: &Value) -> Result<Decoded, String> {
    let Some(fields) = revision.as_object() else { return decode::check::<v1::ControllerRevision>(revision) };
    let rest = fields.iter().filter(|(name, _)| *name != "data");
    let rest: Value = rest.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into();
    let mut decoded = decode::check::<v1::ControllerRevision>(&rest)?;
    let data = revision.get("data").filter(|data| !data.is_null());
    if let (Some(data), Some(object)) = (data, decoded.value.as_object_mut()) {
        object.insert("data".to_owned(), data.clone());
    }
    Ok(decoded)
}

/// Follows ValidateControllerRevisionCreate of pkg/apis/apps/validation.
fn create(revision: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    number(&mut errors, revision);
    match &revision["data"] {
        Value::Object(_) => {}
        Value::Null => errors.push(FieldError::required("data", "data is mandatory")),
        _ => errors.push(FieldError::required("data", "data must be a valid JSON object")),
    }
    errors
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    number(&mut errors, new);
    immutable(&mut errors, "data", &new["data"], &old["data"]);
    errors
}

fn number(errors: &mut Errors, revision: &Value) {
    not_negative(errors, "revision".into(), integer(revision, "revision").unwrap_or_default());
}

fn row(revision: &Value, now: Timestamp) -> [Value; 4] {
    let owners = items(&revision["metadata"], "ownerReferences");
    let controller = owners.iter().find(|owner| owner["controller"] == true).map(|owner| {
        let kind = text(owner, "kind");
        let group = text(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
        let dot = if group.is_empty() { "" } else { "." };
        format!("{}/{}", format!("{kind}{dot}{group}").to_lowercase(), text(owner, "name"))
    });
    let controller = controller.unwrap_or_else(|| "<none>".to_owned());
    [name(revision), controller.into(), json!(integer(revision, "revision").unwrap_or_default()), age(revision, now)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn data_is_kept_to_the_letter_and_must_be_an_object() {
        let data =
            json!({"spec": {"template": {"$patch": "replace", "metadata": {"creationTimestamp": null, "labels": {}}}}});
        let given = json!({"metadata": {"name": "r"}, "data": data, "revision": 1, "other": 1});
        let decoded = check(&given).unwrap();
        assert_eq!(decoded.value["data"], data);
        assert_eq!(decoded.unknown, ["other"]);
        assert_eq!(create(&decoded.value), []);
        assert_eq!(
            told(create(&json!({"data": [], "revision": -1}))),
            [
                "revision: Invalid value: -1: must be greater than or equal to 0",
                "data: Required value: data must be a valid JSON object",
            ]
        );
        assert_eq!(
            told(create(&check(&json!({"data": null})).unwrap().value)),
            ["data: Required value: data is mandatory"]
        );
        assert!(check(&json!({"revision": "1"})).unwrap_err().contains("revision"));
    }

    #[test]
    fn data_stays_and_its_place_may_change() {
        let old = json!({"data": {"a": 1}, "revision": 1});
        assert_eq!(update(&json!({"data": {"a": 1}, "revision": 2}), &old), []);
        assert_eq!(
            told(update(&json!({"data": {"a": 2}, "revision": 1}), &old)),
            ["data: Invalid value: {\"a\":2}: field is immutable"]
        );
    }

    #[test]
    fn a_row_names_the_controller() {
        let owner = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "name": "d", "controller": true});
        let cell = |owners: Value| {
            row(&json!({"metadata": {"ownerReferences": owners}, "revision": 3}), Timestamp::UNIX_EPOCH)[1].clone()
        };
        assert_eq!(cell(json!([owner("apps/v1", "DaemonSet")])), "daemonset.apps/d");
        assert_eq!(cell(json!([owner("v1", "Pod")])), "pod/d");
        assert_eq!(cell(json!([{"apiVersion": "v1", "kind": "Pod", "name": "p"}])), "<none>");
    }
}
