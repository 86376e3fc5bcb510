//! The strategy of custom objects, from their version's schema, subresources and printer columns.

use sampan_json::SetField;
use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::cel::Validations;
use super::validate::Place;
use super::walk::since;
use super::{embedded, lists, scale, schema, validate};
use crate::codec::decode::{self, Decoded};
use crate::codec::jsonpath;
use crate::kinds::columns::human_duration;
use crate::patch::shape::Shape;
use crate::resource::cel::CelQuestion;
use crate::resource::strategy::{Column, Foreseen, ScalePaths, Strategy};
use apimachinery::field::FieldError;

/// Maximum number of errors that are kept for the validation that follows.
const FORESEEN_MAX: usize = 4096;

/// One version of a custom resource.
pub(crate) struct Custom {
    schema: Value,
    has_patterns: bool,
    /// Whether the schema restricts the name.
    has_names: bool,
    /// Errors of the object that is validated next, if it was validated beside the thread.
    foreseen: Mutex<Option<Foreseen>>,
    validations: Option<Validations>,
    status: bool,
    scale: Option<ScalePaths>,
    /// Warning about a deprecated version.
    deprecation: Option<String>,
    /// Its definition is being deleted.
    terminating: bool,
    columns: Vec<(Column, String)>,
    selectable: Vec<String>,
}

impl Custom {
    /// From a definition's spec and one of its versions, and whether the definition is being deleted.
    pub(crate) fn new(spec: &Value, version: &Value, terminating: bool) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let column = |name: String, type_: String, format: String, description: String, priority: i32, path: String| {
            let column = Column {
                name: name.into(),
                type_: type_.into(),
                format: format.into(),
                description: description.into(),
                priority,
            };
            (column, path)
        };
        let mut columns: Vec<(Column, String)> = version["additionalPrinterColumns"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| {
                let priority = c["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or(0);
                column(
                    text(&c["name"]),
                    text(&c["type"]),
                    text(&c["format"]),
                    text(&c["description"]),
                    priority,
                    text(&c["jsonPath"]),
                )
            })
            .collect();
        if columns.is_empty() {
            let description = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.";
            columns.push(column(
                "Age".into(),
                "date".into(),
                String::new(),
                description.into(),
                0,
                ".metadata.creationTimestamp".into(),
            ));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        Self {
            schema: schema.clone(),
            has_patterns: has_patterns(schema),
            has_names: schema["properties"]["metadata"]["properties"].is_object(),
            foreseen: Mutex::default(),
            validations: Validations::of(spec, version),
            status: version["subresources"]["status"].is_object(),
            scale: version["subresources"]["scale"].as_object().map(|paths| {
                let path = |name: &str| paths.get(name).map(text).unwrap_or_default().into();
                ScalePaths {
                    spec_replicas: path("specReplicasPath"),
                    status_replicas: path("statusReplicasPath"),
                    selector: path("labelSelectorPath"),
                }
            }),
            // K8s apiextensions-apiserver pkg/apiserver/customresource_handler.go.
            deprecation: (version["deprecated"] == true).then(|| match version["deprecationWarning"].as_str() {
                Some(given) => given.to_owned(),
                None => {
                    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
                    format!("{group}/{} {kind} is deprecated", text(&version["name"]))
                }
            }),
            terminating,
            columns,
            selectable: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|f| text(&f["jsonPath"]).trim_start_matches('.').to_owned())
                .collect(),
        }
    }

    /// K8s apiextensions-apiserver pkg/registry/customresource/strategy.go.
    fn check(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = self.by_schema("", new, old);
        errors.extend(self.scale.iter().flat_map(|paths| scale::validate(new, paths, false)));
        errors.extend(since(new, old, |value| embedded::validate(value, &self.schema)));
        errors.extend(lists::validate(new, old, &self.schema));
        errors
    }

    fn foreseen(&self) -> MutexGuard<'_, Option<Foreseen>> {
        self.foreseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hash of what the schema judges. Of the metadata it may restrict only the name.
    fn key(&self, subresource: &str, new: &Value, old: Option<&Value>) -> u64 {
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mut hasher = KEYS.build_hasher();
        subresource.hash(&mut hasher);
        for object in [Some(new), old] {
            object.is_some().hash(&mut hasher);
            for (name, value) in object.and_then(Value::as_object).into_iter().flatten() {
                name.hash(&mut hasher);
                if name != "metadata" {
                    value.hash(&mut hasher);
                } else if self.has_names {
                    value["name"].hash(&mut hasher);
                    value["generateName"].hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    /// Errors by the schema: those that were foreseen for this object, or found now.
    fn by_schema(&self, subresource: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        if self.has_patterns {
            let known = self.foreseen().take();
            if let Some(Foreseen { errors, .. }) = known.filter(|known| known.of == self.key(subresource, new, old)) {
                return errors;
            }
        }
        self.judge(subresource, new, old, Place::Thread)
    }

    fn judge(&self, subresource: &str, new: &Value, old: Option<&Value>, place: Place) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if subresource != "status" {
            validate::validate(new, old, &self.schema, "", place, &mut errors);
        } else if let Some(status) = new.get("status") {
            let schema = &self.schema["properties"]["status"];
            validate::validate(status, old.and_then(|old| old.get("status")), schema, "status", place, &mut errors);
        }
        errors
    }

    /// K8s apiextensions-apiserver pkg/registry/customresource/tableconvertor `cellForJSONValue`.
    fn cell(obj: &Value, column: &Column, path: &str, now: Timestamp) -> Value {
        #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
        let whole = |number: f64| number as i64;
        let found = jsonpath::find(obj, path);
        let Some(first) = found.first() else { return Value::Null };
        match column.type_.as_ref() {
            "integer" => first.as_i64().or_else(|| first.as_f64().map(whole)).map_or(Value::Null, Value::from),
            "number" => first.as_f64().map_or(Value::Null, Value::from),
            "boolean" => first.as_bool().map_or(Value::Null, Value::from),
            "date" => first.as_str().map_or(Value::Null, |text| age(text, now).into()),
            // The first of several counts.
            _ => match first {
                Value::String(text) => text.as_str().into(),
                Value::Null => Value::Null,
                other => other.to_string().into(),
            },
        }
    }
}

/// Whether there are patterns or combined schemas anywhere in a schema, which may take long also for a short object.
fn has_patterns(schema: &Value) -> bool {
    schema.as_object().into_iter().flatten().any(|(word, below)| match (word.as_str(), below) {
        ("pattern", Value::String(_)) | ("allOf" | "anyOf" | "oneOf", Value::Array(_)) | ("not", Value::Object(_)) => {
            true
        }
        ("properties", Value::Object(properties)) => properties.values().any(has_patterns),
        ("items" | "additionalProperties", below) => has_patterns(below),
        _ => false,
    })
}

/// A timestamp as an age, as kubectl shows dates.
fn age(text: &str, now: Timestamp) -> String {
    if text.is_empty() {
        return "<unknown>".to_owned();
    }
    match text.parse::<Timestamp>() {
        Ok(then) => human_duration(now.as_second() - then.as_second()),
        Err(_) => "<invalid>".to_owned(),
    }
}

impl Strategy for Custom {
    fn deprecation(&self) -> Option<String> {
        self.deprecation.clone()
    }

    fn refusal(&self) -> Option<&'static str> {
        self.terminating.then_some("create not allowed while custom resource definition is terminating")
    }

    fn has_patterns(&self) -> bool {
        self.has_patterns
    }

    fn foresee(&self, subresource: &str, new: &Value, old: Option<&Value>) -> Option<Foreseen> {
        if !self.has_patterns || !matches!(subresource, "" | "status") {
            return None;
        }
        let mut errors = self.judge(subresource, new, old, Place::Aside);
        errors.truncate(FORESEEN_MAX);
        Some(Foreseen { of: self.key(subresource, new, old), errors })
    }

    fn recall(&self, foreseen: Option<Foreseen>) {
        *self.foreseen() = foreseen;
    }

    fn decode(&self, mut value: Value) -> Result<Decoded, String> {
        let mut unknown = Vec::new();
        let metadata = value.as_object_mut().and_then(|map| map.remove("metadata")).unwrap_or_else(|| json!({}));
        schema::prune(&mut value, &self.schema, &mut String::new(), &mut unknown);
        let decoded = decode::check::<ObjectMeta>(&metadata)?;
        unknown.extend(decoded.unknown.into_iter().map(|path| format!("metadata.{path}")));
        value.set("metadata", decoded.value);
        Ok(Decoded { value, unknown })
    }

    fn read(&self, stored: &Value) -> Option<Value> {
        let mut value = stored.clone();
        let metadata = value.as_object_mut().and_then(|map| map.remove("metadata"));
        schema::prune(&mut value, &self.schema, &mut String::new(), &mut Vec::new());
        if let Some(metadata) = metadata {
            value.set("metadata", metadata);
        }
        schema::default(&mut value, &self.schema);
        (value != *stored).then_some(value)
    }

    fn default(&self, obj: &mut Value) {
        schema::default(obj, &self.schema);
    }

    fn prepare_create(&self, obj: &mut Value) {
        if self.status
            && let Some(map) = obj.as_object_mut()
        {
            map.remove("status");
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if !self.status {
            return;
        }
        if let Some(map) = new.as_object_mut() {
            map.remove("status");
            if let Some(status) = old.get("status") {
                map.insert("status".into(), status.clone());
            }
        }
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        let counts = |(name, _): &(&String, &Value)| *name != "metadata" && !(self.status && *name == "status");
        let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new != old };
        new.iter().filter(counts).ne(old.iter().filter(counts))
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let status = new.get("status").cloned();
        let version = new["metadata"]["resourceVersion"].clone();
        *new = old.clone();
        new.set_at(&["metadata", "resourceVersion"], version);
        if let Some(map) = new.as_object_mut() {
            map.remove("status");
            if let Some(status) = status {
                map.insert("status".into(), status);
            }
        }
    }

    fn validate_create(&self, obj: &Value) -> Vec<FieldError> {
        self.check(obj, None)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        self.check(new, Some(old))
    }

    /// Validates only the status (K8s apiextensions-apiserver pkg/registry/customresource/validator.go,
    /// `ValidateStatusUpdate`).
    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.by_schema("status", new, Some(old));
        errors.extend(self.scale.iter().flat_map(|paths| scale::validate(new, paths, true)));
        errors.extend(lists::validate(new, Some(old), &self.schema));
        errors
    }

    fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn validations(&self, subresource: &str, new: &Value, old: Option<&Value>) -> Option<CelQuestion> {
        let judged = matches!(subresource, "" | "status");
        self.validations.as_ref().filter(|_| judged).map(|rules| rules.question(new, old))
    }

    fn schema(&self) -> Option<&Value> {
        Some(&self.schema)
    }

    fn columns(&self) -> Vec<Column> {
        let name = Column {
            name: "Name".into(),
            type_: "string".into(),
            format: "name".into(),
            description: "Name must be unique within a namespace.".into(),
            priority: 0,
        };
        std::iter::once(name).chain(self.columns.iter().map(|(column, _)| column.clone())).collect()
    }

    fn row(&self, obj: &Value, now: Timestamp) -> Vec<Value> {
        let cells = self.columns.iter().map(|(column, path)| Self::cell(obj, column, path, now));
        std::iter::once(obj["metadata"]["name"].clone()).chain(cells).collect()
    }

    fn shape(&self) -> Shape<'_> {
        Shape::Custom(&self.schema)
    }

    fn field<'a>(&self, obj: &'a Value, label: &str) -> Option<Cow<'a, str>> {
        if !self.selectable.iter().any(|s| s == label) {
            return None;
        }
        let found = jsonpath::find(obj, &format!(".{label}"));
        Some(match found.first() {
            Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
            Some(Value::Null) | None => Cow::Borrowed(""),
            Some(other) => Cow::Owned(other.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_outlive_a_stricter_schema() {
        let short = json!({"type": "string", "maxLength": 2});
        let custom = Custom::new(
            &json!({}),
            &json!({"schema": {"openAPIV3Schema": {"type": "object", "required": ["kind", "spec"], "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
                "spec": {"type": "object", "properties": {"a": short}},
                "status": {"type": "object", "properties": {"b": short}},
            }}}}),
            false,
        );
        let object = |name: &str, finalizers: Value, a: &str, b: &str| json!({"metadata": {"name": name, "finalizers": finalizers}, "spec": {"a": a}, "status": {"b": b}});
        let fields = |errors: Vec<FieldError>| errors.into_iter().map(|error| error.field).collect::<Vec<_>>();
        let old = object("n", json!(["x.io/a"]), "long", "long");
        assert_eq!(fields(custom.validate_create(&old)), ["spec.a", "status.b"]);
        let free = object("n", json!([]), "long", "long");
        assert_eq!(fields(custom.validate_update(&free, &old)), [""; 0], "finalizers can be taken off");
        assert_eq!(fields(custom.validate_update(&object("n", json!([]), "other", "long"), &old)), ["spec.a"]);
        assert_eq!(fields(custom.validate_status_update(&object("n", json!([]), "long", "ok"), &old)), [""; 0]);
        assert_eq!(fields(custom.validate_status_update(&object("n", json!([]), "long", "far"), &old)), ["status.b"]);
        assert_eq!(fields(custom.validate_create(&object("too-long", json!([]), "a", "b"))), ["metadata.name"]);
    }

    #[test]
    fn patterns_are_found_wherever_they_are() {
        let has = |schema: Value| {
            Custom::new(&json!({}), &json!({"schema": {"openAPIV3Schema": schema}}), false).has_patterns()
        };
        assert!(has(json!({"properties": {"a": {"items": {"anyOf": [{"pattern": "^x$"}]}}}})));
        assert!(!has(json!({"properties": {"pattern": {"type": "string"}, "oneOf": {"type": "string"}}})));
        assert!(!has(json!({"properties": {"not": {"type": "string"}, "properties": {"type": "object"}}})));
        assert!(has(json!({"additionalProperties": {"not": {"enum": ["x"]}}})) && has(json!({"allOf": [{}]})));
        assert!(has(json!({"properties": {"a": {"oneOf": [{"minLength": 1}, {"enum": ["x"]}]}}})), "these multiply");
    }

    #[test]
    fn foreseen_errors_are_those_of_the_same_object() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^x$"}}});
        let custom = Custom::new(&json!({}), &json!({"schema": {"openAPIV3Schema": schema}}), false);
        let object = |a: &str, uid: &str| json!({"metadata": {"name": "n", "uid": uid}, "a": a});
        let errors = |a: &str| custom.validate_create(&object(a, "u")).len();
        let foresee = |a: &str| custom.foresee("", &object(a, ""), None).unwrap();
        custom.recall(Some(foresee("y")));
        assert_eq!(errors("x"), 0, "another object");
        assert_eq!(errors("y"), 1, "found now");
        let Foreseen { of, errors: found } = foresee("x");
        assert_eq!(found.len(), 0);
        custom.recall(Some(Foreseen { of, errors: foresee("y").errors }));
        assert_eq!((errors("x"), errors("x")), (1, 0), "not judged again, and used once");
        assert!(custom.foresee("scale", &object("y", ""), None).is_none());
    }

    #[test]
    fn metadata_and_status_make_no_generation() {
        let custom = |status: Value| Custom::new(&json!({}), &json!({ "subresources": status }), false);
        let old = json!({"metadata": {"name": "n"}, "spec": {"a": 1}, "status": {"b": 1}});
        for (field, value, raised) in [
            ("metadata", json!({"name": "n", "labels": {"l": "m"}}), (false, false)),
            ("status", json!({"b": 2}), (false, true)),
            ("spec", json!({"a": 2}), (true, true)),
            ("data", json!({}), (true, true)),
        ] {
            let mut new = old.clone();
            new.set(field, value);
            let raises = |status: Value| custom(status).generation_changed(&new, &old);
            assert_eq!((raises(json!({"status": {}})), raises(json!({}))), raised, "{field}");
        }
    }

    #[test]
    fn columns_show_what_fits_their_type() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        for (kind, value, shown) in [
            ("integer", json!(3), json!(3)),
            ("integer", json!(3.0), json!(3)),
            ("integer", json!(-2.7), json!(-2)),
            ("integer", json!("3"), json!(null)),
            ("number", json!(3), json!(3.0)),
            ("boolean", json!(1), json!(null)),
            ("date", json!("2026-01-01T00:00:00Z"), json!("60s")),
            ("date", json!("yesterday"), json!("<invalid>")),
            ("date", json!(""), json!("<unknown>")),
            ("date", json!(null), json!(null)),
            ("date", json!(3), json!(null)),
            ("string", json!(3), json!("3")),
        ] {
            let column = json!({"name": "C", "type": kind, "jsonPath": ".spec.c"});
            let custom = Custom::new(&json!({}), &json!({"additionalPrinterColumns": [column]}), false);
            let row = custom.row(&json!({"metadata": {"name": "a"}, "spec": {"c": value}}), now);
            assert_eq!(row, [json!("a"), shown], "{value} as {kind}");
        }
        let column = json!({"name": "C", "type": "string", "jsonPath": ".spec.l[-2:].n"});
        let custom = Custom::new(&json!({}), &json!({"additionalPrinterColumns": [column]}), false);
        let row = custom.row(&json!({"metadata": {"name": "a"}, "spec": {"l": [{"n": 1}, {"n": 2}, {"n": 3}]}}), now);
        assert_eq!(row, [json!("a"), json!("2")], "the first of several results");
    }
}
