//! Pods for others' eyes: named fields only. Environments without values, no commands, no annotations, no messages of programs.

use edge_runtime::intake::{self, Recorded};
use edge_runtime::store::Store;
use serde_json::{Value, json};

pub(super) fn shown(store: &Store) -> Value {
    let restored = match intake::restore(store) {
        Ok(restored) => restored,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let (reports, bytes) = store.outbox_size().unwrap_or_default();
    let images = store.images().unwrap_or_default();
    json!({
        "pods": restored.recorded.iter().map(pod).collect::<Vec<_>>(),
        "waiting": restored.wanted.iter().filter_map(|(pod, _)| pod.metadata.name.clone()).collect::<Vec<_>>(),
        "unreadable": restored.kept,
        "images": images.iter().map(|image| json!({"names": image.references, "bytes": image.size})).collect::<Vec<_>>(),
        "queuedReports": reports,
        "queuedBytes": bytes,
        "objects": store.held().map(|held| held.len()).unwrap_or_default(),
    })
}

fn pod(Recorded { record, pod, gone }: &Recorded) -> Value {
    let manifest = serde_json::to_value(pod).unwrap_or_default();
    let states = record.containers.iter().map(|(name, container)| {
        let state = serde_json::to_value(&container.state).unwrap_or_default();
        json!({"name": name, "restarts": container.attempt, "state": without_messages(&state)})
    });
    let spec = &manifest["spec"];
    let containers = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten().map(move |one| container(list, one)));
    json!({
        "namespace": record.namespace,
        "name": record.name,
        "uid": record.uid,
        "ips": record.ips,
        "gone": gone,
        "states": states.collect::<Vec<_>>(),
        "labels": manifest["metadata"]["labels"],
        "spec": {
            "containers": containers.collect::<Vec<_>>(),
            "volumes": spec["volumes"].as_array().into_iter().flatten().map(volume).collect::<Vec<_>>(),
            "restartPolicy": spec["restartPolicy"],
            "hostNetwork": spec["hostNetwork"],
            "runtimeClassName": spec["runtimeClassName"],
            "terminationGracePeriodSeconds": spec["terminationGracePeriodSeconds"],
        },
    })
}

fn container(list: &str, one: &Value) -> Value {
    let names: Vec<&str> = one["env"].as_array().into_iter().flatten().filter_map(|env| env["name"].as_str()).collect();
    let probes =
        ["startupProbe", "readinessProbe", "livenessProbe"].into_iter().filter(|probe| one[*probe].is_object());
    json!({
        "list": list,
        "name": one["name"],
        "image": one["image"],
        "imagePullPolicy": one["imagePullPolicy"],
        "resources": one["resources"],
        "ports": one["ports"],
        "environment": names,
        "volumeMounts": one["volumeMounts"],
        "probes": probes.collect::<Vec<_>>(),
    })
}

/// Name and kind: what is in it may be a path, or a whole object.
fn volume(one: &Value) -> Value {
    let kind = one.as_object().into_iter().flat_map(|fields| fields.keys()).find(|key| *key != "name");
    json!({"name": one["name"], "kind": kind})
}

/// A program's last words may be anything.
fn without_messages(state: &Value) -> Value {
    match state {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| *key != "message");
            Value::Object(kept.map(|(key, value)| (key.clone(), without_messages(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_containers_are_hidden() {
        let one = json!({
            "name": "c", "image": "i", "command": ["sh", "-c", "PW=hunter22 x"], "args": ["--token=hunter22"],
            "env": [{"name": "PW", "value": "hunter22"}],
            "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "hunter22"}]}},
            "lifecycle": {"postStart": {"exec": {"command": ["hunter22"]}}},
        });
        let text = container("containers", &one).to_string();
        assert!(!text.contains("hunter22") && text.contains("PW") && text.contains("livenessProbe"), "{text}");
        let secret = json!({"name": "v", "csi": {"volumeAttributes": {"password": "hunter22"}}});
        assert_eq!(volume(&secret), json!({"name": "v", "kind": "csi"}));
        let state = without_messages(&json!({"Terminated": {"exit_code": 1, "message": "hunter22"}}));
        assert_eq!(state, json!({"Terminated": {"exit_code": 1}}));
    }
}
