//! Objects in the protobuf encoding of Kubernetes, for clients that accept nothing else.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::MAGIC;
use super::fields::{bytes, integer, key, nested};
use crate::codec::messages::{self, Field, Message};

/// Messages of answers, in addition to the kinds themselves (K8s apimachinery pkg/apis/meta, v1 and v1beta1,
/// generated.proto).
const ANSWERS: &[(&str, &str)] = &[
    ("ListMeta", "1=selfLink:s 2=resourceVersion:s 3=continue:s 4=remainingItemCount:i"),
    ("meta.PartialObjectMetadata", "1=metadata:@ObjectMeta"),
    ("meta.v1beta1.PartialObjectMetadata", "1=metadata:@ObjectMeta"),
    ("meta.v1beta1.PartialObjectMetadataList", "1=items:*@meta.PartialObjectMetadata 2=metadata:@ListMeta"),
    ("Status", "1=metadata:@ListMeta 2=status:s 3=message:s 4=reason:s 5=details:@StatusDetails 6=code:i"),
    ("StatusDetails", "1=name:s 2=group:s 3=kind:s 4=causes:*@StatusCause 5=retryAfterSeconds:i 6=uid:s"),
    ("StatusCause", "1=reason:s 2=message:s 3=field:s"),
];
const LIST_META: u32 = 1;
const ITEMS: u32 = 2;

/// [`ANSWERS`], parsed once.
static SHAPES: LazyLock<HashMap<&'static str, Vec<Field>>> =
    LazyLock::new(|| ANSWERS.iter().map(|(name, line)| (*name, messages::fields(line))).collect());

fn shape(name: &str) -> Option<Message> {
    messages::message(name).or_else(|| SHAPES.get(name).map(Vec::as_slice))
}

/// An object, or a list of some, as protobuf. `None` of a kind that has no such form, as custom ones and Tables.
pub(crate) fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let mut raw = Vec::new();
    let named = |kind: &str| shape(&messages::message_name(group, version, kind));
    if let Some(message) = named(kind) {
        write(&mut raw, message, object.as_object()?)?;
    } else {
        let message = named(kind.strip_suffix("List")?)?;
        one(&mut raw, LIST_META, "@ListMeta", &object["metadata"])?;
        for item in object["items"].as_array()? {
            let mut inner = Vec::new();
            write(&mut inner, message, item.as_object()?)?;
            bytes(&mut raw, ITEMS, &inner);
        }
    }
    let mut about = Vec::new();
    bytes(&mut about, 1, api_version.as_bytes());
    bytes(&mut about, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    bytes(&mut out, 1, &about);
    bytes(&mut out, 2, &raw);
    Some(out)
}

/// One event of a watch, with its length before it.
pub(crate) fn frame(event: &Value) -> Option<Vec<u8>> {
    let mut object = Vec::new();
    bytes(&mut object, 1, &encode(&event["object"])?);
    let mut out = Vec::new();
    bytes(&mut out, 1, event["type"].as_str()?.as_bytes());
    bytes(&mut out, 2, &object);
    let length = u32::try_from(out.len()).ok()?;
    Some([length.to_be_bytes().to_vec(), out].concat())
}

/// Omits null and values whose type does not match the field: stored objects match their kind.
pub(super) fn write(out: &mut Vec<u8>, message: Message, object: &Map<String, Value>) -> Option<()> {
    for field in message {
        if field.name.is_empty() {
            let mut inner = Vec::new();
            write(&mut inner, shape(field.kind.strip_prefix('@')?)?, object)?;
            if !inner.is_empty() {
                bytes(out, field.number, &inner);
            }
            continue;
        }
        let Some(value) = object.get(field.name).filter(|value| !value.is_null()) else { continue };
        if let Some(element) = field.kind.strip_prefix('*') {
            for value in value.as_array().into_iter().flatten() {
                one(out, field.number, element, value)?;
            }
        } else if let Some(element) = field.kind.strip_prefix('%') {
            for (key, value) in value.as_object().into_iter().flatten() {
                let mut entry = Vec::new();
                bytes(&mut entry, 1, key.as_bytes());
                one(&mut entry, 2, element, value)?;
                bytes(out, field.number, &entry);
            }
        } else {
            one(out, field.number, field.kind, value)?;
        }
    }
    Some(())
}

/// One field. `None` only where a message is not known.
fn one(out: &mut Vec<u8>, number: u32, kind: &str, value: &Value) -> Option<()> {
    if let Some(name) = kind.strip_prefix('@') {
        let mut inner = Vec::new();
        if let Some(object) = value.as_object() {
            write(&mut inner, shape(name)?, object)?;
        }
        bytes(out, number, &inner);
        return Some(());
    }
    if let Some(element) = kind.strip_prefix('*') {
        // The value of a map.
        let mut inner = Vec::new();
        for value in value.as_array().into_iter().flatten() {
            one(&mut inner, 1, element, value)?;
        }
        bytes(out, number, &inner);
        return Some(());
    }
    let text = value.as_str().unwrap_or_default();
    match kind {
        "s" => bytes(out, number, text.as_bytes()),
        "i" => integer(out, number, whole(value)),
        "b" => integer(out, number, u64::from(value == true)),
        "y" => bytes(out, number, &base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()),
        "q" => {
            // A quantity may be written as a number.
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            nested(out, number, |inner| bytes(inner, 1, shown.as_bytes()));
        }
        "o" => nested(out, number, |inner| match value.as_str() {
            Some(text) => {
                integer(inner, 1, 1);
                bytes(inner, 3, text.as_bytes());
            }
            None => {
                integer(inner, 1, 0);
                integer(inner, 2, whole(value));
            }
        }),
        "t" | "u" => {
            let Ok(time) = text.parse::<Timestamp>() else { return Some(()) };
            nested(out, number, |inner| {
                integer(inner, 1, time.as_second().cast_unsigned());
                integer(inner, 2, u64::try_from(time.subsec_nanosecond()).unwrap_or_default());
            });
        }
        "f" | "r" => nested(out, number, |inner| bytes(inner, 1, value.to_string().as_bytes())),
        "d" => {
            key(out, number, 1);
            out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
        }
        "x" | "l" | "w" => {
            let mut inner = Vec::new();
            union(&mut inner, kind, value)?;
            bytes(out, number, &inner);
        }
        _ => return None,
    }
    Some(())
}

/// A schema or a boolean (`x`), or schemas (`l`), or names (`w`).
fn union(out: &mut Vec<u8>, kind: &str, value: &Value) -> Option<()> {
    match (kind, value) {
        ("x", Value::Bool(allows)) => integer(out, 1, u64::from(*allows)),
        ("x", schema) => {
            integer(out, 1, 1);
            one(out, 2, "@apiextensions.JSONSchemaProps", schema)?;
        }
        (_, Value::Array(several)) => {
            let element = if kind == "l" { "@apiextensions.JSONSchemaProps" } else { "s" };
            for inner in several {
                one(out, 2, element, inner)?;
            }
        }
        (_, schema) => one(out, 1, "@apiextensions.JSONSchemaProps", schema)?,
    }
    Some(())
}

/// Negative numbers are their two's complement.
fn whole(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::decode;
    use super::*;

    fn comes_back(object: &Value) {
        let encoded = encode(object).unwrap_or_else(|| panic!("{} has no form", object["kind"]));
        assert_eq!(decode(&encoded).as_ref(), Ok(object));
    }

    #[test]
    fn what_is_written_is_read_again() {
        comes_back(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 300,
                "labels": {"a": "b", "c": ""},
                "managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                "template": {"spec": {
                    "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
                        "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
                        "securityContext": {"runAsUser": 0, "privileged": false}}],
                    "volumes": [{"name": "v", "configMap": {"name": "c", "defaultMode": 420}}, {"name": "e", "emptyDir": {}}]}}},
        }));
        comes_back(
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "AAEC/w=="}}),
        );
        comes_back(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"renewTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": -1}}));
        comes_back(
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "d"},
                "spec": {"group": "x.io", "names": {"plural": "p", "kind": "K"}, "scope": "Namespaced", "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "a": {"type": "array", "items": {"type": "string"}}, "n": {"type": "number", "maximum": 7, "minimum": 0.5},
                        "o": {"type": "object", "additionalProperties": false, "default": {"x": [1]}},
                        "m": {"type": "object", "additionalProperties": {"type": "string"}},
                        "d": {"type": "object", "dependencies": {"a": ["b"], "c": {"type": "string"}}},
                    }}}}]},
            }),
        );
    }

    #[test]
    fn lists_statuses_and_events_have_their_form_and_strangers_none() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
        let list =
            json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [pod, pod]});
        let encoded = encode(&list).unwrap();
        assert_eq!(encoded.windows(3).filter(|bytes| *bytes == [10, 1, b'p']).count(), 2);
        assert!(encode(&json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "code": 404})).is_some());
        let partial =
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "p"}});
        let framed = frame(&json!({"type": "ADDED", "object": partial})).unwrap();
        let length = u32::from_be_bytes(framed[..4].try_into().unwrap());
        assert_eq!((usize::try_from(length).unwrap(), &framed[4..11]), (framed.len() - 4, &b"\x0a\x05ADDED"[..]));
        let list = |version: &str| {
            encode(&json!({"apiVersion": version, "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": "7"}, "items": [partial]}))
            .unwrap()
        };
        let ends = |list: &[u8], end: &[u8]| list.ends_with(end);
        assert!(ends(&list("meta.k8s.io/v1beta1"), b"\x12\x03\x12\x017"), "metadata is its second field");
        assert!(!ends(&list("meta.k8s.io/v1"), b"\x12\x03\x12\x017"));
        for (version, kind) in
            [("example.com/v1", "Thing"), ("meta.k8s.io/v1", "Table"), ("example.com/v1", "ThingList")]
        {
            assert_eq!(encode(&json!({"apiVersion": version, "kind": kind, "items": []})), None);
        }
    }
}
