//! Bodies and answers in YAML.

use serde_json::json;

use crate::harness::{Answer, Api, config};

const YAML: &str = "application/yaml";

/// A body in YAML; the answer is JSON.
async fn send(api: &Api, method: &str, path: &str, text: &str) -> Answer {
    api.send(method, path, &[("content-type", YAML), ("accept", "application/json")], text.into()).await
}

async fn shown(api: &Api, path: &str, accept: &str) -> (u16, String, String) {
    let (code, kind, bytes) = api.raw("GET", path, &[("accept", accept)], Vec::new()).await;
    (code, kind, String::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn bodies_may_be_yaml() {
    let api = Api::open().await;
    let all = api.path("configmaps");
    let manifest =
        "apiVersion: v1\nkind: ConfigMap # as people write it\nmetadata:\n  name: m\ndata: &d\n  port: \"80\"\n";
    assert_eq!(send(&api, "POST", &all, manifest).await.ok()["data"], json!({"port": "80"}));
    let twice = format!("{manifest}  port: \"81\"\n");
    let strict = send(&api, "PUT", &format!("{all}/m?fieldValidation=Strict"), &twice).await;
    strict.fails_with(400, "strict decoding error: yaml: unmarshal errors:\n  line 7: key \"port\" already set in map");
    let warned = send(&api, "PUT", &format!("{all}/m"), &twice).await;
    assert_eq!((warned.code, &warned.body["data"]["port"]), (200, &json!("81")));
    assert!(warned.warnings.iter().any(|text| text.contains("line 7: key")), "{:?}", warned.warnings);
    send(&api, "POST", &all, "kind: [")
        .await
        .fails_with(400, "the object provided is unrecognized (must be of type ConfigMap): yaml: line ");
    send(&api, "DELETE", &format!("{all}/m"), "propagationPolicy: Background\n").await.ok();
    assert_eq!(send(&api, "PATCH", &format!("{all}/m"), "a: b").await.code, 415);
}

#[tokio::test]
async fn aliases_make_no_more_of_a_body_than_json_may_be() {
    let api = Api::open().await;
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";
    let mut bomb = format!("{head}data:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        bomb += &format!("  a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", "));
    }
    send(&api, "POST", &api.path("configmaps"), &bomb).await.fails_with(400, "excessive aliasing");
    let text = "x".repeat(1 << 20);
    let large = format!("{head}x: &x {text}\ndata: {{a: *x, b: *x, c: *x}}\n");
    assert_eq!(send(&api, "POST", &api.path("configmaps"), &large).await.code, 413);
}

#[tokio::test]
async fn answers_may_be_yaml() {
    let api = Api::open().await;
    let all = api.path("configmaps");
    api.post(&all, config("c", json!({"a": "yes"}))).await.ok();
    let (code, kind, text) = shown(&api, &format!("{all}/c"), YAML).await;
    assert_eq!((code, kind.as_str()), (200, YAML));
    assert!(text.contains("kind: ConfigMap\n") && text.contains("    a: \"yes\"\n"), "{text}");
    let list = shown(&api, &format!("{all}?labelSelector=a"), "application/yaml, application/json").await;
    assert!(list.1 == YAML && list.2.contains("items:\n- "), "{list:?}");
    let table = shown(&api, &all, "application/yaml;as=Table;g=meta.k8s.io;v=v1").await;
    assert!(table.1 == YAML && table.2.contains("kind: Table\n"), "{table:?}");
    let missing = shown(&api, &format!("{all}/none"), YAML).await;
    assert!(missing.0 == 404 && missing.1 == YAML && missing.2.contains("reason: NotFound\n"), "{missing:?}");
    let both = shown(&api, &format!("{all}/c"), "application/json, application/yaml").await;
    assert_eq!(both.1, "application/json");
    assert_eq!(shown(&api, &format!("{all}?watch=1"), YAML).await.0, 406, "YAML has no frames");
    let groups = shown(&api, "/apis", YAML).await;
    assert!(groups.1 == YAML && groups.2.contains("kind: APIGroupList\n"), "{groups:?}");
}
