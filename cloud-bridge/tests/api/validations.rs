//! Validation rules of custom resources, evaluated by the real helper.

use std::time::{Duration, Instant};

use futures::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::harness::{APPLY, Answer, Api, JSON, JSON_PATCH, MERGE};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A kind with rules.
struct Ruled<'a> {
    api: &'a Api,
    group: String,
}

impl<'a> Ruled<'a> {
    fn definition(api: &Api, name: &str, schema: &Value) -> Value {
        let group = format!("{name}.{}.example.com", api.ns);
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("gadgets.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"}, "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "schema": {"openAPIV3Schema": schema},
            }]},
        })
    }

    /// Defines a kind whose spec has these properties and rules.
    async fn define(api: &'a Api, name: &str, properties: Value, rules: Value) -> Self {
        let made = Self { api, group: format!("{name}.{}.example.com", api.ns) };
        api.post(DEFINITIONS, Self::definition(api, name, &spec_schema(&properties, &rules))).await.ok();
        api.until(&made.path(""), |answer| answer.code == 200).await;
        made
    }

    fn path(&self, rest: &str) -> String {
        self.api.group_path(&format!("{}/v1", self.group), &format!("gadgets{rest}"))
    }

    fn object(&self, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": format!("{}/v1", self.group), "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
    }

    async fn create(&self, name: &str, spec: Value) -> Answer {
        self.api.post(&self.path(""), self.object(name, &spec)).await
    }
}

fn spec_schema(properties: &Value, rules: &Value) -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties, "x-kubernetes-validations": rules},
        "status": {"type": "object", "properties": {"size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 100"}]}}},
    }})
}

fn sizes() -> Value {
    json!({"size": {"type": "integer"}, "text": {"type": "string"}, "list": {"type": "array", "items": {"type": "integer"}}})
}

fn helper(api: &Api) -> Option<Pid> {
    let id = api.server.as_ref().unwrap().cel_helper()?;
    Some(Pid::from_raw(id.try_into().unwrap()))
}

#[tokio::test]
async fn every_way_to_write_is_judged() {
    let api = Api::open().await;
    let rules = json!([
        {"rule": "self.size > 1", "message": "must be larger than 1", "fieldPath": ".size"},
        {"rule": "self.size >= oldSelf.size", "messageExpression": "oldSelf.size == 5 ? 'was 5' : 'was another'", "reason": "FieldValueForbidden"},
    ]);
    let g = Ruled::define(&api, "ways", sizes(), rules).await;
    let kind = format!("Gadget.{}", g.group);
    let invalid = |name: &str, text: &str| format!("{kind} {name:?} is invalid: {text}");
    let small = invalid("a", "spec.size: Invalid value: must be larger than 1");
    let body = g.create("a", json!({"size": 1})).await.fails(422, &small);
    assert_eq!(
        body["details"]["causes"],
        json!([{"reason": "FieldValueInvalid", "message": "Invalid value: must be larger than 1", "field": "spec.size"}])
    );
    g.create("a", json!({"size": 5})).await.ok();
    let merge = async |spec: Value| api.patch(&g.path("/a"), MERGE, json!({ "spec": spec })).await;
    let forbidden = invalid("a", "spec: Forbidden: was 5");
    merge(json!({"size": 4})).await.fails(422, &forbidden);
    let both = invalid("a", "[spec.size: Invalid value: must be larger than 1, spec: Forbidden: was 5]");
    merge(json!({"size": 1})).await.fails(422, &both);
    let operation = json!([{"op": "replace", "path": "/spec/size", "value": 3}]);
    api.patch(&g.path("/a"), JSON_PATCH, operation).await.fails(422, &forbidden);
    api.patch(&g.path("/a?fieldManager=m&force=true"), APPLY, g.object("a", &json!({"size": 2})))
        .await
        .fails(422, &forbidden);
    api.patch(&g.path("/a/scale"), MERGE, json!({"spec": {"replicas": 3}})).await.fails(422, &forbidden);
    let mut object = api.get(&g.path("/a")).await.ok();
    object["spec"]["size"] = json!(4);
    api.put(&g.path("/a"), object.clone()).await.fails(422, &forbidden);
    object["spec"]["size"] = json!(6);
    let updated = api.put(&g.path("/a"), object.clone()).await.ok();
    assert_eq!(updated["metadata"]["generation"], 2);
    api.put(&g.path("/a"), object).await.fails_with(409, "the object has been modified");
    let status = async |size: i64| api.patch(&g.path("/a/status"), MERGE, json!({"status": {"size": size}})).await;
    status(100).await.fails(422, &invalid("a", "status.size: Invalid value: 100: failed rule: self < 100"));
    assert_eq!(status(9).await.ok()["status"]["size"], 9);
    api.patch(&g.path("/b?fieldManager=m"), APPLY, g.object("b", &json!({"size": 1})))
        .await
        .fails_with(422, "must be larger");
    assert_eq!(api.patch(&g.path("/b?fieldManager=m"), APPLY, g.object("b", &json!({"size": 2}))).await.code, 201);
    api.post(&g.path("?dryRun=All"), g.object("c", &json!({"size": 1}))).await.fails_with(422, "must be larger");
    let mut named = g.object("", &json!({"size": 2}));
    named["metadata"] = json!({"generateName": "some-"});
    api.post(&g.path(""), named).await.ok();
    // Rules are not evaluated for an object that violates its schema.
    let wrong = g.create("d", json!({"size": "x"})).await;
    let unchecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    wrong.fails(422, &invalid("d", &format!(
        "[spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\", .spec.size: Invalid value: 0: \
         .spec.size accessor error: x is of the type string, expected int64, <nil>: Invalid value: null: {unchecked}]"
    )));
}

#[tokio::test]
async fn what_was_wrong_before_stays_with_a_warning() {
    let api = Api::open().await;
    let g = Ruled::define(&api, "ratchet", sizes(), json!([])).await;
    g.create("a", json!({"size": 1})).await.ok();
    let stricter = spec_schema(&sizes(), &json!([{"rule": "self.size > 1"}]));
    let path = format!("{DEFINITIONS}/gadgets.{}", g.group);
    let change = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": stricter}]);
    api.patch(&path, JSON_PATCH, change).await.ok();
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let mut labelled = api.patch(&g.path("/a"), MERGE, label.clone()).await;
    let end = Instant::now() + Duration::from_secs(10);
    // A real API server serves the changed definition a moment later.
    while api.real && labelled.warnings.is_empty() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100)).await;
        labelled = api.patch(&g.path("/a"), MERGE, label.clone()).await;
    }
    assert_eq!(
        (labelled.code, labelled.warnings.as_slice()),
        (200, ["\"spec: Invalid value: failed rule: self.size > 1\"".to_owned()].as_slice())
    );
    api.patch(&g.path("/a"), MERGE, json!({"spec": {"text": "x"}}))
        .await
        .fails_with(422, "spec: Invalid value: failed rule: self.size > 1");
}

#[tokio::test]
async fn what_is_being_deleted_is_let_go_unjudged() {
    let api = Api::open().await;
    if api.real {
        return;
    }
    let g = Ruled::define(&api, "lets-go", sizes(), json!([{"rule": "self.size > oldSelf.size"}])).await;
    let mut object = g.object("a", &json!({"size": 1}));
    object["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b"]);
    api.post(&g.path(""), object).await.ok();
    let path = g.path("/a");
    let finalizers = async |left: Value| api.patch(&path, MERGE, json!({"metadata": {"finalizers": left}})).await;
    finalizers(json!(["x.io/b"])).await.fails_with(422, "failed rule");
    api.delete(&path, Value::Null).await.ok();
    let both = json!({"metadata": {"finalizers": ["x.io/b"], "labels": {"a": "b"}}});
    api.patch(&path, MERGE, both).await.fails_with(422, "failed rule");
    api.patch(&path, MERGE, json!({"metadata": {"finalizers": null}, "spec": {"size": 0}}))
        .await
        .fails_with(422, "failed rule");
    // The default of a later definition is not a change by the client.
    let mut properties = sizes();
    properties["late"] = json!({"type": "integer", "default": 7});
    let schema = spec_schema(&properties, &json!([{"rule": "self.size > oldSelf.size"}]));
    let change = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": schema}]);
    api.patch(&format!("{DEFINITIONS}/gadgets.{}", g.group), JSON_PATCH, change).await.ok();
    let left = finalizers(json!(["x.io/b"])).await.ok();
    assert_eq!(left["metadata"]["finalizers"], json!(["x.io/b"]));
    finalizers(Value::Null).await.ok();
    api.get(&path).await.fails_with(404, "not found");
}

#[tokio::test]
async fn definitions_with_broken_rules_are_refused() {
    let api = Api::open().await;
    let define = async |rule: &str| {
        api.post(DEFINITIONS, Ruled::definition(&api, "broken", &spec_schema(&sizes(), &json!([{"rule": rule}])))).await
    };
    let place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: ";
    for (rule, why) in [
        ("self.sise > 1", "compilation failed: ERROR: <input>:1:5: undefined field 'sise'\n | self.sise > 1\n | ....^"),
        ("self.size + 'a' == 'b'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("sortBy(self.list)", "undeclared reference to 'sortBy' (in container '')"),
        ("self.size", "cel expression must evaluate to a bool"),
        ("self.size >", "compilation failed: ERROR: <input>:1:"),
    ] {
        let body = define(rule).await.fails_with(422, why);
        assert!(body["message"].as_str().unwrap().contains(place), "{body}");
    }
    // Input that crashes a parser ends only the helper.
    for rule in [
        "(".repeat(5_000) + "true" + &")".repeat(5_000),
        "!".repeat(100_001) + "true",
        "[".repeat(3_000) + &"]".repeat(3_000),
        "true".to_owned() + &" && true".repeat(20_000),
        "self".to_owned() + &".a".repeat(50_000) + " == 1",
        "1".to_owned() + &" + 1".repeat(50_000) + " == 1",
        "true ? ".repeat(5_000) + "true" + &" : true".repeat(5_000),
    ] {
        let answer = define(&rule).await;
        assert!(matches!(answer.code, 201 | 422 | 503), "{:.20}: {}", rule, answer.body);
        if answer.code == 201 {
            api.delete(&format!("{DEFINITIONS}/gadgets.broken.{}.example.com", api.ns), Value::Null).await.ok();
            api.until(&format!("{DEFINITIONS}/gadgets.broken.{}.example.com", api.ns), |a| a.code == 404).await;
        }
    }
    define("self.size > 1").await.ok();
}

#[tokio::test]
async fn without_rules_there_is_no_helper() {
    let api = Api::open().await;
    if api.real {
        return;
    }
    let plain = Ruled::definition(
        &api,
        "plain",
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": sizes()}}}),
    );
    api.post(DEFINITIONS, plain).await.ok();
    let plain = Ruled { api: &api, group: format!("plain.{}.example.com", api.ns) };
    plain.create("a", json!({"size": 1})).await.ok();
    assert_eq!(helper(&api), None);
    let ruled = Ruled::define(&api, "ruled", sizes(), json!([{"rule": "self.size > 1"}])).await;
    let first = helper(&api).expect("a helper");
    ruled.create("a", json!({"size": 2})).await.ok();
    assert_eq!(helper(&api), Some(first), "it is kept");
    let name = std::fs::read_to_string(format!("/proc/{first}/comm")).unwrap();
    assert_eq!(name.trim(), "bridge-rules");
    // Objects of an earlier run are read without a helper.
    let path = ruled.path("");
    let api = api.reopen().await;
    api.get(&path).await.ok();
    assert_eq!(helper(&api), None);
}

#[tokio::test]
async fn a_helper_that_is_ended_is_replaced() {
    let api = Api::open().await;
    if api.real {
        return;
    }
    let g = Ruled::define(&api, "killed", sizes(), json!([{"rule": "self.size > 1"}])).await;
    for round in 0..3 {
        let before = helper(&api).unwrap();
        kill(before, Signal::SIGKILL).unwrap();
        g.create(&format!("a{round}"), json!({"size": 2})).await.ok();
        assert_ne!(helper(&api), Some(before));
    }
    // Also during an evaluation.
    let before = helper(&api).unwrap();
    kill(before, Signal::SIGSTOP).unwrap();
    let (answer, ()) = tokio::join!(g.create("b", json!({"size": 1})), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        kill(before, Signal::SIGKILL).unwrap();
    });
    answer.fails_with(422, "failed rule: self.size > 1");
}

#[tokio::test]
async fn others_go_on_while_a_helper_stands_still() {
    let api = Api::open().await;
    if api.real {
        return;
    }
    let g = Ruled::define(&api, "stopped", sizes(), json!([{"rule": "self.size > 1"}])).await;
    kill(helper(&api).unwrap(), Signal::SIGSTOP).unwrap();
    let started = Instant::now();
    let others = async {
        for round in 0..50 {
            let map = json!({"metadata": {"name": format!("m{round}")}});
            api.post(&api.path("configmaps"), map).await.ok();
            api.get(&g.path("")).await.ok();
        }
        started.elapsed()
    };
    let (answer, took) = tokio::join!(g.create("a", json!({"size": 2})), others);
    assert!(took < Duration::from_secs(8), "{took:?}");
    answer.fails_with(503, "the validation rules were not judged within");
    assert!(started.elapsed() < Duration::from_secs(35), "{:?}", started.elapsed());
    g.create("a", json!({"size": 2})).await.ok();
}

#[tokio::test]
async fn a_rule_uses_up_itself_alone() {
    let api = Api::open().await;
    if api.real {
        return;
    }
    let good = Ruled::define(&api, "good", sizes(), json!([{"rule": "self.size > 1"}])).await;
    let numbers: Vec<usize> = (0..1_000).collect();
    let text = "a".repeat(200_000);
    for (name, rule, spec, why) in [
        (
            "loops",
            "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))",
            json!({"list": numbers}),
            "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.list.all(",
        ),
        (
            "memory",
            "self.text.replace('a', self.text).size() > 0",
            json!({"text": text}),
            "needed more memory than it may have",
        ),
        (
            "time",
            "self.list.all(a, self.text.findAll('(a|aa|b)*c').size() == 0)",
            json!({"list": numbers, "text": text}),
            "took more than 2 s of processor time",
        ),
    ] {
        let bad = Ruled::define(&api, name, sizes(), json!([{ "rule": rule }])).await;
        let started = Instant::now();
        let (answer, others) = tokio::join!(bad.create("a", spec), async {
            api.post(&api.path("configmaps"), json!({"metadata": {"name": name}})).await.ok();
            started.elapsed()
        });
        let body = answer.fails_with(422, why);
        assert!(body["message"].as_str().unwrap().contains(rule.get(..20).unwrap()), "{body}");
        assert!(others < Duration::from_secs(2), "{others:?}");
        good.create(name, json!({"size": 2})).await.ok();
    }
    // A kind that has used up the helper waits for a while; others do not.
    let rests = Ruled { api: &api, group: format!("time.{}.example.com", api.ns) };
    rests.create("b", json!({"size": 1})).await.fails_with(503, "are run again in");
    let other = [("impersonate-user", "other"), ("impersonate-group", "system:masters"), ("content-type", JSON)];
    let object = rests.object("b", &json!({"size": 1})).to_string();
    api.send("POST", &rests.path(""), &other, object.into()).await.fails_with(422, "no such key");
}

#[tokio::test]
async fn many_writes_at_once_are_all_judged() {
    let api = Api::open().await;
    let g = Ruled::define(&api, "many", sizes(), json!([{"rule": "self.size % 2 == 0", "message": "odd"}])).await;
    let names: Vec<String> = (0..200).map(|size| format!("g{size}")).collect();
    let answers = join_all(names.iter().enumerate().map(|(size, name)| g.create(name, json!({ "size": size })))).await;
    for (size, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.code, if size % 2 == 0 { 201 } else { 422 }, "{size}: {}", answer.body);
    }
    // Concurrent changes of one object: each is evaluated on the object that is stored when it is written.
    let path = g.path("/g0");
    let patches =
        (1..=8).map(|size| api.patch(&path, MERGE, json!({"spec": {"size": size * 2, "text": format!("{size}")}})));
    let codes: Vec<u16> = join_all(patches).await.iter().map(|answer| answer.code).collect();
    assert!(codes.contains(&200) && codes.iter().all(|code| matches!(code, 200 | 409)), "{codes:?}");
    let left = api.get(&path).await.ok();
    assert_eq!(
        left["spec"]["size"].as_i64().unwrap() / 2,
        left["spec"]["text"].as_str().unwrap().parse::<i64>().unwrap()
    );
}
