//! What is published of definitions, and definitions in protobuf.

use serde_json::{Value, json};

use crate::harness::Api;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// As typed clients send it.
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
