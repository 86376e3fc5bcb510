//! From pod, claim and objects to the order, or to what it waits for. Needs no root: nothing is mounted.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::paths::Paths;
use crate::volume::DownwardFacts;

const NAME: &str = "d.example.com";

struct Bench {
    pod: Pod,
    objects: BTreeMap<String, Value>,
}

impl Bench {
    /// A pod with this volume beside its name.
    fn new(source: Value) -> Self {
        let mut volume = json!({"name": "data"});
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        let spec = json!({"containers": [{"name": "c"}], "volumes": [volume], "serviceAccountName": "robot",
            "securityContext": {"fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch"}});
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "u1"});
        let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        Self { pod, objects: BTreeMap::new() }
    }

    /// A pod with a claim that is bound to the volume `pvc-1` of the driver, with these fields of its spec besides.
    fn bound(more: Value) -> Self {
        let mut bench = Self::new(json!({"persistentVolumeClaim": {"claimName": "disk", "readOnly": true}}));
        bench.claim("disk", more, json!({"attached": true, "attachmentMetadata": {"device": "7"}}));
        bench
    }

    fn claim(&mut self, name: &str, more: Value, attachment: Value) {
        let csi = json!({"driver": NAME, "volumeHandle": "vol-1", "fsType": "ext4", "readOnly": false,
            "nodeStageSecretRef": {"name": "stage", "namespace": "storage"}});
        let mut spec = json!({"csi": csi, "claimRef": {"uid": "c1"}, "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let owner = json!([{"kind": "Pod", "name": "web", "uid": "u1", "controller": true}]);
        let claim = json!({"metadata": {"uid": "c1", "ownerReferences": owner}, "spec": {},
            "status": {"phase": "Bound", "capacity": {"storage": "1Mi"}}, "volume": {"name": "pvc-1", "spec": spec}, "attachment": attachment});
        self.put("PersistentVolumeClaim", "shop", name, claim);
        self.put("Secret", "storage", "stage", json!({"data": {"key": "dg=="}}));
    }

    fn put(&mut self, kind: &str, namespace: &str, name: &str, object: Value) {
        self.objects.insert(format!("{kind}|{namespace}|{name}"), object);
    }

    fn driver(&mut self, spec: Value) {
        self.put("CSIDriver", "", NAME, json!({"spec": spec}));
    }

    fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.objects.get(&format!("{kind}|{namespace}|{name}")).cloned()
    }

    fn with<T>(&self, work: impl FnOnce(&VolumeContext<'_>) -> T) -> T {
        let (paths, facts) = (Paths::new(Path::new("/nowhere")), DownwardFacts::default());
        let objects = |kind: &str, namespace: &str, name: &str| self.find(kind, namespace, name);
        work(&VolumeContext { paths: &paths, pod: &self.pod, objects: &objects, facts: &facts, uses_local_api: false })
    }

    fn volumes(&self) -> Vec<CsiVolume> {
        self.with(of_pod).unwrap()
    }

    fn order(&self, folder: &str) -> Result<CsiMount, String> {
        self.with(|ctx| order(ctx, folder)).map_err(|error| format!("{}: {error}", error.reason()))
    }
}

#[test]
fn order_has_all_that_the_driver_needs() {
    let mut bench = Bench::bound(json!({}));
    bench.driver(json!({"attachRequired": true, "podInfoOnMount": true}));
    let volumes = bench.volumes();
    assert_eq!((volumes[0].name.as_str(), volumes[0].folder.as_str()), ("data", "pvc-1"));
    assert_eq!(volumes[0].in_use().as_deref(), Some("kubernetes.io/csi/d.example.com^vol-1"));
    let order = bench.order("pvc-1").unwrap();
    assert_eq!((order.driver.as_str(), order.handle.as_str(), order.volume.as_str()), (NAME, "vol-1", "pvc-1"));
    assert_eq!((order.inline, order.block, order.read_only), (false, false, true));
    assert_eq!((order.access_modes, order.mount_options), (vec!["ReadWriteOnce".into()], vec!["noatime".into()]));
    assert_eq!((order.fs_group, order.fs_group_on_root_mismatch), (Some(2000), true));
    assert_eq!((order.capacity, order.source["fsType"].as_str()), (None, Some("ext4")));
    assert_eq!(order.driver_object["podInfoOnMount"], true);
    assert_eq!(order.attachment["attachmentMetadata"]["device"], "7");
    assert_eq!((order.stage_secret, order.publish_secret), (json!({"key": "dg=="}), Value::Null));
    assert_eq!(order.tokens, Value::Null);
    assert_eq!((order.pod.uid, order.pod.service_account), ("u1".to_owned(), "robot".to_owned()));
    let grown = Bench::bound(json!({"capacity": {"storage": "2Mi"}}));
    assert_eq!(grown.order("pvc-1").map(|order| order.capacity), Ok(Some(2 << 20)), "more than the claim has");
    let other = bench.order("pvc-2").unwrap_err();
    assert_eq!(
        other,
        "FailedMount: MountVolume.SetUp failed for volume \"pvc-2\" : the pod has no such volume any more"
    );
}

#[test]
fn claim_of_two_volumes_is_mounted_writable() {
    let mut bench = Bench::bound(json!({}));
    let mut more = bench.pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0].clone();
    more.name = "more".to_owned();
    more.persistent_volume_claim.as_mut().unwrap().read_only = None;
    bench.pod.spec.as_mut().unwrap().volumes.as_mut().unwrap().push(more);
    let volumes = bench.volumes();
    assert_eq!((volumes.len(), volumes[0].read_only, volumes[1].read_only), (2, true, false));
    assert_eq!(bench.order("pvc-1").map(|order| order.read_only), Ok(false));
}

#[test]
fn attachment_is_waited_for_unless_the_driver_needs_none() {
    let mut bench = Bench::bound(json!({}));
    bench.claim("disk", json!({}), Value::Null);
    let text = "FailedAttachVolume: AttachVolume.Attach failed for volume \"pvc-1\" : ";
    let waits = format!("{text}Volume not attached according to node status");
    assert_eq!(bench.order("pvc-1"), Err(waits.clone()), "also without a CSIDriver object");
    bench.claim("disk", json!({}), json!({"attached": false}));
    bench.driver(json!({}));
    assert_eq!(bench.order("pvc-1"), Err(waits));
    bench.claim("disk", json!({}), json!({"attached": false, "attachError": {"message": "no such disk"}}));
    assert_eq!(bench.order("pvc-1"), Err(format!("{text}no such disk")));
    bench.driver(json!({"attachRequired": false}));
    assert!(bench.order("pvc-1").is_ok());
    assert_eq!(bench.volumes()[0].in_use(), None, "nothing is detached");
}

#[test]
fn missing_secret_is_named() {
    let mut bench = Bench::bound(json!({}));
    bench.objects.remove("Secret|storage|stage");
    let text = "fetching NodeStageSecretRef storage/stage failed: secrets \"stage\" not found";
    let error = bench.order("pvc-1").unwrap_err();
    assert_eq!(error, format!("FailedMount: MountVolume.SetUp failed for volume \"pvc-1\" : {text}"));
    bench.put("Secret", "storage", "stage", Value::Null);
    let withheld = bench.order("pvc-1").unwrap_err();
    assert!(withheld.contains("is kept in memory only"), "{withheld}");
    bench.put("Secret", "storage", "stage", json!({}));
    assert_eq!(bench.order("pvc-1").map(|order| order.stage_secret), Ok(Value::Null));
}

#[test]
fn inline_volume_needs_a_driver_that_has_them() {
    let mut bench = Bench::new(json!({"csi": {"driver": NAME, "readOnly": true,
        "nodePublishSecretRef": {"name": "own"}, "volumeAttributes": {"a": "b"}}}));
    bench.put("Secret", "shop", "own", json!({"data": {"k": "dg=="}}));
    let text = "FailedMount: MountVolume.SetUp failed for volume \"data\" : \
        volume mode \"Ephemeral\" not supported by driver d.example.com ";
    assert_eq!(bench.order("data"), Err(format!("{text}(no CSIDriver object)")));
    bench.driver(json!({"volumeLifecycleModes": ["Persistent"]}));
    assert_eq!(bench.order("data"), Err(format!("{text}(only supports [\"Persistent\"])")));
    bench.driver(json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"], "attachRequired": true}));
    let order = bench.order("data").unwrap();
    assert_eq!((order.inline, order.read_only, order.handle.as_str()), (true, true, ""));
    assert_eq!((order.volume.as_str(), &order.source["volumeAttributes"]["a"]), ("data", &json!("b")));
    assert_eq!(order.publish_secret, json!({"k": "dg=="}));
    assert_eq!(bench.volumes()[0].in_use(), None);
    let mut bench = Bench::bound(json!({}));
    bench.driver(json!({"volumeLifecycleModes": ["Ephemeral"]}));
    let error = bench.order("pvc-1").unwrap_err();
    assert!(error.contains("volume mode \"Persistent\" not supported by driver d.example.com"), "{error}");
}

#[test]
fn tokens_are_asked_for_and_waited_for() {
    let mut bench = Bench::bound(json!({}));
    bench.driver(json!({"tokenRequests": [{"audience": "vault", "expirationSeconds": 600}, {"audience": ""}]}));
    let mut wanted = BTreeSet::new();
    wanted_tokens(
        &bench.pod,
        &|kind: &str, namespace: &str, name: &str| bench.find(kind, namespace, name),
        &mut wanted,
    );
    assert_eq!(wanted.iter().map(Wanted::name).collect::<Vec<_>>(), ["3600/", "600/vault"]);
    let held =
        |token: &str| json!({"token": token, "issued": "2026-01-01T00:00:00Z", "expires": "2026-01-01T01:00:00Z"});
    bench.put("ServiceAccountToken", "u1", "600/vault", held("a"));
    assert!(bench.order("pvc-1").unwrap_err().ends_with("failed to fetch token"));
    bench.put("ServiceAccountToken", "u1", "3600/", held("b"));
    let status = |token: &str| json!({"token": token, "expirationTimestamp": "2026-01-01T01:00:00Z"});
    let tokens = bench.order("pvc-1").map(|order| order.tokens);
    assert_eq!(tokens, Ok(json!({"vault": status("a"), "": status("b")})));
}

#[test]
fn claim_of_a_template_must_be_the_pods_own() {
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    let mut bench = Bench::new(json!({"ephemeral": {"volumeClaimTemplate": template}}));
    let error = |bench: &Bench| bench.with(of_pod).map(|all| all.len()).map_err(|error| error.to_string());
    let missing = "error processing PVC shop/web-data: failed to fetch PVC from API server";
    assert!(error(&bench).is_err_and(|why| why.contains(missing)));
    bench.claim("web-data", json!({}), json!({"attached": true}));
    assert!(!bench.order("pvc-1").unwrap().read_only);
    let text = "PVC shop/web-data was not created for pod shop/web (pod is not owner)";
    for owners in [Value::Null, json!([{"uid": "u1"}]), json!([{"uid": "u2", "controller": true}])] {
        let key = "PersistentVolumeClaim|shop|web-data";
        let mut claim = bench.objects[key].clone();
        claim["metadata"]["ownerReferences"] = owners.clone();
        bench.objects.insert(key.to_owned(), claim);
        assert!(error(&bench).is_err_and(|why| why.ends_with(text)), "{owners}");
    }
}

#[test]
fn volume_is_used_as_its_mode_says() {
    let mut bench = Bench::bound(json!({"volumeMode": "Block"}));
    assert!(bench.order("pvc-1").unwrap().block);
    let uses = |bench: &mut Bench, field: &str, one: Value| {
        let mut pod = serde_json::to_value(&bench.pod).unwrap();
        pod["spec"]["containers"] = json!([{"name": "c", field: [one]}]);
        bench.pod = serde_json::from_value(pod).unwrap();
        bench.with(of_pod).map(|all| all.len()).map_err(|error| error.to_string())
    };
    let mount = json!({"name": "data", "mountPath": "/data"});
    let device = json!({"name": "data", "devicePath": "/dev/xvda"});
    let refused = |list: &str, mode: &str| format!("volume data has volumeMode {mode}, but is specified in {list}");
    let why = uses(&mut bench, "volumeMounts", mount.clone()).unwrap_err();
    assert!(why.ends_with(&refused("volumeMounts", "Block")), "{why}");
    assert_eq!(uses(&mut bench, "volumeDevices", device.clone()), Ok(1));
    bench.claim("disk", json!({}), Value::Null);
    let why = uses(&mut bench, "volumeDevices", device).unwrap_err();
    assert!(why.ends_with(&refused("volumeDevices", "Filesystem")), "{why}");
    assert_eq!(uses(&mut bench, "volumeMounts", mount), Ok(1));
    // What a driver refuses is told with the step of its mode.
    bench.claim("disk", json!({"volumeMode": "Block"}), json!({"attached": true}));
    bench.pod = Bench::bound(json!({})).pod;
    bench.objects.remove("Secret|storage|stage");
    let error = bench.order("pvc-1").unwrap_err();
    assert!(error.starts_with("FailedMapVolume: MapVolume.SetUpDevice failed for volume \"pvc-1\" : "), "{error}");
}

#[test]
fn other_volumes_are_none_of_a_driver() {
    let bench = Bench::new(json!({"emptyDir": {}}));
    assert!(bench.volumes().is_empty());
    let mut bench = Bench::bound(json!({}));
    let claim = json!({"metadata": {"uid": "c1"}, "spec": {},
        "volume": {"name": "pv", "spec": {"hostPath": {"path": "/srv"}, "claimRef": {"uid": "c1"}}}});
    bench.put("PersistentVolumeClaim", "shop", "disk", claim);
    assert!(bench.volumes().is_empty());
}
