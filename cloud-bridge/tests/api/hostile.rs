//! Objects of the maximum size with many equal or many different parts: no request takes a second, wherever in an
//! object the parts are.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::harness::{Answer, Api, JSON, MERGE, pod};

/// Length of the long lists in typed objects.
const MANY: usize = 4096;

/// CPU time of this thread, on which the server runs too: other processes do not affect it.
pub(crate) fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

async fn quick(api: &Api, method: &str, path: &str, kind: &str, body: &Value) -> Answer {
    let body = body.to_string();
    assert!(body.len() < 3 << 20, "{method} {path}: {} bytes", body.len());
    let before = spent();
    let answer = api.send(method, path, &[("content-type", kind)], body.into()).await;
    let took = spent() - before;
    assert!(took < LIMIT, "{method} {path}: {took:?}, {}", answer.code);
    assert!(answer.code < 500, "{method} {path}: {}", answer.code);
    answer
}

/// Limit for a build without optimization.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2500 } else { 250 });

fn many(of: usize, one: impl Fn(usize) -> Value) -> Value {
    (0..of).map(one).collect()
}

/// Controllers keep a copy of each.
#[tokio::test]
async fn large_deployments_of_a_namespace_have_a_bounded_room() {
    let api = Api::embedded(|_| {});
    let all = api.group_path("apps/v1", "deployments");
    let deployment = |name: &str, bytes: usize| {
        let container = json!({"name": "c", "image": "i", "env": [{"name": "A", "value": "x".repeat(bytes)}]});
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
    };
    for number in 0..12 {
        api.post(&all, deployment(&format!("d{number}"), 1_000_000)).await.ok();
    }
    api.post(&all, deployment("more", 1_000_000)).await.fails_with(403, "limit is 12582912");
    api.post(&all, deployment("small", 1000)).await.ok();
    let one = api.group_path("apps/v1", "deployments/d0");
    api.patch(&one, MERGE, json!({"metadata": {"labels": {"still": "mine"}}})).await.ok();
    api.patch(&one, MERGE, json!({"metadata": {"annotations": {"a": "x".repeat(100_000)}}})).await.ok();
    let larger = json!({"metadata": {"annotations": {"b": "x".repeat(100_000)}}});
    api.patch(&api.group_path("apps/v1", "deployments/d1"), MERGE, larger).await.ok();
    api.delete(&one, Value::Null).await.ok();
    api.post(&all, deployment("more", 1_000_000)).await.ok();
}

#[tokio::test]
async fn what_an_update_may_keep_is_looked_up() {
    let api = Api::embedded(|_| {});
    // Ranges in the spelling of earlier releases may stay. There are more of them than one list may have.
    let wide = |at: usize| {
        json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": many(MANY, |n| {
            format!("10.{at}.{}.{}/32", n / 256, n % 256).into()
        })}}]})
    };
    let policy = json!({"metadata": {"name": "n"}, "spec": {"ingress": many(4, wide)}});
    let path = api.group_path("networking.k8s.io/v1", "networkpolicies");
    quick(&api, "POST", &path, JSON, &policy).await.ok();
    let mut other = policy.clone();
    for rule in other["spec"]["ingress"].as_array_mut().unwrap() {
        rule["from"][0]["ipBlock"]["except"] = many(MANY, |n| format!("010.0.{}.{}/32", n / 256, n % 256).into());
    }
    quick(&api, "PUT", &format!("{path}/n"), JSON, &other).await.fails_with(422, "except[0]");

    let path = api.group_path("networking.k8s.io/v1", "ingresses");
    let backend = json!({"service": {"name": "s", "port": {"number": 1}}});
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}});
    quick(&api, "POST", &path, JSON, &ingress).await.ok();
    let mut status = ingress.clone();
    for octet in ["10.0", "10.1"] {
        let ips = many(MANY, |n| json!({"ip": format!("{octet}.{}.{}", n / 256, n % 256)}));
        status["status"] = json!({"loadBalancer": {"ingress": ips}});
        quick(&api, "PUT", &format!("{path}/i/status"), JSON, &status).await.ok();
    }

    let path = api.path("configmaps");
    let held = |from: usize| many(MANY, |n| format!("e/f{}", n + from).into());
    let map = |from: usize| json!({"metadata": {"name": "m", "finalizers": held(from)}});
    quick(&api, "POST", &path, JSON, &map(0)).await.ok();
    api.delete(&format!("{path}/m"), Value::Null).await;
    quick(&api, "PUT", &format!("{path}/m"), JSON, &map(0)).await.ok();
    quick(&api, "PUT", &format!("{path}/m"), JSON, &map(MANY)).await.fails_with(422, "no new finalizers");
}

#[tokio::test]
async fn pods_and_their_templates_of_thousands_of_parts() {
    let api = Api::embedded(|_| {});
    let tolerations = |word: &str| many(MANY, |n| json!({"key": format!("{word}{n}"), "operator": "Exists"}));
    let class = json!({"metadata": {"name": "c"}, "handler": "h", "scheduling": {"tolerations": tolerations("b")}});
    quick(&api, "POST", "/apis/node.k8s.io/v1/runtimeclasses", JSON, &class).await.ok();
    let mut one = pod("tolerant");
    one["spec"]["runtimeClassName"] = "c".into();
    one["spec"]["tolerations"] = tolerations("a");
    let path = api.path("pods");
    let mut there = quick(&api, "POST", &path, JSON, &one).await.ok();
    let list = there["spec"]["tolerations"].as_array_mut().unwrap();
    list.truncate(4000);
    quick(&api, "PUT", &format!("{path}/tolerant"), JSON, &there).await.fails_with(422, "existing toleration");

    // Claims and gates that containers and conditions name.
    let mut one = pod("claims");
    let wrong = many(100, |n| json!({"name": format!("x{n}")}));
    let container = |n: usize| json!({"name": format!("c{n}"), "image": "i", "resources": {"claims": wrong}});
    one["spec"]["containers"] = many(20, container);
    one["spec"]["resourceClaims"] = many(MANY, |n| json!({"name": format!("claim-{n}"), "resourceClaimName": "r"}));
    quick(&api, "POST", &path, JSON, &one).await;

    // The maximum that fits into an object.
    let volumes = many(MANY / 2, |n| json!({"name": format!("v{n}"), "emptyDir": {}}));
    let claim = |n: usize| {
        let wanted = json!({"requests": {"storage": "1Gi"}});
        json!({"metadata": {"name": format!("c{n}")}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": wanted}})
    };
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}});
    let set = json!({"metadata": {"name": "s"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
        "template": template, "volumeClaimTemplates": many(MANY / 4, claim)}});
    let sets = api.group_path("apps/v1", "statefulsets");
    quick(&api, "POST", &sets, JSON, &set).await.ok();
    // A namespace has room for few of them.
    api.delete(&format!("{sets}/s"), Value::Null).await.ok();

    let rule = |n: usize| json!({"action": "FailJob", "onExitCodes": {"containerName": format!("x{n}"), "operator": "In", "values": [1]}});
    let containers = many(MANY / 4, |n| json!({"name": format!("c{n}"), "image": "i"}));
    let job = json!({"metadata": {"name": "j"}, "spec": {"podFailurePolicy": {"rules": many(MANY / 2, rule)},
        "template": {"spec": {"restartPolicy": "Never", "containers": containers}}}});
    quick(&api, "POST", &api.group_path("batch/v1", "jobs"), JSON, &job).await.fails_with(422, "Too many: 2048");
}

#[tokio::test]
async fn ranges_of_limits_are_held_against_what_they_can_be() {
    let api = Api::embedded(|_| {});
    let amounts =
        |of: usize| -> Map<String, Value> { (0..of).map(|n| (format!("example.com/r{n}"), "1".into())).collect() };
    let limit = json!({"type": "Container", "default": amounts(10_000), "min": amounts(10_000)});
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": [limit]}});
    quick(&api, "POST", &api.path("limitranges"), JSON, &range).await.ok();
    let mut one = pod("p");
    one["spec"]["containers"] = many(MANY, |n| json!({"name": format!("c{n}"), "image": "i"}));
    quick(&api, "POST", &api.path("pods"), JSON, &one).await.fails_with(403, "too many containers");
    api.delete(&api.path("limitranges/l"), Value::Null).await.ok();
    let range = json!({"metadata": {"name": "m"}, "spec": {"limits": [{"type": "Container", "min": {"cpu": "1"}}]}});
    api.post(&api.path("limitranges"), range).await.ok();
    // Each differs, and the warnings are not repeated.
    let asks = |n: usize| json!({"name": format!("c{n}"), "image": "i", "resources": {"requests": {"cpu": format!("{}m", n % 999 + 1)}}});
    one["spec"]["containers"] = many(MANY * 3 / 4, asks);
    let told = quick(&api, "POST", &api.path("pods"), JSON, &one).await.fails_with(403, "but request is 999m");
    assert_eq!(told["message"].as_str().unwrap().matches("but request is").count(), 999);
    // Errors of the object itself are listed first, and a node is refused before both.
    one["spec"]["containers"][0]["name"] = "A".into();
    quick(&api, "POST", &api.path("pods"), JSON, &one).await.fails_with(422, "containers[0].name");
    let node = [("impersonate-user", "system:node:n"), ("impersonate-group", "system:nodes"), ("content-type", JSON)];
    let answer = api.send("POST", &api.path("pods"), &node, one.to_string().into()).await;
    answer.fails_with(403, "can only create mirror pods");
}

#[tokio::test]
async fn an_applier_may_own_a_long_list() {
    let api = Api::embedded(|_| {});
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{1,63}[0-9]*$"}, "v": {"type": "integer"}}});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item});
    let schema = json!({"type": "object", "properties": {"list": list}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let crd = json!({"metadata": {"name": "longs.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "longs", "kind": "Long"}, "versions": [version]}});
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await.ok();
    let path = api.group_path("example.com/v1", "longs");
    api.until(&path, |answer| answer.code == 200).await;
    const LONG: usize = 3000;
    let object = |from: usize, v: usize| {
        json!({"apiVersion": "example.com/v1", "kind": "Long", "metadata": {"name": "l"},
            "list": many(LONG, |n| json!({"name": format!("n{}", n + from), "v": v}))})
    };
    let apply = |who: &str| format!("{path}/l?fieldManager={who}");
    const APPLY: &str = "application/apply-patch+yaml";
    quick(&api, "PATCH", &apply("a"), APPLY, &object(0, 1)).await.ok();
    quick(&api, "PATCH", &apply("b"), APPLY, &object(0, 2)).await.fails_with(409, "conflicts with \"a\"");
    quick(&api, "PATCH", &format!("{}&force=true", apply("b")), APPLY, &object(0, 2)).await.ok();
    let left = quick(&api, "PATCH", &apply("b"), APPLY, &object(LONG, 2)).await.ok();
    assert_eq!(left["list"].as_array().unwrap().len(), 2 * LONG, "the other one owns the names");
    let left = quick(&api, "PATCH", &apply("a"), APPLY, &object(0, 0)).await.ok();
    assert_eq!(left["list"].as_array().unwrap().len(), 2 * LONG);
    let left = quick(&api, "PATCH", &apply("a"), APPLY, &object(LONG, 2)).await.ok();
    assert_eq!(left["list"].as_array().unwrap().len(), LONG);
    let mut changed = left;
    changed["list"] = many(LONG, |n| json!({"name": format!("n{}", n + LONG), "v": 7}));
    quick(&api, "PUT", &format!("{path}/l"), JSON, &changed).await.ok();
}
