//! The table against the API's types, and its answers by example.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use serde::Deserialize;
use serde::de::{self, Visitor};
use serde_json::json;

use super::super::testing::{annotated, pod};
use super::*;

/// A deserializer that only listens: the types say their field names when they ask for a struct.
struct Listen;

#[derive(Debug)]
struct Heard(Vec<&'static str>);

impl std::fmt::Display for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Heard {}

impl de::Error for Heard {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self(Vec::new())
    }
}

impl<'de> de::Deserializer<'de> for Listen {
    type Error = Heard;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Heard> {
        Err(Heard(Vec::new()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Heard> {
        Err(Heard(fields.to_vec()))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn same_rows<'de, T: Deserialize<'de>>(name: &str, table: Table) {
    let Err(Heard(fields)) = T::deserialize(Listen) else { panic!("{name} is no struct") };
    let fields: BTreeSet<&str> = fields.into_iter().collect();
    let fields_of_rows: BTreeSet<&str> = rows(table).map(|(row, _)| row).collect();
    assert_eq!(fields_of_rows.len(), rows(table).count(), "{name} has a row twice");
    assert_eq!(fields_of_rows, fields, "{name}: the rows are not the type's fields");
}

#[test]
fn annotation_without_effect_is_warned_of() {
    let of = |value: &str| warnings(&annotated("sampan.dev/stop-lock", value));
    let told = of("soon");
    assert!(told.len() == 1 && told[0].contains("sampan.dev/stop-lock"), "{told:?}");
    assert_eq!(of("30m"), Vec::<String>::new());
    assert_eq!(warnings(&annotated("edge.kubeedge.io/hold-upgrade", "true")), Vec::<String>::new());
}

macro_rules! tables {
    ($(($type:ty, $name:literal, $table:expr),)*) => {
        /// Every table with the name of its type.
        pub(super) const TABLES: &[(&str, Table)] = &[$(($name, $table)),*];

        #[test]
        fn every_field_of_the_api_has_its_row() {
            $(same_rows::<$type>($name, $table);)*
        }
    };
}

tables! {
    (PodSpec, "PodSpec", table::POD_SPEC),
    (api::PodOS, "PodOS", table::POD_OS),
    (api::Container, "Container", table::CONTAINER),
    (api::Container, "Container (init)", table::INIT_CONTAINER),
    (api::EphemeralContainer, "EphemeralContainer", table::EPHEMERAL_CONTAINER),
    (api::EnvVar, "EnvVar", table::ENV),
    (api::EnvVarSource, "EnvVarSource", table::ENV_SOURCE),
    (api::Lifecycle, "Lifecycle", table::LIFECYCLE),
    (api::LifecycleHandler, "LifecycleHandler", table::HOOK),
    (api::Probe, "Probe", table::PROBE),
    (api::ContainerPort, "ContainerPort", table::PORT),
    (api::ResourceRequirements, "ResourceRequirements", table::RESOURCES),
    (api::PodSecurityContext, "PodSecurityContext", table::POD_SECURITY),
    (api::SecurityContext, "SecurityContext", table::SECURITY),
    (api::SeccompProfile, "SeccompProfile", table::PROFILE),
    (api::AppArmorProfile, "AppArmorProfile", table::PROFILE),
    (api::Volume, "Volume", table::VOLUME),
    (api::ProjectedVolumeSource, "ProjectedVolumeSource", table::PROJECTED),
    (api::VolumeProjection, "VolumeProjection", table::VOLUME_PROJECTION),
}

fn container(extra: Value) -> Value {
    let mut c = json!({"name": "c", "image": "i"});
    c.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({"containers": [c]})
}

fn with(extra: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec
}

#[test]
fn refused_for_good() {
    for (spec, reason, message) in [
        (
            container(json!({"securityContext": {"procMount": "Unmasked"}})),
            UNSUPPORTED,
            "spec.containers[0].securityContext.procMount: \"Unmasked\" is not supported by this node",
        ),
        (with(json!({"os": {"name": "windows"}})), "PodOSNotSupported", "Failed to admit pod as the OS field"),
        (
            container(json!({"lifecycle": {"preStop": {"tcpSocket": {"port": 5}}}})),
            UNSUPPORTED,
            "spec.containers[0].lifecycle.preStop.tcpSocket is not supported by this node",
        ),
        (
            container(json!({"resources": {"limits": {"pods": "2"}}})),
            UNSUPPORTED,
            "spec.containers[0].resources.limits.pods is not",
        ),
        (
            container(json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "RestartAllContainers"}]})),
            UNSUPPORTED,
            "spec.containers[0].restartPolicyRules is not",
        ),
    ] {
        let refused = refusal(&pod(spec.clone())).unwrap_or_else(|| panic!("not refused: {spec}"));
        assert_eq!(refused.reason, reason, "{spec}");
        assert!(refused.message.starts_with(message), "{}", refused.message);
    }
}

#[test]
fn waited_for() {
    let volume = |source: Value| {
        let mut v = json!({"name": "v"});
        v.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        with(json!({"volumes": [v]}))
    };
    for (spec, reason, message) in [
        (
            volume(json!({"iscsi": {"targetPortal": "a", "iqn": "b", "lun": 0}})),
            "FailedMount",
            "spec.volumes[0].iscsi is not supported by this node",
        ),
        (volume(json!({"nfs": {"server": "s", "path": "/"}})), "FailedMount", "spec.volumes[0].nfs is not"),
        (volume(json!({"emptyDir": {"medium": "HugePages"}})), "FailedMount", "spec.volumes[0].emptyDir is not"),
        (
            volume(
                json!({"projected": {"sources": [{"podCertificate": {"signerName": "a/b", "keyType": "ED25519"}}]}}),
            ),
            "FailedMount",
            "spec.volumes[0].projected.sources[0].podCertificate is not",
        ),
    ] {
        let pod = pod(spec);
        assert_eq!(refusal(&pod), None);
        let obstacle = obstacle(&pod).unwrap();
        assert_eq!(obstacle.reason, reason);
        assert!(obstacle.message.starts_with(message), "{}", obstacle.message);
    }
}

#[test]
fn run_without_a_word() {
    let pod = pod(json!({
        "containers": [{"name": "c", "image": "i", "terminationMessagePolicy": "FallbackToLogsOnError",
                        "resources": {"limits": {"ephemeral-storage": "1Gi"}}}],
        "volumes": [
            {"name": "d", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "kube-api-access-x2x4z", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt"}}]}},
        ],
    }));
    assert_eq!((refusal(&pod), obstacle(&pod)), (None, None));
    assert_eq!(warnings(&pod), Vec::<String>::new());
}

/// What the API server makes of a plain pod must pass without a word.
#[test]
fn defaulted_pods_are_taken() {
    let pod = pod(json!({
        "containers": [{
            "name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent",
            "resources": {"limits": {"cpu": "1", "memory": "64Mi", "example.com/gpio": "1"}, "requests": {"cpu": "1", "memory": "64Mi"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1,
                              "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "securityContext": {"allowPrivilegeEscalation": false, "procMount": "Default",
                                "seccompProfile": {"type": "RuntimeDefault"}},
            "lifecycle": {}, "stdin": false,
        }],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default", "serviceAccount": "default", "automountServiceAccountToken": false,
        "nodeName": "n", "securityContext": {}, "schedulerName": "default-scheduler",
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                         "tolerationSeconds": 300}],
        "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
    }));
    assert_eq!((refusal(&pod), obstacle(&pod), warnings(&pod)), (None, None, Vec::new()));
}

#[test]
fn fields_of_a_newer_api_are_refused() {
    let mut raw = json!({"metadata": {"name": "p", "fancy": 1}, "spec": container(json!({"env": []}))});
    let parsed = |raw: &Value| serde_json::from_value::<Pod>(raw.clone()).unwrap();
    assert_eq!(unknown_field(&raw, &parsed(&raw)), None);
    raw["spec"]["containers"][0]["turbo"] = json!(true);
    let refused = unknown_field(&raw, &parsed(&raw)).unwrap();
    assert_eq!(refused.message, "spec.containers[0].turbo is not known to this node");
}
