//! Environment and command line, by table.

use serde_json::{Value, json};

use super::*;

fn container(spec: Value) -> Container {
    let mut spec = spec;
    spec["name"] = json!("c");
    serde_json::from_value(spec).unwrap()
}

fn resolve(spec: Value) -> Result<Environment, String> {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}})).unwrap();
    let config_map = |name: &str| {
        (name == "cm").then(|| serde_json::from_value(json!({"data": {"a": "1", "b": "two", "x=y": "bad"}})).unwrap())
    };
    let secret =
        |name: &str| (name == "sec").then(|| serde_json::from_value(json!({"data": {"key": "aHVzaA=="}})).unwrap());
    let field = |path: &str| match path {
        "status.podIP" => Ok("10.0.0.9".to_owned()),
        other => Err(format!("unsupported fieldPath: {other}")),
    };
    let resource = |c: &str, r: &str, d: Option<&str>| Ok(format!("{c}:{r}:{}", d.unwrap_or("1")));
    let services = [("WEB_SERVICE_HOST".to_owned(), "10.0.0.7".to_owned()), ("A".to_owned(), "theirs".to_owned())];
    let sources =
        Sources { config_map: &config_map, secret: &secret, field: &field, resource: &resource, services: &services };
    environment(&pod, &container(spec), &sources).map_err(|e| e.to_string())
}

fn vars(spec: Value) -> Vec<String> {
    let vars = resolve(spec).unwrap().vars.into_iter();
    // Those of the Services are looked at by themselves.
    vars.map(|(n, v)| format!("{n}={v}")).filter(|v| v != "WEB_SERVICE_HOST=10.0.0.7" && v != "A=theirs").collect()
}

#[test]
fn values_in_order_with_references() {
    let env = json!([
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)-$(LATER)-$$(A)-$(A"},
        {"name": "LATER", "value": "x"},
        {"name": "EMPTY"},
        {"name": "A", "value": "$(A)$(LATER)"},
    ]);
    assert_eq!(vars(json!({ "env": env })), ["A=1x", "B=1-$(LATER)-$(A)-$(A", "LATER=x", "EMPTY="]);
}

#[test]
fn values_from_elsewhere() {
    let env = json!([
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "CM", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "b"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "key"}}},
        {"name": "O1", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "no", "optional": true}}},
        {"name": "O2", "valueFrom": {"secretKeyRef": {"name": "no", "key": "no", "optional": true}}},
        {"name": "URL", "value": "http://$(IP)/$(CM)"},
    ]);
    assert_eq!(
        vars(json!({ "env": env })),
        ["IP=10.0.0.9", "CPU=c:limits.cpu:1m", "CM=two", "S=hush", "URL=http://10.0.0.9/two"]
    );
}

#[test]
fn whole_objects_come_first_and_give_way() {
    let spec = json!({
        "envFrom": [
            {"configMapRef": {"name": "cm"}},
            {"prefix": "P_", "secretRef": {"name": "sec"}},
            {"configMapRef": {"name": "no", "optional": true}},
        ],
        "env": [{"name": "a", "value": "own"}, {"name": "c", "value": "$(b)"}],
    });
    let env = resolve(spec.clone()).unwrap();
    assert_eq!(env.invalid, ["x=y"]);
    assert_eq!(vars(spec), ["a=own", "b=two", "P_key=hush", "c=two"]);
}

#[test]
fn missing_reference_gets_the_kubelets_message() {
    let from = |source: Value| json!({"env": [{"name": "X", "valueFrom": source}]});
    for (spec, message) in [
        (json!({"envFrom": [{"configMapRef": {"name": "gone"}}]}), "configmap \"gone\" not found"),
        (json!({"envFrom": [{"secretRef": {"name": "gone"}}]}), "secret \"gone\" not found"),
        (from(json!({"configMapKeyRef": {"name": "gone", "key": "k"}})), "configmap \"gone\" not found"),
        (from(json!({"configMapKeyRef": {"name": "cm", "key": "k"}})), "couldn't find key k in ConfigMap ns/cm"),
        (from(json!({"secretKeyRef": {"name": "sec", "key": "k"}})), "couldn't find key k in Secret ns/sec"),
        (from(json!({"fieldRef": {"fieldPath": "spec.x"}})), "unsupported fieldPath: spec.x"),
    ] {
        assert_eq!(resolve(spec).unwrap_err(), message);
    }
}

#[test]
fn command_and_arguments() {
    let words = |s: &str| -> Vec<String> { s.split_whitespace().map(String::from).collect() };
    let vars = [("V".to_owned(), "val".to_owned())];
    for (spec, expected) in [
        (json!({}), "entry cmd $(V)"),
        (json!({"args": ["$(V)", "$$(V)"]}), "entry val $(V)"),
        (json!({"command": ["run"]}), "run"),
        (json!({"command": ["run"], "args": ["$(NO)"]}), "run $(NO)"),
    ] {
        assert_eq!(argv(&container(spec), &words("entry"), &words("cmd $(V)"), &vars), words(expected));
    }
}

#[test]
fn empty_entrypoint_of_an_image_counts_as_missing() {
    let words = |s: &str| -> Vec<String> { s.split_whitespace().map(String::from).collect() };
    let argv = |spec, entrypoint: &str| argv(&container(spec), &[entrypoint.to_owned()], &words("nginx -g"), &[]);
    assert_eq!(argv(json!({}), ""), words("nginx -g"));
    assert_eq!(argv(json!({"args": ["sh"]}), ""), words("sh"));
    assert_eq!(argv(json!({"command": ["sh"]}), ""), words("sh"));
    assert_eq!(argv(json!({}), "entry"), words("entry nginx -g"));
}

#[test]
fn expansion_keeps_other_text() {
    let vars = [("A".to_owned(), "1".to_owned()), (String::new(), "never".to_owned())];
    for (text, expected) in
        [("$", "$"), ("a$", "a$"), ("$A", "$A"), ("$(A", "$(A"), ("$$$(A)", "$1"), ("$(ä)$(A)", "$(ä)1"), ("", "")]
    {
        assert_eq!(expand(text, &vars), expected, "{text}");
    }
}

#[test]
fn service_variables_fill_unset_names() {
    let env = json!([{"name": "URL", "value": "http://$(WEB_SERVICE_HOST)/$(A)"}, {"name": "A", "value": "mine"}]);
    let vars = resolve(json!({ "env": env })).unwrap().vars;
    let vars: Vec<String> = vars.into_iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(vars, ["URL=http://10.0.0.7/theirs", "A=mine", "WEB_SERVICE_HOST=10.0.0.7"]);
}
