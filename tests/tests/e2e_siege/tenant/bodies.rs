//! Requests that are expensive by their content.

use serde_json::{Value, json};

use super::{JSON, Tenant, named, path};
use crate::siege::Attack;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const OPERATIONS: &str = "application/json-patch+json";

/// `k8s`, then a ConfigMap with this many owner references of a few bytes each.
fn bomb(count: usize) -> Vec<u8> {
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let (mut out, mut length) = (vec![number << 3 | 2], content.len());
        while length > 127 {
            out.push(u8::try_from(length % 128).expect("seven bits") | 128);
            length /= 128;
        }
        out.push(u8::try_from(length).expect("seven bits"));
        [out, content.to_vec()].concat()
    }
    let about = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let metadata = field(13, &field(1, b"a")).repeat(count);
    [b"k8s\0".to_vec(), field(1, &about), field(2, &field(1, &metadata))].concat()
}

fn map(name: &str, data: &Value) -> Vec<u8> {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}).to_string().into_bytes()
}

/// `count` keys with a short value.
fn keys(count: usize, prefix: usize) -> Value {
    (0..count).map(|at| (format!("k{prefix}-{at}"), json!("v"))).collect::<serde_json::Map<_, _>>().into()
}

/// A Deployment whose container has this many variables: a list with keys, whose entries a field set names one by one.
fn deployment(name: &str, variables: usize) -> Value {
    let env: Vec<Value> = (0..variables).map(|at| json!({"name": format!("V{at}"), "value": "v"})).collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": name}}, "template": {
            "metadata": {"labels": {"a": name}}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}}},
    })
}

pub(super) fn attacks(tenant: &Tenant) -> Vec<Attack<'_>> {
    let maps = &["configmaps"];
    let bombs = bomb(600_000);
    let deep = [b"[".repeat(1_400_000), b"]".repeat(1_400_000)].concat();
    let small =
        format!("{{\"metadata\":{{\"name\":\"small\"}},\"x\":[{}0]}}", "{\"\":0},".repeat(350_000)).into_bytes();
    let giant = "x".repeat(1_000_000);
    let wide = keys(30_000, 0);
    let operations: Vec<Value> =
        (0..9_999).map(|at| json!({"op": "add", "path": format!("/data/k{}", at % 3_000), "value": "v"})).collect();
    let operations = Value::from(operations).to_string().into_bytes();
    let moved: Vec<Value> = (0..9_999)
        .map(|at| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/annotations/a{at}")}))
        .collect();
    let moved = Value::from(moved).to_string().into_bytes();
    let apps = path("apps/v1/deployments");
    let strategic = deployment("strategic", 3_000);
    let there = json!({"op": "move", "from": "/data", "path": "/other"});
    let back = json!({"op": "move", "from": "/other", "path": "/data"});
    let moves: Vec<Value> = (0..400).map(|at| if at % 2 == 0 { there.clone() } else { back.clone() }).collect();
    let moves = Value::from(moves).to_string().into_bytes();
    let moved_about = keys(30_000, 0);
    let longer = "x".repeat(500_000);
    vec![
        tenant.making("moves of wide objects", maps, move |asker, random| {
            let name = named(random, 5);
            asker.ask("POST", &path("configmaps"), JSON, &map(&name, &moved_about));
            asker.ask("PATCH", &format!("{}/{name}", path("configmaps")), OPERATIONS, &moves)
        }),
        tenant.making("objects that grow", &["apps/v1/deployments"], move |asker, random| {
            let name = named(random, 5);
            asker.ask("POST", &path("apps/v1/deployments"), JSON, deployment(&name, 1).to_string().as_bytes());
            let more = json!([{"op": "add", "path": "/spec/template/spec/containers/0/env/-",
                "value": {"name": named(random, 1_000_000), "value": longer}}]);
            let object = format!("{}/{name}", path("apps/v1/deployments"));
            asker.ask("PATCH", &object, OPERATIONS, more.to_string().as_bytes())
        }),
        tenant.repeated("protobuf bombs", move |asker, random| {
            asker.ask(random.one(&["POST", "GET", "PUT"]), &path("configmaps"), PROTOBUF, &bombs)
        }),
        tenant.repeated("deep JSON", move |asker, random| {
            asker.ask("POST", &path(random.one(&["configmaps", "pods"])), random.one(&[JSON, APPLY]), &deep)
        }),
        tenant.repeated("JSON of many small objects", move |asker, _| asker.ask("POST", &path("pods"), JSON, &small)),
        tenant.making("giant objects", maps, move |asker, random| {
            let (name, data) = (named(random, 40), json!({"a": giant}));
            match asker.ask("POST", &path("configmaps"), JSON, &map(&name, &data)) {
                Some(409) => asker.ask("PUT", &format!("{}/{name}", path("configmaps")), JSON, &map(&name, &data)),
                other => other,
            }
        }),
        tenant.making("giant objects of many fields", maps, move |asker, random| {
            let name = named(random, 20);
            match asker.ask("POST", &path("configmaps"), JSON, &map(&name, &wide)) {
                Some(409) => asker.ask(
                    "PATCH",
                    &format!("{}/{name}", path("configmaps")),
                    MERGE,
                    json!({"data": {"k0-1": named(random, 1000)}}).to_string().as_bytes(),
                ),
                other => other,
            }
        }),
        tenant.making("server-side apply of many fields", maps, move |asker, random| {
            let (name, manager) = (named(random, 10), random.below(30));
            let object = format!("{}/{name}?fieldManager=m{manager}&force=true", path("configmaps"));
            asker.ask("PATCH", &object, APPLY, &map(&name, &keys(5_000, manager)))
        }),
        tenant.making("server-side apply of long lists", &["apps/v1/deployments"], move |asker, random| {
            let (name, manager) = (named(random, 5), random.below(5));
            let object = format!("{}/{name}?fieldManager=m{manager}&force=true", path("apps/v1/deployments"));
            asker.ask("PATCH", &object, APPLY, deployment(&name, 1_600).to_string().as_bytes())
        }),
        tenant.making("patches of 10,000 operations", maps, move |asker, random| {
            let name = named(random, 3);
            asker.ask("POST", &path("configmaps"), JSON, &map(&name, &json!({"a": "b"})));
            let body = if random.below(2) == 0 { &operations } else { &moved };
            asker.ask("PATCH", &format!("{}/{name}", path("configmaps")), OPERATIONS, body)
        }),
        tenant.making("strategic patches of long lists", &["apps/v1/deployments"], move |asker, random| {
            asker.ask("POST", &apps, JSON, strategic.to_string().as_bytes());
            let env: Vec<Value> =
                (0..3_000).map(|at| json!({"name": format!("V{}", 2_999 - at), "value": named(random, 9)})).collect();
            let patch =
                json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "env": env}]}}}}).to_string();
            asker.ask("PATCH", &format!("{apps}/strategic"), STRATEGIC, patch.as_bytes())
        }),
        tenant.repeated("dry runs", move |asker, random| {
            let body = deployment(&named(random, 1_000), 1_000).to_string();
            asker.ask("POST", &format!("{}?dryRun=All", path("apps/v1/deployments")), JSON, body.as_bytes())
        }),
    ]
}
