//! What the codec must keep: round trips, bounds before memory, and input that lies.

use super::*;
use crate::message::{Object, ObjectDigest, ObjectKey, Report, ToCloud, ToEdge};
use proptest::prelude::*;
use serde_json::json;

fn pod(number: u32) -> String {
    let uid = format!("{:08x}-8d1c-4f0e-9c3a-{:012x}", number.wrapping_mul(2_654_435_761), u64::from(number) * 7_919);
    let body = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("collector-{number}"), "namespace": "field", "uid": uid,
            "creationTimestamp": "2026-11-21T17:02:11Z", "labels": {"app": "collector", "line": format!("l{}", number % 7)}},
        "spec": {
            "nodeName": "press-17", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30, "enableServiceLinks": true, "priority": 0, "schedulerName": "default-scheduler",
            "preemptionPolicy": "PreemptLowerPriority", "securityContext": {},
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "containers": [{"name": "main", "image": format!("registry.example/field/collector:1.{number}"),
                "imagePullPolicy": "IfNotPresent", "args": ["--line", format!("{}", number % 7)],
                "env": [{"name": "LINE", "value": format!("{}", number % 7)}],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "100m", "memory": "32Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}},
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10,
                    "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
                "volumeMounts": [{"name": "settings", "mountPath": "/etc/collector"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "volumes": [{"name": "settings", "configMap": {"name": "settings", "defaultMode": 420}}]}
    });
    let key = ObjectKey { kind: "Pod".into(), namespace: "field".into(), name: format!("collector-{number}") };
    let digest = format!("{:064x}", u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    let object = Object { digest: ObjectDigest { key, uid, digest }, body };
    crate::frame::encode(&ToEdge::Put { seq: u64::from(number), sync: true, object })
}

fn status(number: u32) -> String {
    let time = "2026-11-21T17:02:14Z";
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time, "observedGeneration": 1});
    let kinds = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let status = json!({
        "phase": "Running", "hostIP": "192.168.7.40", "hostIPs": [{"ip": "192.168.7.40"}],
        "podIP": format!("10.88.0.{number}"), "podIPs": [{"ip": format!("10.88.0.{number}")}],
        "startTime": "2026-11-21T17:02:11Z", "qosClass": "Guaranteed", "conditions": kinds.map(condition),
        "containerStatuses": [{"name": "main", "image": "registry.example/field/collector:1.3",
            "imageID": format!("registry.example/field/collector@sha256:{:064x}", u128::from(number) << 64),
            "containerID": format!("runc://{:064x}", u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
            "ready": true, "started": true, "restartCount": 0, "lastState": {},
            "state": {"running": {"startedAt": time}}}]
    });
    let uid = format!("{number:08x}-8d1c-4f0e-9c3a-0123456789ab");
    let report = Report::PodStatus { namespace: "field".into(), name: format!("collector-{number}"), uid, status };
    crate::frame::encode(&ToCloud::Up { id: u64::from(number), report })
}

/// Deflate data of `size` zeros, as in a decompression bomb.
fn bomb(size: usize) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(&vec![b' '; size], 9)
}

#[test]
fn g20_frames_survive_compression_and_small_ones_are_plain() {
    for text in [pod(1), status(2), "x".repeat(MAX_FRAME)] {
        let packed = pack(&text).expect("is worth it");
        assert!(packed.len() < text.len());
        assert_eq!(unpack(&packed).as_deref(), Ok(text.as_str()));
    }
    assert_eq!(pack(&"x".repeat(MIN - 1)), None, "too small");
}

#[test]
fn kept_compressor_packs_each_frame_by_itself() {
    let first = pack(&pod(1));
    assert!(first.is_some());
    assert_eq!(pack(&pod(2)).map(|packed| unpack(&packed)), Some(Ok(pod(2))));
    assert_eq!(pack(&pod(1)), first, "what was packed before leaves no trace");
    release();
    assert_eq!(pack(&pod(1)), first, "made again after a release");
}

#[test]
fn stream_bytes_shrink_by_the_base64_overhead() {
    use crate::message::ToCloud;
    let mut seed = 1_u32;
    let mut noise = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    };
    let data: Vec<u8> = (0..8 << 10).map(|_| noise()).collect();
    let text = crate::frame::encode(&ToCloud::StreamData { stream: 7, data: data.clone() });
    assert!(text.starts_with(STREAM_DATA), "{}", &text[..40]);
    let packed = pack(&text).unwrap();
    assert!(packed.len() < data.len() + data.len() / 16, "{} bytes of {}", packed.len(), data.len());
    assert_eq!(unpack(&packed).as_deref(), Ok(text.as_str()));
}

#[test]
fn g20_a_bomb_is_refused_at_the_limit() {
    let fits = bomb(MAX_FRAME);
    assert_eq!(unpack(&fits).map(|text| text.len()), Ok(MAX_FRAME));
    for size in [MAX_FRAME + 1, 64 << 20] {
        let packed = bomb(size);
        assert_eq!(unpack(&packed), Err(UnpackError::TooLarge { packed: packed.len() }));
    }
}

#[test]
fn g20_damage_is_an_error() {
    let packed = pack(&pod(1)).expect("is worth it");
    assert_eq!(unpack(&packed[..packed.len() / 2]), Err(UnpackError::Damaged), "cut off");
    assert_eq!(unpack(&[packed.as_slice(), b"x"].concat()), Err(UnpackError::Damaged), "more than one frame");
    assert_eq!(unpack(&[]), Err(UnpackError::Damaged));
    let binary = miniz_oxide::deflate::compress_to_vec(&[0xff; 300], 6);
    assert_eq!(unpack(&binary), Err(UnpackError::NotText));
}

/// The figures of `docs/scale.md`; they must not get worse unnoticed.
#[test]
fn g20_a_full_sync_of_a_hundred_pods_and_their_statuses_shrink() {
    let bytes = |make: fn(u32) -> String| -> (usize, usize) {
        let texts: Vec<String> = (1..=100).map(make).collect();
        let packed = texts.iter().map(|text| pack(text).map_or(text.len(), |packed| packed.len())).sum();
        (texts.iter().map(String::len).sum(), packed)
    };
    let ((pods, pods_packed), (statuses, statuses_packed)) = (bytes(pod), bytes(status));
    assert!(pods_packed * 4 < pods, "100 pods: {pods} bytes to {pods_packed}");
    assert!(statuses_packed * 5 < statuses, "100 statuses: {statuses} bytes to {statuses_packed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn g20_any_text_survives(text in "\\PC{256,2000}") {
        if let Some(packed) = pack(&text) {
            prop_assert_eq!(unpack(&packed), Ok(text));
        }
    }

    #[test]
    fn g20_noise_is_never_more_than_the_limit(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(text) = unpack(&bytes) {
            prop_assert!(text.len() <= MAX_FRAME);
        }
    }
}
