//! The RuntimeClass admission: a class must exist, and gives the pod its overhead and where it may be scheduled
//! (K8s plugin/pkg/admission/runtimeclass).

use edge_protocol::json::SetField;
use serde_json::Value;

use super::attributes::Attributes;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Store;
use apimachinery::json::{items, object_mut, text, text_entries};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use apimachinery::quantity::Quantity;

const STORAGE: &str = "runtimeclasses.node.k8s.io";

pub(crate) fn apply(store: &Store, ctx: &Attributes<'_>, pod: &mut Value) -> ApiResult<()> {
    let refuse = |why: String| ApiError::forbidden(&ctx.resource, meta::text(pod, "name"), &why);
    let class = text(&pod["spec"], "runtimeClassName").to_owned();
    let found = match class.as_str() {
        "" => None,
        _ => {
            let key: ObjectKey = ObjectKey::cluster(&class);
            let none = || refuse(format!("pod rejected: RuntimeClass {class:?} not found"));
            Some(store.get(STORAGE, &key)?.ok_or_else(none)?)
        }
    };
    let class = found.as_ref().map_or(&Value::Null, |found| found.value());
    let spec = merged(&pod["spec"], class).map_err(refuse)?;
    pod.set("spec", spec);
    Ok(())
}

/// The pod's `spec` with what its class adds.
fn merged(spec: &Value, class: &Value) -> Result<Value, String> {
    let mut spec = spec.clone();
    let fixed = &class["overhead"]["podFixed"];
    let own = &spec["overhead"];
    let has_own = own.as_object().is_some_and(|own| !own.is_empty());
    if class["overhead"].is_object() {
        if has_own && !same_amounts(own, fixed) {
            return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        if fixed.is_object() {
            spec.set("overhead", fixed.clone());
        }
    } else if has_own {
        return Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned());
    }
    let scheduling = &class["scheduling"];
    for (key, wanted) in text_entries(scheduling, "nodeSelector") {
        let Some(selector) = object_mut(&mut spec, "nodeSelector") else { continue };
        match selector.get(key).and_then(Value::as_str) {
            Some(own) if own != wanted => {
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; \
                     pod.spec.nodeSelector[{key}] = {own}"
                ));
            }
            _ => selector.insert(key.to_owned(), wanted.into()),
        };
    }
    let more = items(scheduling, "tolerations");
    if !more.is_empty() {
        let all: Vec<&Value> = items(&spec, "tolerations").iter().chain(more).collect();
        spec.set("tolerations", merge(&all).into_iter().cloned().collect());
    }
    Ok(spec)
}

fn same_amounts(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let same = |(name, amount): (&String, &Value)| {
        b.get(name).is_some_and(|other| Quantity::from_value(amount) == Quantity::from_value(other))
    };
    a.len() == b.len() && a.iter().all(same)
}

/// Without those that another one covers (K8s pkg/util/tolerations, `MergeTolerations`).
fn merge<'a>(all: &[&'a Value]) -> Vec<&'a Value> {
    let mut merged: Vec<&Value> = Vec::new();
    for (i, one) in all.iter().enumerate() {
        let before = merged.iter().any(|other| covers(other, one));
        let after = all[i + 1..].iter().any(|other| other != one && covers(other, one));
        if !before && !after {
            merged.push(one);
        }
    }
    merged
}

fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let operator = |one| Some(text(one, "operator")).filter(|name| !name.is_empty()).unwrap_or("Equal").to_owned();
    let exists = operator(wide) == "Exists";
    let any_key = text(wide, "key").is_empty() && exists;
    if text(wide, "key") != text(narrow, "key") && !any_key {
        return false;
    }
    if text(wide, "effect") != text(narrow, "effect") && !text(wide, "effect").is_empty() {
        return false;
    }
    if text(wide, "effect") == "NoExecute"
        && let Some(seconds) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|own| own > seconds)
    {
        return false;
    }
    exists || (operator(narrow) == "Equal" && text(wide, "value") == text(narrow, "value"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_gives_overhead_and_places() {
        let class = json!({"handler": "kata", "overhead": {"podFixed": {"memory": "120Mi"}}, "scheduling": {
            "nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}});
        let spec = json!({"nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "kata", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]});
        let got = merged(&spec, &class).unwrap();
        assert_eq!(
            got,
            json!({"overhead": {"memory": "120Mi"}, "nodeSelector": {"disk": "ssd", "kata": "yes"},
                "tolerations": [{"key": "kata", "operator": "Exists"}]})
        );
        assert_eq!(merged(&got, &class).unwrap(), got, "twice is once");
        assert_eq!(merged(&spec, &Value::Null).unwrap(), spec);
        assert!(merged(&json!({"overhead": {"memory": "122880Ki"}}), &class).is_ok());
    }

    #[test]
    fn contradictions_are_refused() {
        let class = json!({"overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"a": "1"}}});
        let why = |spec: Value, class: &Value| merged(&spec, class).unwrap_err();
        assert!(why(json!({"overhead": {"cpu": "2"}}), &class).contains("doesn't match"));
        assert!(why(json!({"overhead": {"cpu": "2"}}), &Value::Null).contains("without corresponding"));
        let conflict = why(json!({"nodeSelector": {"a": "2"}}), &class);
        assert!(conflict.ends_with("nodeSelector[a] = 1; pod.spec.nodeSelector[a] = 2"), "{conflict}");
    }
}
