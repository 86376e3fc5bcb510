//! Input of binding: properties of a volume, requests of a claim, and whether both match. Pure.

use serde_json::Value;

use apimachinery::json::{items, text};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use apimachinery::quantity::Quantity;
use apimachinery::selector::selects;

/// Only volumes and claims of one class and mode fit: the class, and whether they are block devices.
pub(super) type Class = (String, String);

fn class(spec: &Value) -> Class {
    let mode = spec["volumeMode"].as_str().unwrap_or("Filesystem");
    (text(spec, "storageClassName").to_owned(), mode.to_owned())
}

fn modes(spec: &Value) -> Vec<String> {
    items(spec, "accessModes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A PersistentVolume that claims may use.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) name: String,
    pub(super) class: Class,
    pub(super) size: Option<Quantity>,
    /// The claim that it is kept for, and that claim's uid or nothing.
    pub(super) kept_for: Option<(ObjectKey, String)>,
    modes: Vec<String>,
    labels: Value,
}

impl Offer {
    /// The properties of a volume; `None` if it is not available.
    pub(super) fn of(volume: &Value) -> Option<Self> {
        let spec = &volume["spec"];
        let available = volume["status"]["phase"] == "Available" && !meta::deleting(volume);
        available.then(|| Self {
            name: meta::text(volume, "name").to_owned(),
            class: class(spec),
            size: Quantity::from_value(&spec["capacity"]["storage"]),
            kept_for: claim_of(volume),
            modes: modes(spec),
            labels: volume["metadata"]["labels"].clone(),
        })
    }
}

/// The claim that a volume names, and the uid that it names.
pub(super) fn claim_of(volume: &Value) -> Option<(ObjectKey, String)> {
    let reference = Some(&volume["spec"]["claimRef"]).filter(|reference| !reference.is_null())?;
    let part = |field: &str| text(reference, field).to_owned();
    Some((ObjectKey { namespace: part("namespace"), name: part("name") }, part("uid")))
}

/// A PersistentVolumeClaim that waits for a volume.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) key: ObjectKey,
    pub(super) uid: String,
    pub(super) class: Class,
    pub(super) size: Option<Quantity>,
    /// The one volume that it asks for, or nothing.
    pub(super) volume: String,
    /// Whether its volume is created where its pod will run: it then matches only a volume that was created for it.
    pub(super) delayed: bool,
    modes: Vec<String>,
    selector: Value,
}

impl Request {
    /// The request of a claim of this class; `None` if it does not wait.
    pub(super) fn of(claim: &Value, of_class: Option<&Value>) -> Option<Self> {
        let spec = &claim["spec"];
        let waits = claim["status"]["phase"] != "Bound" && !meta::deleting(claim);
        waits.then(|| Self {
            key: ObjectKey::of(claim),
            uid: meta::text(claim, "uid").to_owned(),
            class: class(spec),
            size: Quantity::from_value(&spec["resources"]["requests"]["storage"]),
            volume: text(spec, "volumeName").to_owned(),
            delayed: text(spec, "volumeName").is_empty() && of_class.is_some_and(delays),
            modes: modes(spec),
            selector: spec["selector"].clone(),
        })
    }

    /// Whether the volume meets it (K8s pkg/controller/volume/persistentvolume/volume_binding: FindMatchingVolume).
    pub(super) fn is_met_by(&self, offer: &Offer) -> bool {
        let kept = offer.kept_for.as_ref();
        let may = kept.is_none_or(|(key, uid)| *key == self.key && (uid.is_empty() || *uid == self.uid));
        may && (kept.is_some() || !self.delayed)
            && (self.volume.is_empty() || self.volume == offer.name)
            && self.class == offer.class
            && self.modes.iter().all(|mode| offer.modes.contains(mode))
            && self.size.is_none_or(|asked| offer.size.is_some_and(|has| has >= asked))
            && selects(&self.selector, &offer.labels)
    }
}

/// Whether a class waits for a pod and then creates a volume. Claims of a class without a provisioner are bound to
/// existing volumes at once, where a cluster also waits for the pod.
fn delays(class: &Value) -> bool {
    text(class, "volumeBindingMode") == "WaitForFirstConsumer"
        && !text(class, "provisioner").starts_with("kubernetes.io/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fits(volume: &Value, claim: &Value) -> bool {
        Request::of(claim, None).unwrap().is_met_by(&Offer::of(volume).unwrap())
    }

    fn volume(spec: Value) -> Value {
        let mut all = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"metadata": {"name": "pv", "labels": {"disk": "ssd"}}, "spec": all, "status": {"phase": "Available"}})
    }

    fn claim(spec: Value) -> Value {
        let mut all = json!({"resources": {"requests": {"storage": "500Mi"}}, "accessModes": ["ReadWriteOnce"]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"metadata": {"name": "data", "namespace": "ns", "uid": "u1"}, "spec": all})
    }

    #[test]
    fn only_what_is_available_is_offered_and_only_what_waits_is_asked_for() {
        let with = |mut object: Value, change: Value| {
            json_patch::merge(&mut object, &change);
            object
        };
        let dying = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        for change in [json!({"status": {"phase": "Bound"}}), json!({"status": null}), dying.clone()] {
            assert!(Offer::of(&with(volume(json!({})), change)).is_none());
        }
        for change in [json!({"status": {"phase": "Bound"}}), dying] {
            assert!(Request::of(&with(claim(json!({})), change), None).is_none());
        }
    }

    #[test]
    fn a_volume_fits_by_class_size_modes_labels_and_name() {
        let plain = volume(json!({}));
        for (spec, expected) in [
            (json!({}), true),
            (json!({"volumeName": "pv"}), true),
            (json!({"volumeName": "other"}), false),
            (json!({"storageClassName": "fast"}), false),
            (json!({"volumeMode": "Block"}), false),
            (json!({"accessModes": ["ReadWriteMany"]}), false),
            (json!({"resources": {"requests": {"storage": "2Gi"}}}), false),
            (json!({"selector": {"matchLabels": {"disk": "ssd"}}}), true),
            (
                json!({"selector": {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]}}),
                false,
            ),
        ] {
            assert_eq!(fits(&plain, &claim(spec.clone())), expected, "{spec}");
        }
        let held = |reference: Value| fits(&volume(json!({"claimRef": reference})), &claim(json!({})));
        assert!(held(json!({"name": "data", "namespace": "ns"})));
        assert!(!held(json!({"name": "data", "namespace": "ns", "uid": "u0"})));
        assert!(!held(json!({"name": "other", "namespace": "ns"})));
    }

    #[test]
    fn what_is_made_where_the_pod_is_takes_no_volume_that_was_not_made_for_it() {
        let class = |provisioner: &str, mode: &str| json!({"provisioner": provisioner, "volumeBindingMode": mode});
        let reference = json!({"claimRef": {"name": "data", "namespace": "ns", "uid": "u1"}});
        let met = |spec: Value, class: &Value, volume_spec: Value| {
            Request::of(&claim(spec), Some(class)).unwrap().is_met_by(&Offer::of(&volume(volume_spec)).unwrap())
        };
        let ours = class("sampan.dev/local", "WaitForFirstConsumer");
        assert!(!met(json!({}), &ours, json!({})));
        assert!(met(json!({}), &ours, reference));
        assert!(met(json!({"volumeName": "pv"}), &ours, json!({})), "it asks for this one");
        assert!(met(json!({}), &class("sampan.dev/local", "Immediate"), json!({})));
        assert!(met(json!({}), &class("kubernetes.io/no-provisioner", "WaitForFirstConsumer"), json!({})));
    }
}
