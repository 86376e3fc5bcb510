//! IngressClasses, stored as in Kubernetes. Nothing acts on their Ingresses here, and every write gets a warning about
//! that.

use jiff::Timestamp;
use k8s_openapi::api::networking::v1;
use serde_json::Value;

use super::columns::{AGE, NAME, Table, age};
use super::kind::{Kind, PLAIN, spec_changed};
use crate::codec::decode;
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text};
use apimachinery::json::{present, set_default, text};
use apimachinery::{meta, names};

const CONTROLLER_MAX: usize = 250;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IngressClass",
    plural: "ingressclasses",
    singular: "ingressclass",
    check: Some(decode::check::<v1::IngressClass>),
    rules: Rules { structures: &["spec"], ..Rules::BUILT_IN },
    generation: Some(spec_changed),
    stored_only: true,
    default,
    create: validate,
    update,
    table: &Table {
        columns: [
            NAME,
            ("Controller", "string", 0, "Who looks after Ingresses of this class."),
            ("Parameters", "string", 0, "An object with more settings."),
            AGE,
        ],
        row,
    },
    ..PLAIN
};

fn default(class: &mut Value) {
    if let Some(parameters) = class.get_mut("spec").and_then(|spec| spec.get_mut("parameters")) {
        set_default(parameters, "scope", "Cluster");
    }
}

/// K8s pkg/apis/networking/validation.
fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &class["spec"];
    let controller = text(spec, "controller");
    if controller.len() > CONTROLLER_MAX {
        errors.push(FieldError::too_long("spec.controller", CONTROLLER_MAX));
    }
    domain_path(&mut errors, "spec.controller", controller);
    if let Some(parameters) = present(spec, "parameters") {
        reference(&mut errors, "spec.parameters", parameters);
        scope(&mut errors, parameters);
    }
    errors
}

fn domain_path(errors: &mut Errors, path: &str, value: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = value.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid(path, &value.into(), detail));
        return;
    };
    invalid_text(errors, path, domain, names::dns_subdomain(domain));
    let good = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !rest.chars().all(good) {
        let detail = names::pattern_message("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[]);
        errors.push(FieldError::invalid(path, &rest.into(), &detail.replace("(e.g. ", "(")));
    }
}

/// The group, kind and name of another object.
pub(super) fn reference(errors: &mut Errors, path: &str, reference: &Value) {
    if let Some(group) = present(reference, "apiGroup").and_then(Value::as_str) {
        invalid_text(errors, &format!("{path}.apiGroup"), group, names::dns_subdomain(group));
    }
    for field in ["kind", "name"] {
        let path = format!("{path}.{field}");
        match text(reference, field) {
            "" => errors.push(FieldError::required(path, "")),
            value => invalid_text(errors, &path, value, names::path_segment(value)),
        }
    }
}

fn scope(errors: &mut Errors, parameters: &Value) {
    const PATH: &str = "spec.parameters.namespace";
    let namespace = present(parameters, "namespace").and_then(Value::as_str);
    match (text(parameters, "scope"), namespace) {
        ("Namespace", None) => errors.push(FieldError::required(PATH, "`parameters.scope` is set to 'Namespace'")),
        ("Namespace", Some(namespace)) => invalid_text(errors, PATH, namespace, names::dns_label(namespace)),
        ("Cluster", Some(_)) => errors.push(FieldError::forbidden(PATH, "`parameters.scope` is set to 'Cluster'")),
        ("Cluster", None) => {}
        (other, _) => {
            let known = &["Cluster", "Namespace"];
            errors.push(FieldError::not_supported("spec.parameters.scope", &other.into(), known));
        }
    }
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    immutable(&mut errors, "spec.controller", &new["spec"]["controller"], &old["spec"]["controller"]);
    errors.extend(validate(new));
    errors
}

fn row(class: &Value, now: Timestamp) -> [Value; 4] {
    let (spec, own) = (&class["spec"], meta::text(class, "name"));
    let default = text(&class["metadata"]["annotations"], "ingressclass.kubernetes.io/is-default-class") == "true";
    let parameters = match present(spec, "parameters") {
        None => "<none>".to_owned(),
        Some(one) => match present(one, "apiGroup").and_then(Value::as_str) {
            Some(group) => format!("{}.{group}/{}", text(one, "kind"), text(one, "name")),
            None => format!("{}/{}", text(one, "kind"), text(one, "name")),
        },
    };
    let shown = if default { format!("{own} (default)") } else { own.to_owned() };
    [shown.into(), text(spec, "controller").into(), parameters.into(), age(class, now)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_names_its_controller() {
        let fields = |spec: Value| {
            let mut class = json!({ "spec": spec });
            default(&mut class);
            validate(&class).into_iter().map(|e| e.field.replace("spec.", "")).collect::<Vec<_>>()
        };
        assert!(fields(json!({"controller": "example.com/ingress"})).is_empty());
        for wrong in ["", "nginx", "/a", "a/", "A_b/c", "a/{}"] {
            assert_eq!(fields(json!({ "controller": wrong })), ["controller"], "{wrong}");
        }
        let with = |parameters: Value| fields(json!({"controller": "a/b", "parameters": parameters}));
        assert!(with(json!({"kind": "K", "name": "n"})).is_empty());
        assert_eq!(with(json!({"kind": "K", "name": "n", "scope": "Namespace"})), ["parameters.namespace"]);
        assert_eq!(with(json!({"kind": "K", "name": "n", "namespace": "x"})), ["parameters.namespace"]);
        assert_eq!(with(json!({"scope": "All"})), ["parameters.kind", "parameters.name", "parameters.scope"]);
        let class = |controller: &str| json!({"spec": {"controller": controller}});
        assert_eq!(update(&class("a/b"), &class("a/c"))[0].field, "spec.controller");
    }
}
