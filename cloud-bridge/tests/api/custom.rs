//! Custom resource definitions and their objects.

use serde_json::{Value, json};

use crate::harness::{Answer, Api, MERGE, STRATEGIC, TABLE};

struct Widgets {
    api: Api,
    group: String,
}

impl Widgets {
    async fn define() -> Self {
        let api = Api::open().await;
        let group = format!("{}.example.com", api.ns);
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("widgets.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wg"]},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    ],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "required": ["image"], "properties": {
                            "image": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
                            "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
                            "mode": {"type": "string", "enum": ["a", "b"]},
                            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        }},
                        "status": {"type": "object", "properties": {"conditions": {"type": "array", "items": {
                            "type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                        }}}},
                    }}},
                }],
            },
        });
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.ok();
        let widgets = Self { api, group };
        let established = |a: &Answer| {
            let conditions = a.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
            ["NamesAccepted", "Established"]
                .iter()
                .all(|kind| conditions.iter().any(|c| c["type"] == *kind && c["status"] == "True"))
        };
        widgets.api.until(&widgets.definition(), established).await;
        widgets.api.until(&widgets.path(""), |a| a.code == 200).await;
        widgets
    }

    fn definition(&self) -> String {
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{}", self.group)
    }

    fn path(&self, rest: &str) -> String {
        self.api.group_path(&format!("{}/v1", self.group), &format!("widgets{rest}"))
    }

    fn widget(&self, name: &str, spec: Value) -> Value {
        json!({"apiVersion": format!("{}/v1", self.group), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
    }

    async fn close(self) {
        self.api.delete(&self.definition(), Value::Null).await.ok();
    }
}

/// Webhooks are not called here, and objects must not be served in a version without conversion.
#[tokio::test]
async fn a_definition_whose_objects_a_webhook_converts_is_refused() {
    let api = Api::embedded(|_| {});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = |versions: &[&str], strategy: Value| {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let version =
            |(n, name): (usize, &&str)| json!({"name": name, "served": true, "storage": n == 0, "schema": schema});
        let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
        json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"}, "versions": versions, "conversion": {"strategy": strategy,
                "webhook": {"clientConfig": {"url": "https://c.example.com"}, "conversionReviewVersions": ["v1"]}}}})
    };
    api.post(path, definition(&["v1", "v2"], json!("Webhook"))).await.fails_with(422, "calls no webhooks");
    api.post(path, definition(&["v1"], json!("Magic")))
        .await
        .fails_with(422, "supported values: \"None\", \"Webhook\"");
    api.post(path, definition(&["v1"], json!("Webhook"))).await.ok();
}

#[tokio::test]
async fn a_deprecated_version_is_told() {
    let w = Widgets::define().await;
    let patch = json!([{"op": "add", "path": "/spec/versions/0/deprecated", "value": true}]);
    w.api.patch(&w.definition(), crate::harness::JSON_PATCH, patch).await.ok();
    let text = format!("\"{}/v1 Widget is deprecated\"", w.group);
    let mut told = false;
    for _ in 0..50 {
        told = w.api.get(&w.path("")).await.warnings.contains(&text);
        if told {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(told, "{text}");
    w.close().await;
}

#[tokio::test]
async fn a_definition_with_a_broken_pattern_is_refused() {
    let w = Widgets::define().await;
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/image/pattern";
    let patch = json!([{"op": "replace", "path": path, "value": "^(a"}]);
    let refused = w.api.patch(&w.definition(), crate::harness::JSON_PATCH, patch).await;
    refused.fails_with(422, "must be a valid regular expression, but isn't");
    w.close().await;
}

#[tokio::test]
async fn schemas_prune_default_and_validate() {
    let w = Widgets::define().await;
    let spec = json!({"image": "busybox", "bogus": 1, "free": {"x": [1]}});
    let made = w.api.post(&w.path(""), w.widget("a", spec.clone())).await;
    assert_eq!(made.code, 201);
    assert_eq!(made.warnings, ["\"unknown field \\\"spec.bogus\\\"\""]);
    assert_eq!(made.body["spec"], json!({"image": "busybox", "size": 3, "free": {"x": [1]}}));
    assert_eq!(made.body["metadata"]["generation"], 1);
    w.api
        .post(&w.path("?fieldValidation=Strict"), w.widget("b", spec))
        .await
        .fails_with(400, "strict decoding error: unknown field \"spec.bogus\"");
    let name = format!("Widget.{} \"b\" is invalid: ", w.group);
    for (spec, why) in [
        (json!({}), "spec.image: Required value"),
        (json!({"image": "x"}), "spec.image: Invalid value: \"x\": spec.image in body should be at least 2 chars long"),
        (json!({"image": "AA"}), "spec.image: Invalid value: \"AA\": spec.image in body should match '^[a-z]+$'"),
        (
            json!({"image": "aa", "size": 99}),
            "spec.size: Invalid value: 99: spec.size in body should be less than or equal to 10",
        ),
        (json!({"image": "aa", "mode": "z"}), "spec.mode: Unsupported value: \"z\": supported values: \"a\", \"b\""),
    ] {
        w.api.post(&w.path(""), w.widget("b", spec)).await.fails(422, &format!("{name}{why}"));
    }
    w.close().await;
}

#[tokio::test]
async fn status_is_apart_and_columns_are_shown() {
    let w = Widgets::define().await;
    w.api.post(&w.path(""), w.widget("a", json!({"image": "busybox"}))).await.ok();
    let after =
        w.api.patch(&w.path("/a"), MERGE, json!({"spec": {"size": 5}, "status": {"conditions": []}})).await.ok();
    assert_eq!((&after["metadata"]["generation"], after.get("status")), (&json!(2), None));
    let status = json!({"spec": {"size": 7}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let after = w.api.patch(&w.path("/a/status"), MERGE, status).await.ok();
    assert_eq!((&after["metadata"]["generation"], &after["spec"]["size"]), (&json!(2), &json!(5)));
    let table = w.api.send("GET", &w.path(""), &[("accept", TABLE)], Vec::new()).await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 5, "True"]));
    assert_eq!(w.api.patch(&w.path("/a"), STRATEGIC, json!({})).await.code, 415);
    let mut blind = w.widget("a", json!({"image": "other"}));
    w.api
        .put(&w.path("/a"), blind.clone())
        .await
        .fails_with(422, "metadata.resourceVersion: Invalid value: 0: must be specified for an update");
    blind["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"].clone();
    w.api.put(&w.path("/a"), blind).await.ok();
    let list = w.api.get(&w.path("")).await.ok();
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("WidgetList"), &json!("Widget")));
    w.close().await;
}

#[tokio::test]
async fn a_definition_takes_its_objects_along() {
    let w = Widgets::define().await;
    let mut held = w.widget("a", json!({"image": "busybox"}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    w.api.post(&w.path(""), held).await.ok();
    let going = w.api.delete(&w.definition(), Value::Null).await.ok();
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    w.api.until(&w.path("/a"), |a| a.body["metadata"]["deletionTimestamp"].is_string()).await;
    w.api.patch(&w.path("/a"), MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
    if !w.api.real {
        w.api.until(&w.definition(), |a| a.code == 404).await;
        w.api.until(&w.path(""), |a| a.code == 404).await;
    }
}

#[tokio::test]
async fn definitions_are_validated_and_survive_a_restart() {
    let api = Api::embedded(|_| {});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut definition = json!({
        "metadata": {"name": "bad"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    api.post(path, definition.clone())
        .await
        .fails_with(422, "metadata.name: Invalid value: \"bad\": must be spec.names.plural+\".\"+spec.group");
    definition["metadata"]["name"] = json!("things.example.com");
    api.post(path, definition).await.ok();
    api.until("/apis/example.com/v1/things", |answer| answer.code == 200).await;
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "any": {"x": 1}});
    api.post("/apis/example.com/v1/things", thing).await.ok();
    let thing = api.reopen().await.get("/apis/example.com/v1/things/t").await.ok();
    assert_eq!(thing["any"]["x"], 1);
}

/// Objects of a kind with `scale` have numbers and a selector at its paths, whatever their schema says.
#[tokio::test]
async fn what_scales_is_a_number() {
    let api = Api::open().await;
    let group = format!("scaled.{}.example.com", api.ns);
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({"specReplicasPath": ".spec.many.bulbs", "statusReplicasPath": ".status.bulbs",
        "labelSelectorPath": ".status.selector"});
    let definition = json!({
        "metadata": {"name": format!("lights.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "lights", "kind": "Light"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": scale},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.post(definitions, definition).await.ok();
    let all = api.group_path(&format!("{group}/v1"), "lights");
    api.until(&all, |answer| answer.code == 200).await;
    let light = |many: Value| json!({"apiVersion": format!("{group}/v1"), "kind": "Light", "metadata": {"name": "l"}, "spec": {"many": many}});
    let invalid = |text: &str| format!("Light.{group} \"l\" is invalid: {text}");
    let accessor = "Invalid value: 0: .spec.many";
    for (many, why) in [
        (json!({"bulbs": -1}), "Invalid value: -1: should be a non-negative integer".to_owned()),
        (
            json!({"bulbs": 4_294_967_296_i64}),
            "Invalid value: 4294967296: should be less than or equal to 2147483647".into(),
        ),
        (json!({"bulbs": 1.5}), format!("{accessor}.bulbs accessor error: 1.5 is of the type float64, expected int64")),
        (json!({"bulbs": true}), format!("{accessor}.bulbs accessor error: true is of the type bool, expected int64")),
        (
            json!({"bulbs": {"b": [1, "x"], "a": "y"}}),
            format!(
                "{accessor}.bulbs accessor error: map[a:y b:[1 x]] is of the type map[string]interface {{}}, expected int64"
            ),
        ),
        (
            json!(["x", {}]),
            format!(
                "{accessor}.bulbs accessor error: [x map[]] is of the type []interface {{}}, expected map[string]interface{{}}"
            ),
        ),
    ] {
        api.post(&all, light(many)).await.fails(422, &invalid(&format!(".spec.many.bulbs: {why}")));
    }
    api.post(&all, light(json!({}))).await.ok();
    api.get(&format!("{all}/l/scale"))
        .await
        .fails(500, "Internal error occurred: the spec replicas field \".spec.many.bulbs\" does not exist");
    api.patch(&format!("{all}/l"), MERGE, json!({"spec": {"many": {"bulbs": "2"}}})).await.fails(
        422,
        &invalid(".spec.many.bulbs: Invalid value: 0: .spec.many.bulbs accessor error: 2 is of the type string, expected int64"),
    );
    let status = json!({"status": {"bulbs": -2, "selector": {"a": "b"}}});
    api.patch(&format!("{all}/l/status"), MERGE, status).await.fails(
        422,
        &invalid(
            "[.status.bulbs: Invalid value: -2: should be a non-negative integer, .status.selector: Invalid value: \"\": \
             .status.selector accessor error: map[a:b] is of the type map[string]interface {}, expected string]",
        ),
    );
    let scaled = api.patch(&format!("{all}/l/scale"), MERGE, json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!(scaled["spec"], json!({"replicas": 4}));
    api.delete(&format!("{definitions}/lights.{group}"), Value::Null).await.ok();
}
