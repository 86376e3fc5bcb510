//! Questions about the validation rules of definitions and of their objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::resource::cel::{About, CelQuestion, RuledSchema};
use sampan_cel::question::Question;

/// The keyword.
const RULES: &str = "x-kubernetes-validations";
/// Metadata fields that rules see, and whose changes are detected.
const METADATA: [&str; 7] =
    ["name", "generateName", "labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"];

/// Rules of one version, and further input for their evaluation.
pub(crate) struct Validations {
    schema: Arc<RuledSchema>,
    kind: Value,
    api_version: Value,
}

/// What rules see of one field of an object.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Whole(&'a Value),
    Metadata(BTreeMap<&'a str, &'a Value>),
}

impl Validations {
    /// From a definition's spec and one of its versions; `None` without rules.
    pub(crate) fn of(spec: &Value, version: &Value) -> Option<Self> {
        let schema = &version["schema"]["openAPIV3Schema"];
        if !ruled(schema) {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let group = text(&spec["group"]);
        let content = digest(&SHA256, schema.to_string().as_bytes());
        let schema = RuledSchema {
            name: content.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
            definition: format!("{}.{group}", text(&spec["names"]["plural"])),
            value: schema.clone(),
        };
        let api_version = format!("{group}/{}", text(&version["name"])).into();
        Some(Self { schema: Arc::new(schema), kind: spec["names"]["kind"].clone(), api_version })
    }

    /// The question about an object, and about its change.
    pub(crate) fn question(&self, new: &Value, old: Option<&Value>) -> CelQuestion {
        let (new, old) = (self.shown(new), old.map(|old| self.shown(old)));
        let question = Question::Validate { name: self.schema.name.clone(), new, old };
        CelQuestion::new(About::Object(Arc::clone(&self.schema)), &question)
    }

    fn shown<'a>(&'a self, object: &'a Value) -> BTreeMap<&'a str, Shown<'a>> {
        let fields = |value: &'a Value| {
            let all = value.as_object().into_iter().flatten();
            all.map(|(field, value)| (field.as_str(), value))
        };
        let mut shown: BTreeMap<_, _> = fields(object).map(|(field, value)| (field, Shown::Whole(value))).collect();
        let metadata = fields(&object["metadata"]).filter(|(field, _)| METADATA.contains(field));
        shown.insert("metadata", Shown::Metadata(metadata.collect()));
        shown.insert("kind", Shown::Whole(&self.kind));
        shown.insert("apiVersion", Shown::Whole(&self.api_version));
        shown
    }
}

/// The question about a definition; `None` when it has no rules.
pub(crate) fn definition(definition: &Value) -> Option<CelQuestion> {
    let schemas = ruled_schemas(definition);
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    (!schemas.is_empty()).then(|| CelQuestion::new(About::Definition(name), &Question::Compile { schemas }))
}

/// The schemas that have rules, each with its path in the definition.
fn ruled_schemas(definition: &Value) -> Vec<(String, &Value)> {
    schemas(definition).into_iter().filter(|(_, schema)| ruled(schema)).collect()
}

/// The schemas of a definition with their paths. The API server keeps one that all versions share in one place, and names
/// that.
pub(super) fn schemas(definition: &Value) -> Vec<(String, &Value)> {
    let versions = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let all: Vec<&Value> = versions.iter().map(|version| &version["schema"]["openAPIV3Schema"]).collect();
    match all.first() {
        Some(first) if all.iter().all(|schema| schema == first) => {
            vec![("spec.validation.openAPIV3Schema".to_owned(), *first)]
        }
        _ => {
            let path = |index: usize| format!("spec.versions[{index}].schema.openAPIV3Schema");
            all.into_iter().enumerate().map(|(index, schema)| (path(index), schema)).collect()
        }
    }
}

/// Whether a schema has rules, there or further down.
fn ruled(schema: &Value) -> bool {
    let some = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    let below = schema["properties"].as_object().into_iter().flat_map(Map::values);
    let all_of = schema["allOf"].as_array().into_iter().flatten();
    some(&schema[RULES])
        || below
            .chain([&schema["items"], &schema["additionalProperties"]])
            .chain(all_of)
            .any(|inner| inner.is_object() && ruled(inner))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(schemas: &[Value]) -> Value {
        let version = |(index, schema): (usize, &Value)| json!({"name": format!("v{index}"), "schema": {"openAPIV3Schema": schema}});
        json!({"group": "x.io", "names": {"plural": "as", "kind": "A"},
            "versions": schemas.iter().enumerate().map(version).collect::<Vec<_>>()})
    }

    #[test]
    fn without_rules_nothing_is_asked() {
        let plain = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
        let deep = json!({"type": "object", "properties": {"spec": {"type": "array", "items": {"additionalProperties": {RULES: [{"rule": "true"}]}}}}});
        let ruled = |schema: &Value| {
            let spec = spec(std::slice::from_ref(schema));
            let rules = Validations::of(&spec, &spec["versions"][0]).is_some();
            assert_eq!(definition(&json!({"metadata": {}, "spec": spec})).is_some(), rules);
            rules
        };
        assert!(!ruled(&plain) && !ruled(&json!({RULES: []})) && !ruled(&Value::Null));
        assert!(ruled(&deep) && ruled(&json!({"allOf": [{RULES: [{"rule": "true"}]}]})));
    }

    #[test]
    fn rules_see_a_part_of_the_metadata() {
        let spec = spec(&[json!({"type": "object", RULES: [{"rule": "true"}]})]);
        let rules = Validations::of(&spec, &spec["versions"][0]).unwrap();
        let object =
            |size| json!({"apiVersion": "x.io/v9", "metadata": {"name": "a", "uid": "u"}, "spec": {"size": size}});
        let shown =
            |size| json!({"apiVersion": "x.io/v0", "kind": "A", "metadata": {"name": "a"}, "spec": {"size": size}});
        let frame = rules.question(&object(2), Some(&object(1))).frame().unwrap();
        let asked: Question = serde_json::from_slice(&frame[4..]).unwrap();
        let name = rules.schema.name.clone();
        assert_eq!(asked, Question::Validate { name, new: shown(2), old: Some(shown(1)) });
    }

    #[test]
    fn paths_are_those_of_the_api_server() {
        let one = json!({"type": "object", RULES: [{"rule": "true"}]});
        let other = json!({"type": "object", RULES: [{"rule": "false"}]});
        let paths = |schemas: &[Value]| -> Vec<String> {
            let definition = json!({"metadata": {}, "spec": spec(schemas)});
            ruled_schemas(&definition).into_iter().map(|(path, _)| path).collect()
        };
        assert_eq!(paths(&[one.clone(), one.clone()]), ["spec.validation.openAPIV3Schema"]);
        assert_eq!(
            paths(&[json!({}), one.clone(), other]),
            ["spec.versions[1].schema.openAPIV3Schema", "spec.versions[2].schema.openAPIV3Schema"]
        );
    }
}
