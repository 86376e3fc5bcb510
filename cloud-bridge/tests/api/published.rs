//! Published parts of definitions: OpenAPI, defaults of objects that were stored before, and definitions in protobuf.

use serde_json::{Value, json};

use crate::harness::{Api, JSON_PATCH, MERGE};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition with two versions of one schema.
fn definition(group: &str, schema: &Value) -> Value {
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
    json!({
        "metadata": {"name": format!("lamps.{group}")},
        "spec": {"group": group, "scope": "Cluster", "names": {"plural": "lamps", "kind": "Lamp"},
            "versions": [version("v1", true), version("v2", false)]},
    })
}

/// The definition of this kind in `/openapi/v2`, when it is accepted.
async fn published(api: &Api, name: &str, wish: impl Fn(&Value) -> bool) -> Value {
    let wished = |answer: &crate::harness::Answer| wish(&answer.body["definitions"][name]);
    api.until("/openapi/v2", wished).await.body["definitions"][name].clone()
}

#[tokio::test]
async fn definitions_are_published_in_both_versions_of_openapi() {
    let api = Api::open().await;
    let group = format!("{}.example.com", api.ns);
    let schema = json!({"type": "object", "description": "A lamp", "properties": {
        "spec": {"type": "object", "description": "What is wanted", "required": ["bulbs"], "properties": {
            "bulbs": {"type": "array", "description": "The bulbs", "items": {"type": "string", "enum": ["LED"]}},
            "colour": {"type": "string", "nullable": true},
        }},
    }});
    let path = format!("{DEFINITIONS}/lamps.{group}");
    api.post(DEFINITIONS, definition(&group, &schema)).await.ok();
    let reversed: Vec<&str> = group.rsplit('.').collect();
    let name = |version: &str| format!("{}.{version}.Lamp", reversed.join("."));
    let second = published(&api, &name("v2"), Value::is_object).await;
    assert_eq!(second["description"], "A lamp");
    assert_eq!(
        second["properties"]["spec"]["properties"]["bulbs"],
        schema["properties"]["spec"]["properties"]["bulbs"]
    );
    assert_eq!(
        second["properties"]["spec"]["properties"]["colour"],
        json!({}),
        "what v2 has no word for may be anything"
    );
    let kind = json!([{"group": group, "version": "v2", "kind": "Lamp"}]);
    assert_eq!(second["x-kubernetes-group-version-kind"], kind);
    let reference = &second["properties"]["metadata"]["$ref"];
    assert_eq!(*reference, "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");

    // A real API server publishes them one after the other.
    let third = api.until(&format!("/openapi/v3/apis/{group}/v1"), |answer| answer.code == 200).await.body;
    let lamp = &third["components"]["schemas"][name("v1")];
    assert_eq!(lamp["properties"]["spec"]["properties"]["colour"]["nullable"], true);
    let reference = lamp["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap().to_owned();
    let metadata = &third["components"]["schemas"][reference.trim_start_matches("#/components/schemas/")];
    assert_eq!(metadata["properties"]["labels"]["additionalProperties"]["type"], "string");

    // A version that is renamed, and one that is no longer served.
    let rename = json!([{"op": "replace", "path": "/spec/versions/1/name", "value": "v3"}]);
    api.patch(&path, JSON_PATCH, rename).await.ok();
    published(&api, &name("v3"), Value::is_object).await;
    published(&api, &name("v2"), Value::is_null).await;
    api.patch(&path, JSON_PATCH, json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]))
        .await
        .ok();
    published(&api, &name("v3"), Value::is_null).await;
    published(&api, &name("v1"), Value::is_object).await;
    api.delete(&path, Value::Null).await.ok();
    published(&api, &name("v1"), Value::is_null).await;
}

#[tokio::test]
async fn objects_are_read_with_the_defaults_of_now() {
    let api = Api::open().await;
    let group = format!("{}.example.com", api.ns);
    let lamps = format!("/apis/{group}/v1/lamps");
    let schema = |a: Value, b: Value| json!({"type": "object", "properties": {"a": a, "b": b, "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let text = json!({"type": "string"});
    let defaults_to = |value: &str| json!({"type": "string", "default": value});
    let path = format!("{DEFINITIONS}/lamps.{group}");
    let change = async |schema: Value| {
        let versions = definition(&group, &schema)["spec"]["versions"].clone();
        api.patch(&path, MERGE, json!({"spec": {"versions": versions}})).await.ok();
    };
    api.post(DEFINITIONS, definition(&group, &schema(text.clone(), text.clone()))).await.ok();
    api.until(&lamps, |answer| answer.code == 200).await;
    let lamp = |name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Lamp", "metadata": {"name": name}});
    let first = api.post(&lamps, lamp("first")).await.ok();
    assert!(first.get("a").is_none());

    change(schema(defaults_to("A"), text.clone())).await;
    let read = api.until(&format!("{lamps}/first"), |answer| answer.body["a"] == "A").await.body;
    assert_eq!(read["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"], "nothing was written");
    assert_eq!(api.get(&lamps).await.ok()["items"][0]["a"], "A");
    let mut watch = api.watch(&format!("{lamps}?watch=true&resourceVersion=0")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["a"], "A");
    let touched = api.patch(&format!("{lamps}/first"), MERGE, json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    assert_eq!((&touched["metadata"]["generation"], &touched["a"]), (&json!(1), &json!("A")), "a default is no change");
    api.post(&lamps, lamp("second")).await.ok();

    // Stored values stay when the default is removed; fields that are no longer in the schema are not shown.
    change(schema(text, defaults_to("B"))).await;
    let read = api.until(&format!("{lamps}/second"), |answer| answer.body["b"] == "B").await.body;
    assert_eq!(read["a"], "A");
    change(json!({"type": "object", "properties": {"b": {"type": "string"}}})).await;
    api.until(&format!("{lamps}/second"), |answer| answer.body.get("a").is_none()).await;
    api.delete(&path, Value::Null).await.ok();
}

/// The body as typed clients send it.
#[tokio::test]
async fn a_definition_in_protobuf_is_one_too() {
    fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
        let content = content.as_ref();
        let low = u8::try_from(content.len() & 0x7f).unwrap() | 0x80;
        [&[number << 3 | 2, low, u8::try_from(content.len() >> 7).unwrap()], content].concat()
    }
    /// A property, whose field has a number above 15.
    fn property(name: &str, schema: &[u8]) -> Vec<u8> {
        let entry = [field(1, name), field(2, schema)].concat();
        let low = u8::try_from(entry.len() & 0x7f).unwrap() | 0x80;
        [vec![0xea, 0x01, low, u8::try_from(entry.len() >> 7).unwrap()], entry].concat()
    }
    let api = Api::open().await;
    let group = format!("{}.example.com", api.ns);
    let size = [field(5, "integer"), vec![9 << 3 | 1], 10f64.to_le_bytes().to_vec(), field(8, field(1, "3"))].concat();
    let schema = [field(5, "object"), property("size", &size)].concat();
    let version =
        [field(1, "v1"), vec![2 << 3, 1, 3 << 3, 1], field(4, field(1, schema)), field(5, field(1, ""))].concat();
    let names = [field(1, "lamps"), field(4, "Lamp")].concat();
    let spec = [field(1, &group), field(3, names), field(4, "Cluster"), field(7, version)].concat();
    let object = [field(1, field(1, format!("lamps.{group}"))), field(2, spec), field(3, "")].concat();
    let meta = [field(1, "apiextensions.k8s.io/v1"), field(2, "CustomResourceDefinition")].concat();
    let body = [b"k8s\0".to_vec(), field(1, meta), field(2, object)].concat();
    let headers = [("content-type", "application/vnd.kubernetes.protobuf"), ("accept", "application/json")];
    let made = api.send("POST", DEFINITIONS, &headers, body).await.ok();
    let version = &made["spec"]["versions"][0];
    let size = json!({"type": "integer", "maximum": 10, "default": 3});
    assert_eq!(version["schema"]["openAPIV3Schema"], json!({"type": "object", "properties": {"size": size}}));
    assert_eq!((&version["subresources"], &version["storage"]), (&json!({"status": {}}), &json!(true)));
    let lamps = format!("/apis/{group}/v1/lamps");
    api.until(&lamps, |answer| answer.code == 200).await;
    let lamp = json!({"apiVersion": format!("{group}/v1"), "kind": "Lamp", "metadata": {"name": "l"}});
    assert_eq!(api.post(&lamps, lamp).await.ok()["size"], 3);
    api.delete(&format!("{DEFINITIONS}/lamps.{group}"), Value::Null).await.ok();
}
