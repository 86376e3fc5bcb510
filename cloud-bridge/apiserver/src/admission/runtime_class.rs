//! The RuntimeClass admission: a class must exist, and gives the pod its overhead and where it may be scheduled
//! (K8s plugin/pkg/admission/runtimeclass).

use std::collections::{HashMap, HashSet};

use sampan_json::SetField;
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

/// Without those that another one covers (K8s pkg/util/tolerations, `MergeTolerations`). Of equal ones the first stays.
fn merge<'a>(all: &[&'a Value]) -> Vec<&'a Value> {
    let mut kinds: HashMap<String, usize> = HashMap::new();
    let mut kind = |one: &Value| {
        let next = kinds.len();
        *kinds.entry(one.to_string()).or_insert(next)
    };
    let all: Vec<(&Value, usize)> = all.iter().map(|one| (*one, kind(one))).collect();
    let mut later = Covered::default();
    let mut after: Vec<bool> = Vec::with_capacity(all.len());
    for (one, kind) in all.iter().rev() {
        after.push(later.has(one, Some(*kind)));
        later.add(one, *kind);
    }
    let (mut merged, mut before, mut seen) = (Vec::new(), Covered::default(), HashSet::new());
    for ((one, kind), after) in all.into_iter().zip(after.into_iter().rev()) {
        if !after && !before.has(one, None) && seen.insert(kind) {
            before.add(one, kind);
            merged.push(one);
        }
    }
    merged
}

/// The longest time in seconds that tolerations cover, with their kind; and the longest of another kind.
type Most = [Option<(i64, usize)>; 2];

/// What some tolerations cover, by key, effect and the value, `None` for any.
#[derive(Default)]
struct Covered<'a>(HashMap<(&'a str, &'a str, Option<&'a str>), Most>);

fn exists(toleration: &Value) -> bool {
    text(toleration, "operator") == "Exists"
}

impl<'a> Covered<'a> {
    fn add(&mut self, wide: &'a Value, kind: usize) {
        let (key, effect) = (text(wide, "key"), text(wide, "effect"));
        let value = (!exists(wide)).then(|| text(wide, "value"));
        let limit = wide["tolerationSeconds"].as_i64().filter(|_| effect == "NoExecute").unwrap_or(i64::MAX);
        let [first, second] = self.0.entry((key, effect, value)).or_default();
        // Those of one kind have one limit.
        if [&*first, &*second].into_iter().flatten().any(|(_, known)| *known == kind) {
            return;
        }
        if first.is_none_or(|(most, _)| limit > most) {
            *second = first.replace((limit, kind));
        } else if second.is_none_or(|(most, _)| limit > most) {
            *second = Some((limit, kind));
        }
    }

    /// Whether a toleration is covered by one that is not of this kind.
    fn has(&self, narrow: &Value, except: Option<usize>) -> bool {
        let (key, effect) = (text(narrow, "key"), text(narrow, "effect"));
        let value = matches!(text(narrow, "operator"), "" | "Equal").then(|| text(narrow, "value"));
        let own = narrow["tolerationSeconds"].as_i64().unwrap_or(i64::MAX);
        let within = |key, effect, value| {
            #[cfg(test)]
            tests::LOOKS.set(tests::LOOKS.get() + 1);
            let most = self.0.get(&(key, effect, value)).into_iter().flatten().flatten();
            most.filter(|(_, kind)| Some(*kind) != except).any(|(most, _)| own <= *most)
        };
        [effect, ""].into_iter().any(|effect| {
            // One without a key is of every key if it asks for no value.
            within(key, effect, None) || within("", effect, None) || value.is_some_and(|_| within(key, effect, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    thread_local! {
        /// Number of lookups of covered rules.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

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

    /// Lists conflicts in the order of Kubernetes' message, which compares each item with each other.
    fn each_against_each<'a>(all: &[&'a Value]) -> Vec<&'a Value> {
        let covers = |wide: &Value, narrow: &Value| {
            let operator = |one: &Value| if exists(one) { "Exists".to_owned() } else { "Equal".to_owned() };
            let any = text(wide, "key").is_empty() && exists(wide);
            let (own, most) = (narrow["tolerationSeconds"].as_i64(), wide["tolerationSeconds"].as_i64());
            let longer = most.is_some_and(|most| own.is_none_or(|own| own > most));
            wide == narrow
                || (any || text(wide, "key") == text(narrow, "key"))
                    && ["", text(narrow, "effect")].contains(&text(wide, "effect"))
                    && !(text(wide, "effect") == "NoExecute" && longer)
                    && (exists(wide) || operator(narrow) == "Equal" && text(wide, "value") == text(narrow, "value"))
        };
        let mut merged: Vec<&Value> = Vec::new();
        for (at, one) in all.iter().enumerate() {
            let before = merged.iter().any(|other| covers(other, one));
            if !before && !all[at + 1..].iter().any(|other| other != one && covers(other, one)) {
                merged.push(one);
            }
        }
        merged
    }

    #[test]
    fn tolerations_are_merged_as_each_against_each_would_be() {
        let mut number: u64 = 1;
        let mut next = |of: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % of
        };
        for _ in 0..2000 {
            let list: Vec<Value> = (0..next(6) + 1)
                .map(|_| {
                    let pick = |from: &[&str], at: u64| from[usize::try_from(at).unwrap()].to_owned();
                    let mut one = json!({"key": pick(&["", "a", "b"], next(3)), "effect": pick(&["", "NoExecute", "x"], next(3)),
                        "operator": pick(&["", "Equal", "Exists"], next(3))});
                    if next(2) == 0 {
                        one["value"] = pick(&["v", "w"], next(2)).into();
                    }
                    if next(2) == 0 {
                        one["tolerationSeconds"] = next(3).into();
                    }
                    one
                })
                .collect();
            let list: Vec<&Value> = list.iter().collect();
            assert_eq!(merge(&list), each_against_each(&list), "{list:?}");
        }
    }

    #[test]
    fn each_of_thousands_of_tolerations_is_looked_up_a_few_times() {
        let many = |from: u64| (from..from + 4096).map(|at| json!({"key": format!("k{at}"), "operator": "Exists"}));
        let list: Vec<Value> = many(0).chain(many(2048)).collect();
        LOOKS.set(0);
        assert_eq!(merge(&list.iter().collect::<Vec<_>>()).len(), 4096 + 2048);
        let looks = LOOKS.get();
        assert!((list.len()..=12 * list.len()).contains(&looks), "{looks} for {}", list.len());
    }
}
