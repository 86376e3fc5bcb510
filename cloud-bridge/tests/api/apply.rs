//! Server-side apply.

use serde_json::{Value, json};

use crate::harness::{APPLY, Answer, Api, JSON_PATCH, MERGE};

async fn apply(api: &Api, manager: &str, data: Value) -> Answer {
    let path = api.path(&format!("configmaps/c?fieldManager={manager}"));
    api.patch(&path, APPLY, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}))
        .await
}

#[tokio::test]
async fn owners_of_fields() {
    let api = Api::open().await;
    assert_eq!(apply(&api, "one", json!({"a": "1", "b": "1"})).await.code, 201);
    let first = api.get(&api.path("configmaps/c")).await.ok();
    let entry = &first["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("one"), &json!("Apply")));
    assert_eq!(entry["fieldsV1"]["f:data"]["f:a"], json!({}));
    let same = apply(&api, "one", json!({"a": "1", "b": "1"})).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    apply(&api, "two", json!({"a": "2"}))
        .await
        .fails(409, "Apply failed with 1 conflict: conflict with \"one\": .data.a");
    let body = apply(&api, "two", json!({"a": "2", "b": "3"}))
        .await
        .fails(409, "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b");
    assert_eq!(body["details"]["causes"][0]["reason"], "FieldManagerConflict");
    apply(&api, "two&force=true", json!({"a": "2"})).await.ok();
    let after = apply(&api, "one", json!({"c": "1"})).await.ok();
    assert_eq!(after["data"], json!({"a": "2", "c": "1"}), "what nobody wants any more goes");
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "other"}});
    api.patch(&api.path("configmaps/c?fieldManager=one"), APPLY, other)
        .await
        .fails_with(422, "metadata.uid: Invalid value: \"other\": field is immutable");
    apply(&api, "", json!({})).await.fails(
        422,
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    );
}

#[tokio::test]
async fn lists_merge_by_key() {
    let api = Api::open().await;
    let pod = |containers: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulerName": "nobody", "automountServiceAccountToken": false, "containers": containers}});
    let path = api.path("pods/p?fieldManager=one");
    api.patch(&path, APPLY, pod(json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]))).await.ok();
    let after =
        api.patch(&path, APPLY, pod(json!([{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]))).await.ok();
    let images: Vec<_> = after["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["name"].clone(), c["image"].clone()))
        .collect();
    assert!(images.contains(&(json!("b"), json!("j"))) && images.contains(&(json!("a"), json!("i"))), "{images:?}");
    let status = api.path("pods/p/status?fieldManager=kubelet");
    let report = |kind: &str| json!({"apiVersion": "v1", "kind": "Pod", "status": {"conditions": [{"type": kind, "status": "True"}]}});
    api.patch(&status, APPLY, report("Ready")).await.ok();
    let after = api.patch(&status, APPLY, report("Initialized")).await.ok();
    let kinds: Vec<_> = after["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
    assert_eq!(kinds, [json!("Initialized")]);
    api.patch(&api.path("pods/p"), MERGE, json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    let kept = api.get(&api.path("pods/p")).await.ok();
    assert!(kept["metadata"]["managedFields"].as_array().unwrap().iter().any(|m| m["manager"] == "one"));
}

#[tokio::test]
async fn manifests_are_yaml() {
    let api = Api::open().await;
    let send = async |query: &str, text: &str| {
        let path = api.path(&format!("configmaps/m?fieldManager=one{query}"));
        api.send("PATCH", &path, &[("content-type", APPLY)], text.into()).await
    };
    let manifest = "apiVersion: v1\nkind: ConfigMap # as people write it\nmetadata:\n  name: m\ndata:\n  port: \"80\"\n  text: |\n    one\n    two\n";
    let made = send("&fieldValidation=Strict", manifest).await;
    assert_eq!((made.code, &made.body["data"]), (201, &json!({"port": "80", "text": "one\ntwo\n"})));
    let twice = format!("{manifest}  port: \"81\"\n");
    let why = "error converting YAML to JSON: yaml: unmarshal errors:\n  line 10: key \"port\" already set in map";
    send("&fieldValidation=Strict", &twice).await.fails(400, &format!("error strict decoding YAML: {why}"));
    let warned = send("&dryRun=All", &twice).await;
    assert_eq!((warned.code, warned.warnings.len()), (200, 1), "{:?}", warned.warnings);
    assert!(warned.warnings[0].contains("line 10: key"), "{:?}", warned.warnings);
    let ignored = send("&fieldValidation=Ignore", &twice).await;
    assert_eq!((ignored.warnings.len(), &ignored.body["data"]["port"]), (0, &json!("81")));
    let broken = "error decoding YAML: error converting YAML to JSON: yaml: line ";
    send("", "apiVersion: v1\nkind: [").await.fails_with(400, broken);
    send("", "apiVersion: v1\nkind: Secret\nmetadata: {name: m}")
        .await
        .fails_with(400, "invalid object type: /v1, Kind=Secret");
}

#[tokio::test]
async fn fields_that_a_kind_does_not_have_are_refused_whatever_is_asked() {
    let api = Api::open().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "bogus": 1},
        "spec": {"containers": [{"name": "c", "image": "i", "imagee": "x"}]}});
    // Kubernetes lists them in no fixed order.
    let mut told = [
        "failed to create typed patch object (/p; /v1, Kind=Pod): errors:",
        "  .metadata.bogus: field not declared in schema",
        "  .spec.containers[name=\"c\"].imagee: field not declared in schema",
    ];
    told.sort_unstable();
    for validation in ["Strict", "Warn", "Ignore"] {
        let path = api.path(&format!("pods/p?fieldManager=one&fieldValidation={validation}"));
        let refused = api.patch(&path, APPLY, pod.clone()).await;
        let mut lines: Vec<&str> = refused.body["message"].as_str().unwrap_or_default().lines().collect();
        lines.sort_unstable();
        assert_eq!((refused.code, lines.as_slice()), (500, told.as_slice()), "{}", refused.body);
    }
}

fn deployment(replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// The entry of a manager.
fn entry<'a>(object: &'a Value, manager: &str) -> Option<&'a Value> {
    object["metadata"]["managedFields"].as_array()?.iter().find(|entry| entry["manager"] == manager)
}

#[tokio::test]
async fn updates_conflict_with_appliers() {
    let api = Api::open().await;
    let path = api.group_path("apps/v1", "deployments/d");
    let apply = |query: &str| format!("{path}?fieldManager=gitops{query}");
    api.patch(&apply(""), APPLY, deployment(1)).await.ok();
    let headers = [("content-type", MERGE), ("user-agent", "kubectl/v1.36.0 (linux/amd64)")];
    let scale = json!({"spec": {"replicas": 3}}).to_string();
    api.send("PATCH", &format!("{path}/scale"), &headers, scale.into()).await.ok();
    let told = "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas";
    api.patch(&apply(""), APPLY, deployment(1)).await.fails(409, told);
    let live = api.get(&path).await.ok();
    assert_eq!(live["spec"]["replicas"], 3);
    let scaled = entry(&live, "kubectl").unwrap();
    assert_eq!((&scaled["operation"], &scaled["subresource"]), (&json!("Update"), &json!("scale")));
    assert_eq!(scaled["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert!(entry(&live, "gitops").unwrap()["fieldsV1"]["f:spec"].get("f:replicas").is_none());
    let forced = api.patch(&apply("&force=true"), APPLY, deployment(1)).await.ok();
    assert_eq!((&forced["spec"]["replicas"], entry(&forced, "kubectl")), (&json!(1), None));
    let mut without = deployment(1);
    without["spec"].as_object_mut().unwrap().remove("replicas");
    api.patch(&format!("{path}?fieldManager=hpa"), MERGE, json!({"spec": {"replicas": 5}})).await.ok();
    let handed_over = api.patch(&apply(""), APPLY, without).await.ok();
    assert_eq!(handed_over["spec"]["replicas"], 5, "who gives a field up leaves it to its other owner");
}

#[tokio::test]
async fn scales_are_applied() {
    let api = Api::open().await;
    let path = api.group_path("apps/v1", "deployments/d");
    api.patch(&format!("{path}?fieldManager=gitops"), APPLY, deployment(1)).await.ok();
    let scale = |replicas: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}});
    let apply = |query: &str| format!("{path}/scale?{query}");
    api.patch(&apply(""), APPLY, scale(2)).await.fails_with(422, "is required for apply patch");
    api.patch(&apply("fieldManager=scaler"), APPLY, scale(2)).await.fails_with(409, "conflict with \"gitops\"");
    let forced = api.patch(&apply("fieldManager=scaler&force=true"), APPLY, scale(2)).await.ok();
    assert_eq!((&forced["kind"], &forced["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    let live = api.get(&path).await.ok();
    let scaler = entry(&live, "scaler").unwrap();
    assert_eq!((&scaler["operation"], &scaler["subresource"]), (&json!("Apply"), &json!("scale")));
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert!(entry(&live, "gitops").unwrap()["fieldsV1"]["f:spec"].get("f:replicas").is_none());
}

#[tokio::test]
async fn status_writes_change_no_other_entry() {
    let api = Api::open().await;
    let path = api.group_path("apps/v1", "deployments/d");
    api.post(&format!("{}?fieldManager=maker", api.group_path("apps/v1", "deployments")), deployment(1)).await.ok();
    let status = format!("{path}/status?fieldManager=controller");
    let sent = json!({"status": {"observedGeneration": 1}, "metadata": {"managedFields": [{}]}});
    let first = api.patch(&status, MERGE, sent).await.ok();
    let made = entry(&first, "maker").unwrap();
    assert_eq!(made["fieldsV1"]["f:spec"]["f:replicas"], json!({}));
    assert_eq!(made["fieldsV1"]["f:metadata"], Value::Null, "the name is nobody's");
    assert_eq!(entry(&first, "controller").unwrap()["fieldsV1"], json!({"f:status": {"f:observedGeneration": {}}}));
    let again = api.patch(&status, MERGE, json!({"status": {"observedGeneration": 1}})).await.ok();
    assert_eq!(again["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn client_side_apply_is_taken_over() {
    let api = Api::open().await;
    let path = api.path("configmaps/c");
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let config =
        |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
    let mut made = config(json!({"a": "1", "b": "1"}));
    made["metadata"]["annotations"] = json!({annotation: format!("{}\n", config(json!({"a": "1", "b": "1"})))});
    api.post(&api.path("configmaps?fieldManager=kubectl-client-side-apply"), made).await.ok();
    let apply = format!("{path}?fieldManager=kubectl");
    let changed = api.patch(&apply, APPLY, config(json!({"a": "2", "b": "1"}))).await.ok();
    assert_eq!(changed["data"], json!({"a": "2", "b": "1"}), "its own fields are no conflict for kubectl");
    let last = format!("{}\n", config(json!({"a": "2", "b": "1"})));
    assert_eq!(changed["metadata"]["annotations"][annotation], last.as_str());
    // kubectl then sends this: the entry of client-side apply becomes part of its own.
    let mut entries = changed["metadata"]["managedFields"].as_array().unwrap().clone();
    let at = entries.iter().position(|e| e["manager"] == "kubectl-client-side-apply").unwrap();
    let old = entries.remove(at);
    let own = entries.iter_mut().find(|e| e["manager"] == "kubectl").unwrap();
    own["fieldsV1"]["f:metadata"] = old["fieldsV1"]["f:metadata"].clone();
    let migrate = json!([{"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": changed["metadata"]["resourceVersion"]}]);
    let migrated = api.patch(&path, JSON_PATCH, migrate).await.ok();
    assert!(entry(&migrated, "kubectl-client-side-apply").is_none(), "{migrated}");
    let left = api.patch(&apply, APPLY, config(json!({"b": "1"}))).await.ok();
    assert_eq!((&left["data"], left["metadata"].get("annotations")), (&json!({"b": "1"}), None));
}

#[tokio::test]
async fn untracked_objects_have_an_owner_before_they_are_applied() {
    let api = Api::open().await;
    let path = api.path("configmaps/c");
    let config =
        |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
    api.post(&api.path("configmaps"), config(json!({"a": "1", "b": "1"}))).await.ok();
    let reset = api.patch(&path, MERGE, json!({"metadata": {"managedFields": [{}]}})).await.ok();
    assert_eq!(reset["metadata"].get("managedFields"), None);
    let still = api.patch(&path, MERGE, json!({"data": {"b": "2"}})).await.ok();
    assert_eq!(still["metadata"].get("managedFields"), None);
    let told = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a";
    api.patch(&format!("{path}?fieldManager=one"), APPLY, config(json!({"a": "2"}))).await.fails(409, told);
    api.patch(&format!("{path}?fieldManager={}", "m".repeat(129)), MERGE, json!({}))
        .await
        .fails_with(422, "fieldManager: Too long");
}

#[tokio::test]
async fn a_selector_is_taken_over_as_a_whole() {
    let api = Api::open().await;
    let service = |selector: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80}], "selector": selector}})
    };
    let apply = |who: &str| api.path(&format!("services/s?fieldManager={who}"));
    api.patch(&apply("first"), APPLY, service(json!({"app": "web", "version": "v1"}))).await.ok();
    api.patch(&apply("second"), APPLY, service(json!({"app": "web"}))).await.fails_with(409, ".spec.selector");
    let taken = api.patch(&apply("second&force=true"), APPLY, service(json!({"app": "web"}))).await.ok();
    assert_eq!(taken["spec"]["selector"], json!({"app": "web"}));
}

#[tokio::test]
async fn schemas_of_custom_resources_decide_how_they_merge() {
    let api = Api::embedded(|_| {});
    let port = json!({"type": "object", "required": ["port"], "properties": {
        "port": {"type": "integer"}, "mode": {"type": "string", "default": "plain"}, "v": {"type": "integer"}}});
    let spec = json!({"type": "object", "required": ["files"], "properties": {
        "files": {"type": "array", "items": {"type": "string"}},
        "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        "nothing": {"type": "string", "nullable": true},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "mode"], "items": port}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let crd = json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await.ok();
    let path = api.group_path("example.com/v1", "things");
    api.until(&path, |answer| answer.code == 200).await;
    let thing =
        |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec});
    let apply = |query: &str| format!("{path}/t?fieldManager={query}");
    let spec = json!({"files": [], "limits": {}, "nothing": null, "whole": {"a": "1", "b": "1"}, "ports": [{"port": 1, "v": 1}]});
    api.patch(&apply("one"), APPLY, thing(spec.clone())).await.ok();
    let mut second = spec;
    second["ports"][0]["v"] = json!(2);
    second["whole"] = json!({"a": "1"});
    let after = api.patch(&apply("one"), APPLY, thing(second.clone())).await.ok();
    let mut expected = second;
    expected["ports"][0]["mode"] = json!("plain");
    assert_eq!(after["spec"], expected);
    let other = json!({"files": [], "whole": {"c": "1"}});
    api.patch(&apply("two"), APPLY, thing(other.clone())).await.fails_with(409, ".spec.whole");
    let taken = api.patch(&apply("two&force=true"), APPLY, thing(other)).await.ok();
    assert_eq!(taken["spec"]["whole"], json!({"c": "1"}));
}

#[tokio::test]
async fn lists_of_thousands_of_objects_are_not_applied() {
    let api = Api::embedded(|_| {});
    let applied = async |variables: usize| {
        let mut object = deployment(0);
        object["spec"]["template"]["spec"]["containers"][0]["env"] =
            (0..variables).map(|at| json!({"name": format!("V{at}"), "value": "v"})).collect();
        api.patch(&api.group_path("apps/v1", "deployments/d?fieldManager=x"), APPLY, object).await
    };
    applied(3_000).await.fails_with(413, "too many values for server-side apply: write it with create or update");
    assert_eq!(applied(1_600).await.code, 201);
}

#[tokio::test]
async fn deep_objects_are_refused_before_they_cost_memory() {
    let api = Api::embedded(|_| {});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({"metadata": {"name": "deeps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "deeps", "kind": "Deep"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await.ok();
    let path = api.group_path("example.com/v1", "deeps");
    api.until(&path, |answer| answer.code == 200).await;
    let object = |leaves: usize| {
        let leaves: Vec<String> = (0..leaves).map(|at| format!("\"{at:x}\":1")).collect();
        let (open, close) = ("{\"a\":".repeat(80), "}".repeat(80));
        let head = "\"apiVersion\":\"example.com/v1\",\"kind\":\"Deep\",\"metadata\":{\"name\":\"d\"}";
        format!("{{{head},\"x\":{open}{{{}}}{close}}}", leaves.join(","))
    };
    let apply = format!("{path}/d?fieldManager=x");
    let headers = [("content-type", APPLY)];
    for leaves in [115_000, 290_000] {
        let refused = api.send("PATCH", &apply, &headers, object(leaves).into()).await;
        refused.fails_with(413, "for server-side apply: write it with create or update");
    }
    // The creator disabled its tracking, so later writers have no cost for it.
    api.send("POST", &path, &[("content-type", "application/json")], object(115_000).into()).await.ok();
    let label =
        api.patch(&format!("{path}/d?fieldManager=y"), MERGE, json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(label.ok()["metadata"].get("managedFields"), None);
    api.send("PATCH", &apply, &headers, object(1).into()).await.fails_with(413, "too many fields");
}
