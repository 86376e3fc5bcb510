//! Templates of the claims that each pod of a StatefulSet gets for itself.

use std::borrow::Cow;

use k8s_openapi::api::apps::v1;
use serde_json::{Value, json};

use crate::codec::decode::Decoded;
use crate::kinds::volume;
use crate::kinds::workload;
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{items, items_mut, remove, text};

/// The kind in a template is ignored (pkg/apis/apps/v1/conversion.go), but must be text.
pub(super) fn check(set: &Value) -> Result<Decoded, String> {
    let mut set = Cow::Borrowed(set);
    if !items(&set["spec"], "volumeClaimTemplates").is_empty()
        && let Some(spec) = set.to_mut().get_mut("spec")
    {
        for template in items_mut(spec, "volumeClaimTemplates") {
            for field in ["apiVersion", "kind"] {
                if template.get(field).is_some_and(Value::is_string) {
                    remove(template, field);
                }
            }
        }
    }
    workload::check::<v1::StatefulSet>(&set)
}

/// Fills the templates in a spec as if they were claims.
pub(super) fn default(spec: &mut Value) {
    for template in items_mut(spec, "volumeClaimTemplates") {
        volume::default_claim(template);
    }
}

/// Judges the templates in a spec as if they were claims.
pub(super) fn validate(errors: &mut Errors, spec: &Value) {
    for (i, template) in items(spec, "volumeClaimTemplates").iter().enumerate() {
        let wrong = volume::validate::claim(template).into_iter();
        let at = |field: &str| format!("spec.volumeClaimTemplates[{i}].{field}");
        errors.extend(wrong.map(|error| FieldError { field: at(&error.field), ..error }));
    }
}

/// The template of pods as its pods will be: with a volume for each claim, in place of any other of that name. Names of
/// hosts are given to each of them.
pub(super) fn with_volumes(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let Some(pod) = template.get_mut("spec") else { return template };
    remove(pod, "subdomain");
    remove(pod, "hostname");
    let mut names: Vec<&str> =
        items(spec, "volumeClaimTemplates").iter().map(|claim| text(&claim["metadata"], "name")).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return template;
    }
    let own = names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let others =
        items(pod, "volumes").iter().filter(|volume| names.binary_search(&text(volume, "name")).is_err()).cloned();
    let volumes: Vec<Value> = own.chain(others).collect();
    if let Some(pod) = pod.as_object_mut() {
        pod.insert("volumes".to_owned(), volumes.into());
    }
    template
}
