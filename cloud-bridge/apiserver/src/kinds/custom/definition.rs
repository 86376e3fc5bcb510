//! The kind CustomResourceDefinition itself: defaults, preparation, validation.

use std::collections::HashSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::validate::{Judge, Place};
use super::{FINALIZER, approval, cel, scale, structural};
use crate::codec::decode;
use crate::kinds::columns::{NAME, Table, name};
use crate::kinds::defaults::drop_zero;
use crate::kinds::kind::{Kind, PLAIN, any_status, keep_status, spec_changed};
use crate::patch::merge_keys::{META, Type, map, object};
use crate::resource::rules::Rules;
use apimachinery::field::FieldError;
use apimachinery::json::{items, items_mut};
use apimachinery::meta;
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    check: Some(decode::check::<v1::CustomResourceDefinition>),
    rules: Rules {
        allow_unconditional_update: false,
        // It stays until its objects are deleted.
        deletion_finalizer: Some(FINALIZER),
        ..Rules::SPEC_AND_STATUS
    },
    generation: Some(spec_changed),
    default,
    prepare_create: |obj| obj.set("status", json!({})),
    prepare_update: keep_status,
    create: |obj| {
        let mut errors = validate(obj);
        errors.extend(schemas(obj));
        errors.extend(preserving(obj));
        approval::create(obj, &mut errors);
        errors
    },
    update,
    validations: cel::definition,
    status: Some(any_status),
    table: &Table {
        columns: [NAME, ("Created At", "date", 0, "Time at which the server created the object.")],
        row: |obj, _now| [name(obj), obj["metadata"]["creationTimestamp"].clone()],
    },
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("status", &STATUS)] };
static STATUS: Type = Type { fields: &[map("conditions", &["type"])] };

fn default(obj: &mut Value) {
    if let Some(spec) = obj.get_mut("spec") {
        drop_zero(spec, &["preserveUnknownFields"]);
    }
    let Some(names) = obj.at_mut(&["spec", "names"]).filter(|names| names.is_object()) else { return };
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["singular"].as_str().unwrap_or_default().is_empty() {
        names.set("singular", kind.to_lowercase().into());
    }
    if names["listKind"].as_str().unwrap_or_default().is_empty() && !kind.is_empty() {
        names.set("listKind", format!("{kind}List").into());
    }
    if obj["spec"]["conversion"].is_null() {
        obj.set_at(&["spec", "conversion"], json!({ "strategy": "None" }));
    }
    for version in obj.at_mut(&["spec", "versions"]).and_then(Value::as_array_mut).into_iter().flatten() {
        for column in items_mut(version, "additionalPrinterColumns") {
            if column["priority"] == 0
                && let Some(map) = column.as_object_mut()
            {
                map.remove("priority");
            }
        }
        if version["additionalPrinterColumns"].is_null()
            && let Some(map) = version.as_object_mut()
        {
            map.remove("additionalPrinterColumns");
        }
    }
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    // Schemas from before a rule may stay as they are.
    if new["spec"]["versions"] != old["spec"]["versions"] {
        let before = schemas(old);
        errors.extend(schemas(new).into_iter().filter(|error| !before.contains(error)));
    }
    approval::update(new, old, &mut errors);
    if preserving(old).is_none() {
        errors.extend(preserving(new));
    }
    for field in ["group", "scope"] {
        if new["spec"][field] != old["spec"][field] {
            errors.push(FieldError::invalid(format!("spec.{field}"), &new["spec"][field], "field is immutable"));
        }
    }
    errors
}

/// Refuses v1beta1's field for objects without a schema: fields that the schema does not name would be lost (K8s
/// apiextensions-apiserver pkg/apis/apiextensions/validation, `validatePreserveUnknownFields`).
fn preserving(definition: &Value) -> Option<FieldError> {
    const FIELD: &str = "preserveUnknownFields";
    let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    (definition["spec"][FIELD] == true).then(|| FieldError::invalid(format!("spec.{FIELD}"), &true.into(), why))
}

/// Objects of several versions would need conversion by a webhook, which is never called here. With a single version no
/// conversion is needed, whatever the definition says.
fn conversion(spec: &Value) -> Option<FieldError> {
    const FIELD: &str = "spec.conversion.strategy";
    match &spec["conversion"]["strategy"] {
        Value::Null => Some(FieldError::required(FIELD, "")),
        strategy if strategy == "None" => None,
        strategy if strategy == "Webhook" => {
            let why = "this API calls no webhooks: objects of several versions are converted by None alone, which changes \
                apiVersion and nothing else";
            (items(spec, "versions").len() > 1).then(|| FieldError::forbidden(FIELD, why))
        }
        other => Some(FieldError::not_supported(FIELD, other, &["None", "Webhook"])),
    }
}

fn validate(obj: &Value) -> Vec<FieldError> {
    let spec = &obj["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut errors = Vec::new();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let name = meta::text(obj, "name");
    if name != format!("{plural}.{group}") {
        errors.push(FieldError::invalid("metadata.name", &name.into(), "must be spec.names.plural+\".\"+spec.group"));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(why) = names::dns_subdomain(&group).first() {
        errors.push(FieldError::invalid("spec.group", &group.as_str().into(), why));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            &group.as_str().into(),
            "should be a domain with at least one dot",
        ));
    }
    errors.extend(conversion(spec));
    let scope = text(&spec["scope"]);
    if scope.is_empty() {
        errors.push(FieldError::required("spec.scope", ""));
    } else if !matches!(scope.as_str(), "Cluster" | "Namespaced") {
        errors.push(FieldError::not_supported("spec.scope", &scope.into(), &["Cluster", "Namespaced"]));
    }
    for (field, label) in [
        ("plural", plural),
        ("singular", text(&spec["names"]["singular"])),
        ("kind", text(&spec["names"]["kind"]).to_lowercase()),
    ] {
        let path = format!("spec.names.{field}");
        if label.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if let Some(why) = names::dns_1035_label(&label).first() {
            errors.push(FieldError::invalid(path, &label.into(), why));
        }
    }
    versions(spec, &mut errors);
    errors
}

/// Errors of the versions' schemas, and of the paths of `scale`.
fn schemas(definition: &Value) -> Vec<FieldError> {
    let mut judge = Judge::at(Place::Thread);
    let all = cel::schemas(definition).into_iter();
    let mut errors: Vec<FieldError> =
        all.flat_map(|(path, schema)| structural::check(schema, &path, &mut judge)).collect();
    for (index, version) in items(&definition["spec"], "versions").iter().enumerate() {
        let path = format!("spec.versions[{index}].subresources.scale");
        scale::definition(&version["subresources"]["scale"], &path, &mut errors);
    }
    errors
}

fn versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.is_empty() {
        errors.push(FieldError::required("spec.versions", "must have at least one version"));
        return;
    }
    let mut seen = HashSet::new();
    let mut twice = false;
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = version["name"].as_str().unwrap_or_default();
        if let Some(why) = names::dns_1035_label(name).first() {
            errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), why));
        }
        if !seen.insert(name) && !std::mem::replace(&mut twice, true) {
            errors.push(FieldError::invalid("spec.versions", &spec["versions"], "must contain unique version names"));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let schema_path = format!("{path}.schema.openAPIV3Schema");
        if !schema.is_object() {
            errors.push(FieldError::required(schema_path, "schemas are required"));
        } else if schema["type"].is_null() {
            errors.push(FieldError::required(format!("{schema_path}.type"), "must not be empty at the root"));
        } else if schema["type"] != "object" {
            errors.push(FieldError::invalid(
                format!("{schema_path}.type"),
                &schema["type"],
                "must be object at the root",
            ));
        }
    }
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            "must have exactly one version marked as storage version",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_that_would_prune_what_it_preserves_is_refused() {
        let definition = |preserve: Value| json!({"spec": {"preserveUnknownFields": preserve}});
        let fields = |errors: Vec<FieldError>| {
            errors.into_iter().filter(|error| error.field == "spec.preserveUnknownFields").count()
        };
        let (yes, no) = (definition(json!(true)), definition(json!(false)));
        assert_eq!((fields((KIND.create)(&yes)), fields((KIND.create)(&no))), (1, 0));
        assert_eq!((fields(update(&yes, &no)), fields(update(&yes, &yes))), (1, 0));
        let mut plain = no;
        default(&mut plain);
        assert_eq!(plain, json!({"spec": {}}), "false is what Go leaves out");
    }
}
