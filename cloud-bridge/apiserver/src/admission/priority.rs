//! The Priority admission: a pod's class gives it its priority, and there is at most one default class
//! (K8s plugin/pkg/admission/priority).

use sampan_json::SetField;
use serde_json::Value;

use super::attributes::Attributes;
use crate::kinds::priority_class::{STORAGE, SYSTEM};
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Store, Stored};
use apimachinery::json::{flag, integer, present, text};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Fields that a pod gets from its class.
struct Given {
    class: String,
    priority: i64,
    /// `None` if the class leaves it out.
    preemption: Option<String>,
}

/// Gives a new pod the priority of its class.
pub(super) fn create_pod(store: &Store, ctx: &Attributes<'_>, pod: &mut Value) -> ApiResult<()> {
    let given = given(store, ctx, pod)?;
    if let Some(why) = contradiction(&pod["spec"], &given) {
        return Err(ApiError::forbidden(&ctx.resource, meta::text(pod, "name"), &why));
    }
    if !given.class.is_empty() {
        pod.set_at(&["spec", "priorityClassName"], given.class.into());
    }
    pod.set_at(&["spec", "priority"], given.priority.into());
    if let Some(preemption) = given.preemption {
        pod.set_at(&["spec", "preemptionPolicy"], preemption.into());
    }
    Ok(())
}

/// Keeps fields that clients omit because they do not know them.
pub(super) fn update_pod(new: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if present(&new["spec"], field).is_none()
            && let Some(value) = present(&old["spec"], field)
        {
            new.set_at(&["spec", field], value.clone());
        }
    }
}

fn given(store: &Store, ctx: &Attributes<'_>, pod: &Value) -> ApiResult<Given> {
    let of = |class: &Value| Given {
        class: meta::text(class, "name").to_owned(),
        priority: integer(class, "value").unwrap_or_default(),
        preemption: Some(text(class, "preemptionPolicy").to_owned()).filter(|policy| !policy.is_empty()),
    };
    match text(&pod["spec"], "priorityClassName") {
        "" => Ok(match default_class(store)? {
            Some(class) => of(&class),
            None => Given { class: String::new(), priority: 0, preemption: Some("PreemptLowerPriority".into()) },
        }),
        name => match store.get(STORAGE, &ObjectKey::cluster(name))? {
            Some(class) => Ok(of(class.value())),
            None => {
                let why = format!("no PriorityClass with name {name} was found");
                Err(ApiError::forbidden(&ctx.resource, meta::text(pod, "name"), &why))
            }
        },
    }
}

/// The values in a pod must equal those of its class.
fn contradiction(spec: &Value, given: &Given) -> Option<String> {
    const RULE: &str = "must not be provided in pod spec; priority admission controller computed";
    const FROM: &str = "from the given PriorityClass name";
    if let Some(own) = integer(spec, "priority").filter(|own| *own != given.priority) {
        return Some(format!("the integer value of priority ({own}) {RULE} {} {FROM}", given.priority));
    }
    let (own, preemption) = (text(spec, "preemptionPolicy"), given.preemption.as_deref()?);
    if own.is_empty() || own == preemption {
        return None;
    }
    Some(format!("the string value of PreemptionPolicy ({own}) {RULE} {preemption} {FROM}"))
}

/// The default class; of several, the one of the lowest value.
fn default_class(store: &Store) -> ApiResult<Option<Value>> {
    let classes = store.list(STORAGE, None, None, None)?;
    let defaults = classes.iter().map(|class| class.value()).filter(|class| flag(class, "globalDefault"));
    Ok(defaults.min_by_key(|class| integer(class, "value").unwrap_or_default()).cloned())
}

/// Before a class is written: two of them cannot be the default. `old` is the class before an update.
pub(super) fn write_class(store: &Store, ctx: &Attributes<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    if ctx.resource.storage != STORAGE || !flag(new, "globalDefault") {
        return Ok(());
    }
    let Some(default) = default_class(store)? else { return Ok(()) };
    let other = meta::text(&default, "name");
    if old.is_some_and(|old| meta::text(old, "name") == other) {
        return Ok(());
    }
    let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
    Err(ApiError::forbidden(&ctx.resource, meta::text(new, "name"), &why))
}

/// The classes of the system stay.
pub(super) fn delete_class(ctx: &Attributes<'_>, current: &Stored) -> ApiResult<()> {
    let name = current.key.name.as_str();
    if ctx.resource.storage == STORAGE && SYSTEM.iter().any(|(system, ..)| *system == name) {
        let why = "this is a system priority class and cannot be deleted";
        return Err(ApiError::forbidden(&ctx.resource, name, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_may_repeat_its_class_but_not_contradict_it() {
        let given = Given { class: "low".into(), priority: 5, preemption: Some("Never".into()) };
        let why = |spec: Value| contradiction(&spec, &given);
        assert_eq!(why(json!({})), None);
        assert_eq!(why(json!({"priority": 5, "preemptionPolicy": "Never"})), None);
        assert_eq!(
            why(json!({"priority": 6})).as_deref(),
            Some(
                "the integer value of priority (6) must not be provided in pod spec; priority admission controller \
                 computed 5 from the given PriorityClass name"
            )
        );
        assert!(why(json!({"preemptionPolicy": "PreemptLowerPriority"})).is_some());
    }

    #[test]
    fn an_update_keeps_what_it_does_not_name() {
        let old = json!({"spec": {"priority": 5, "preemptionPolicy": "Never"}});
        let mut new = json!({"spec": {"priority": 6}});
        update_pod(&mut new, &old);
        assert_eq!(new["spec"], json!({"priority": 6, "preemptionPolicy": "Never"}));
        let mut none = json!({"spec": {}});
        update_pod(&mut none, &json!({"spec": {}}));
        assert_eq!(none, json!({"spec": {}}));
    }
}
