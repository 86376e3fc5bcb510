//! Finding what the typed parse of an object would hide: fields that it drops and the path of a value it rejects.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

/// Path (`spec.containers[0].imgae`) of the first field of `raw` that `kept`, the same object after a trip through
/// its type, no longer has. Nulls count as absent.
pub fn dropped_field(raw: &Value, kept: &Value) -> Option<String> {
    dropped(raw, kept, "")
}

fn dropped(raw: &Value, kept: &Value, path: &str) -> Option<String> {
    match (raw, kept) {
        (Value::Object(raw), Value::Object(kept)) => {
            raw.iter().filter(|(_, value)| !value.is_null()).find_map(|(key, value)| {
                let path = join(path, key);
                match kept.get(key) {
                    Some(kept) => dropped(value, kept, &path),
                    None => Some(path),
                }
            })
        }
        (Value::Array(raw), Value::Array(kept)) => {
            let pairs = raw.iter().zip(kept).enumerate();
            pairs.into_iter().find_map(|(i, (raw, kept))| dropped(raw, kept, &format!("{path}[{i}]")))
        }
        _ => None,
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A pod from its JSON, with nothing dropped.
///
/// # Errors
/// Text naming the field that has a wrong type or is unknown.
pub fn parse_pod(raw: &Value) -> Result<Pod, String> {
    let pod: Pod = match serde_json::from_value(raw.clone()) {
        Ok(pod) => pod,
        Err(error) => {
            let path = culprit(raw);
            return Err(if path.is_empty() { error.to_string() } else { format!("{path}: {error}") });
        }
    };
    let kept = serde_json::to_value(&pod).map_err(|error| error.to_string())?;
    match dropped_field(raw, &kept) {
        Some(path) => Err(format!("unknown field \"{path}\"")),
        None => Ok(pod),
    }
}

/// The deepest value without which `raw` would parse as a pod: the parser's own error names no path.
fn culprit(raw: &Value) -> String {
    let mut pointer = String::new();
    let mut path = String::new();
    loop {
        let Some(node) = raw.pointer(&pointer) else { return path };
        let children: Vec<(String, String)> = match node {
            Value::Object(map) => {
                map.keys().map(|k| (k.replace('~', "~0").replace('/', "~1"), join(&path, k))).collect()
            }
            Value::Array(list) => (0..list.len()).map(|i| (i.to_string(), format!("{path}[{i}]"))).collect(),
            _ => return path,
        };
        let guilty = children.into_iter().find(|(key, _)| {
            let child = format!("{pointer}/{key}");
            // Some types refuse null, none an empty list or object of the right kind.
            [Value::Null, Value::Array(Vec::new()), Value::Object(serde_json::Map::new())].into_iter().any(|blank| {
                let mut copy = raw.clone();
                if let Some(slot) = copy.pointer_mut(&child) {
                    *slot = blank;
                }
                serde_json::from_value::<Pod>(copy).is_ok()
            })
        });
        match guilty {
            Some((key, longer)) => {
                pointer = format!("{pointer}/{key}");
                path = longer;
            }
            None => return path,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn problems_are_named_by_path() {
        let of = |spec: Value| parse_pod(&json!({"metadata": {"name": "p"}, "spec": spec})).unwrap_err();
        assert_eq!(
            of(json!({"containers": [{"name": "a", "imgae": "x"}]})),
            "unknown field \"spec.containers[0].imgae\""
        );
        assert_eq!(of(json!({"containers": [], "hostNetwrok": true})), "unknown field \"spec.hostNetwrok\"");
        for (spec, path) in [
            (
                json!({"containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": "x"}]}]}),
                "spec.containers[1].ports[0].containerPort: ",
            ),
            (json!({"containers": {}}), "spec.containers: "),
            (json!({"containers": [{"name": 7}]}), "spec.containers[0].name: "),
            (
                json!({"containers": [], "terminationGracePeriodSeconds": "soon"}),
                "spec.terminationGracePeriodSeconds: ",
            ),
            (json!("no"), "spec: "),
        ] {
            let error = of(spec);
            assert!(error.starts_with(path), "{error}");
        }
    }

    #[test]
    fn known_fields_cause_no_warning() {
        let raw = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "creationTimestamp": null},
            "spec": {"containers": [{"name": "c", "env": []}], "securityContext": {}}, "status": {},
        });
        assert_eq!(parse_pod(&raw).unwrap().metadata.name.as_deref(), Some("p"));
    }
}
