//! The embedded API's defaults, rules and patches beside the recorded answers of a real API server
//! (`fixtures/reference`, made by `record.py` there).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use apimachinery::field::FieldError;
use apiserver::kinds;
use apiserver::resource::Resource;
use apiserver::resource::object_meta::{validate_object_meta, validate_object_meta_update};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Fields that admission plugins and the address allocator add, outside the code of the kinds.
const ADMITTED: &[&str] = &[
    "/spec/tolerations",
    "/spec/priority",
    "/spec/priorityClassName",
    "/spec/preemptionPolicy",
    "/spec/ipFamilies",
    "/spec/ipFamilyPolicy",
    "/spec/taints",
    "/status/daemonEndpoints",
    "/status/nodeInfo",
    "/status/lastPhaseTransitionTime",
];

fn fixture(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/fixtures/reference/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn resource(all: &[Arc<Resource>], obj: &Value) -> Arc<Resource> {
    let found =
        all.iter().find(|r| r.kind == obj["kind"].as_str().unwrap_or_default() && r.api_version() == obj["apiVersion"]);
    found.unwrap_or_else(|| panic!("no resource for {}", obj["kind"])).clone()
}

fn decoded(resource: &Resource, obj: &Value) -> Value {
    let decode = resource.decode.expect("a built-in kind");
    decode(obj).unwrap_or_else(|error| panic!("{}: {error}", obj["metadata"]["name"])).value
}

/// `field reason message`, the first line only: beyond it the API server prints a diff of its internal types.
fn line(field: &str, reason: &str, message: &str) -> String {
    format!("{field} {reason} {}", message.lines().next().unwrap_or_default())
}

fn expected(answer: &Value) -> BTreeSet<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let causes = answer["causes"].as_array().into_iter().flatten();
    causes.map(|c| line(&text(&c[0]), &text(&c[1]), &text(&c[2]))).collect()
}

fn found(errors: &[FieldError]) -> BTreeSet<String> {
    errors.iter().map(|e| line(&e.field, e.kind.reason(), &e.message)).collect()
}

/// Removes empty and null members: the API server omits some of them.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(k, v)| (k.clone(), pruned(v)))
            .filter(|(k, v)| !(v.is_null() || k == "finalizers" && v.as_array().is_some_and(Vec::is_empty)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(list) => list.iter().map(pruned).collect(),
        other => other.clone(),
    }
}

fn without(mut obj: Value, pointers: &[&str]) -> Value {
    for pointer in pointers {
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        if let Some(map) = obj.pointer_mut(parent).and_then(Value::as_object_mut) {
            map.remove(field);
        }
    }
    obj
}

/// Lists the differences between two values.
fn differences(report: &mut String, path: &str, ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                differences(report, &format!("{path}.{key}"), &ours[key], &theirs[key]);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                differences(report, &format!("{path}[{i}]"), a, b);
            }
        }
        _ if ours == theirs => {}
        _ => {
            let _ = writeln!(report, "    {path}: ours {ours}, theirs {theirs}");
        }
    }
}

fn compare_errors(report: &mut String, name: &str, ours: &[FieldError], answer: &Value) {
    let (ours, theirs) = (found(ours), expected(answer));
    for missing in theirs.difference(&ours) {
        let _ = writeln!(report, "  {name}: missing: {missing}");
    }
    for extra in ours.difference(&theirs) {
        let _ = writeln!(report, "  {name}: too much: {extra}");
    }
}

fn compare_objects(report: &mut String, name: &str, ours: Value, answer: &Value) {
    if let Some(theirs) = answer.get("object") {
        let mut text = String::new();
        let clean = |mut obj: Value| {
            // A finalizer protects volumes in use, and only controllers of a full cluster remove it.
            if let Some(finalizers) = obj["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|f| !f.as_str().unwrap_or_default().ends_with("-protection"));
            }
            pruned(&without(obj, ADMITTED))
        };
        differences(&mut text, "", &clean(ours), &clean(theirs.clone()));
        if !text.is_empty() {
            let _ = write!(report, "  {name}:\n{text}");
        }
    }
}

fn assert_same(report: &str) {
    assert!(report.is_empty(), "differs from the API server:\n{report}");
}

#[test]
fn creation() {
    let all = kinds::resources();
    let mut report = String::new();
    for row in fixture("create") {
        let name = row["name"].as_str().expect("a name");
        let mut obj = row["object"].clone();
        if obj["data"]["a"] == "SIZE" {
            obj["data"]["a"] = "x".repeat(1024 * 1024 + 1).into();
        }
        let resource = resource(&all, &obj);
        let strategy = resource.strategy();
        let mut obj = decoded(&resource, &obj);
        if resource.namespaced {
            obj["metadata"]["namespace"] = "default".into();
        }
        strategy.default(&mut obj);
        strategy.prepare_create(&mut obj);
        let mut errors = validate_object_meta(&obj, &resource);
        errors.extend(strategy.validate_create(&obj));
        compare_errors(&mut report, name, &errors, &row["answer"]);
        compare_objects(&mut report, name, obj, &row["answer"]);
    }
    assert_same(&report);
}

#[test]
fn updates() {
    let all = kinds::resources();
    let mut report = String::new();
    for row in fixture("update") {
        let name = row["name"].as_str().expect("a name");
        let resource = resource(&all, &row["new"]);
        let strategy = resource.strategy();
        let (mut new, mut old) = (decoded(&resource, &row["new"]), decoded(&resource, &row["old"]));
        strategy.default(&mut old);
        strategy.default(&mut new);
        strategy.prepare_update(&mut new, &old);
        let mut errors = validate_object_meta_update(&new, &old);
        errors.extend(validate_object_meta(&new, &resource));
        errors.extend(strategy.validate_update(&new, &old));
        compare_errors(&mut report, name, &errors, &row["answer"]);
    }
    assert_same(&report);
}

#[test]
fn status_updates() {
    let all = kinds::resources();
    let mut report = String::new();
    for row in fixture("status") {
        let name = row["name"].as_str().expect("a name");
        let resource = resource(&all, &row["new"]);
        let strategy = resource.strategy();
        let (mut new, old) = (decoded(&resource, &row["new"]), decoded(&resource, &row["old"]));
        strategy.default(&mut new);
        strategy.prepare_status_update(&mut new, &old);
        compare_errors(&mut report, name, &strategy.validate_status_update(&new, &old), &row["answer"]);
    }
    assert_same(&report);
}

#[test]
fn strategic_merge_patches() {
    let all = kinds::resources();
    let mut report = String::new();
    for row in fixture("patch") {
        let name = row["name"].as_str().expect("a name");
        let resource = resource(&all, &row["old"]);
        match resource.strategy().strategic_merge(row["old"].clone(), row["patch"].clone()) {
            Ok(mut new) => {
                resource.strategy().default(&mut new);
                let refused = json!({"object": null});
                let answer = if row["answer"].get("object").is_some() { &row["answer"] } else { &refused };
                compare_objects(&mut report, name, new, answer);
            }
            Err(error) if row["answer"].get("object").is_some() => {
                let _ = writeln!(report, "  {name}: refused: {error}");
            }
            Err(_) => {}
        }
    }
    assert_same(&report);
}

/// `2s` and the like: the age of an object that was created just before.
fn is_young(cell: &Value) -> bool {
    cell.as_str().and_then(|text| text.strip_suffix('s')).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

#[test]
fn tables() {
    let all = kinds::resources();
    let mut report = String::new();
    for row in fixture("table") {
        let name = row["name"].as_str().expect("a name");
        let resource = resource(&all, &row["object"]);
        let strategy = resource.strategy();
        let columns: Vec<Value> =
            strategy.columns().into_iter().map(|c| json!([c.name, c.type_, c.priority])).collect();
        differences(&mut report, &format!("{name} columns"), &columns.into(), &row["columns"]);
        let now: Timestamp = row["now"].as_str().and_then(|t| t.parse().ok()).expect("a time");
        let mut cells = strategy.row(&row["object"], now);
        for (ours, theirs) in cells.iter_mut().zip(row["cells"].as_array().expect("cells")) {
            if is_young(ours) && is_young(theirs) {
                *ours = theirs.clone();
            }
        }
        differences(&mut report, name, &cells.into(), &row["cells"]);
    }
    assert_same(&report);
}
