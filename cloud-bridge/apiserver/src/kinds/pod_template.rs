//! PodTemplates: separately stored templates of pods. Nothing creates pods of them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use sampan_json::SetField;
use serde_json::Value;

use super::columns::{NAME, Table, name, or_none};
use super::kind::{Kind, PLAIN};
use super::pod::defaults;
use super::workload::table::containers;
use super::workload::template;
use crate::codec::decode;
use crate::patch::merge_keys::{META, Type, object};
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::text_entries;

pub(crate) static KIND: Kind = Kind {
    kind: "PodTemplate",
    plural: "podtemplates",
    singular: "podtemplate",
    namespaced: true,
    check: Some(decode::check::<v1::PodTemplate>),
    rules: Rules { structures: &["template"], template: Some("/template"), ..Rules::BUILT_IN },
    generation: Some(|new, old| new["template"] != old["template"]),
    default: template::default,
    prepare_create: drop_disabled,
    prepare_update: |new, _| drop_disabled(new),
    create: validate,
    update: |new, _| validate(new),
    table: &TABLE,
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("template", &template::KEYS)] };

const TABLE: Table<4> = Table {
    columns: [
        NAME,
        ("Containers", "string", 0, "Names of each container in the template."),
        ("Images", "string", 0, "Images referenced by each container in the template."),
        ("Pod Labels", "string", 0, "The labels for the pod template."),
    ],
    row,
};

fn drop_disabled(pods: &mut Value) {
    if let Some(spec) = pods.at_mut(&["template", "spec"]) {
        defaults::drop_disabled(spec);
    }
}

/// After ValidatePodTemplate of pkg/apis/core/validation.
fn validate(pods: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    template::validate(&mut errors, "template", &pods["template"]);
    errors
}

fn row(pods: &Value, _now: Timestamp) -> [Value; 4] {
    let template = &pods["template"];
    let [names, images] = containers(template);
    let labels: Vec<String> =
        text_entries(&template["metadata"], "labels").map(|(key, value)| format!("{key}={value}")).collect();
    [name(pods), names, images, or_none(&labels.join(","))]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::strategy::Strategy;

    fn filled(template: Value) -> Value {
        let mut pods = json!({"metadata": {"name": "t", "namespace": "n"}, "template": template});
        KIND.default(&mut pods);
        pods
    }

    #[test]
    fn a_template_is_filled_and_judged_as_a_pod() {
        let pods =
            filled(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}));
        let spec = &pods["template"]["spec"];
        assert_eq!(
            (&spec["restartPolicy"], &spec["containers"][0]["imagePullPolicy"]),
            (&json!("Always"), &json!("Always"))
        );
        assert!(KIND.validate_create(&pods).is_empty());
        assert_eq!(KIND.row(&pods, Timestamp::UNIX_EPOCH), [json!("t"), json!("c"), json!("i"), json!("a=b")]);
        let wrong = filled(json!({"spec": {"containers": []}}));
        let told: Vec<String> = KIND.validate_create(&wrong).into_iter().map(|error| error.field).collect();
        assert_eq!(told, ["template.spec.containers"]);
        assert_eq!(KIND.row(&wrong, Timestamp::UNIX_EPOCH)[3], "<none>");
    }

    #[test]
    fn a_change_of_the_template_is_a_generation() {
        let old = filled(json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}));
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"x": "y"});
        assert!(!KIND.generation_changed(&new, &old));
        new["template"]["spec"]["containers"][0]["image"] = json!("j");
        assert!(KIND.generation_changed(&new, &old));
    }
}
