//! Pods.

pub(crate) mod amounts;
pub(crate) mod defaults;
pub(crate) mod qos;
mod table;
pub(crate) mod validate;
pub(crate) mod warnings;

use k8s_openapi::api::core::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::kind::{Kind, PLAIN, PROXY, Selectable, Sub, keep_status, spec_changed};
use crate::codec::decode;
use crate::patch::merge_keys::{META, Type, by, by_all, by_of, object};
use crate::resource::Serves;
use crate::resource::rules::Rules;
use apimachinery::json::items;

/// Verbs of upgraded subresources.
const CONNECT: &[&str] = &["create", "get"];

pub(crate) static KIND: Kind = Kind {
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    namespaced: true,
    check: Some(decode::check::<v1::Pod>),
    rules: Rules {
        return_deleted_object: true,
        grace_period: Some(grace_period),
        admit_pods: true,
        template: Some(""),
        ..Rules::SPEC_AND_STATUS
    },
    generation: Some(spec_changed),
    default: defaults::pod,
    prepare_create,
    prepare_update: keep_status,
    create: validate::spec::create,
    update: validate::update::update,
    status: Some(validate::status::update),
    subresources: &[
        Sub::other("attach", ("", "PodAttachOptions"), CONNECT, Serves::Connect),
        Sub::other("binding", ("", "Binding"), &["create"], Serves::Binding),
        Sub::part("ephemeralcontainers", "Pod", validate::ephemeral::prepare, validate::ephemeral::update),
        Sub::other("eviction", ("policy", "Eviction"), &["create"], Serves::Eviction),
        Sub::other("exec", ("", "PodExecOptions"), CONNECT, Serves::Connect),
        Sub::other("log", ("", "Pod"), &["get"], Serves::Log),
        Sub::other("portforward", ("", "PodPortForwardOptions"), CONNECT, Serves::Connect),
        Sub::other("proxy", ("", "PodProxyOptions"), PROXY, Serves::PodProxy),
        Sub::part("resize", "Pod", validate::resize::prepare, validate::resize::update),
    ],
    table: &table::TABLE,
    fields: &[
        Selectable::text("spec.nodeName", "/spec/nodeName"),
        Selectable::text("spec.restartPolicy", "/spec/restartPolicy"),
        Selectable::text("spec.schedulerName", "/spec/schedulerName"),
        Selectable::text("spec.serviceAccountName", "/spec/serviceAccountName"),
        Selectable::flag("spec.hostNetwork", "/spec/hostNetwork"),
        Selectable::text("status.phase", "/status/phase"),
        Selectable::text("status.podIP", "/status/podIP"),
        Selectable::text("status.nominatedNodeName", "/status/nominatedNodeName"),
    ],
    keys: &KEYS,
    ..PLAIN
};

/// How lists of a pod merge.
pub(crate) static KEYS: Type = Type { fields: &[META, object("spec", &SPEC), object("status", &STATUS)] };
/// How lists of its spec merge, also of one in a template.
pub(crate) static SPEC: Type = Type {
    fields: &[
        by_of("containers", &["name"], &CONTAINER),
        by_of("ephemeralContainers", &["name"], &CONTAINER),
        by("hostAliases", &["ip"]),
        by("imagePullSecrets", &["name"]),
        by_of("initContainers", &["name"], &CONTAINER),
        by("resourceClaims", &["name"]),
        by("schedulingGates", &["name"]),
        by_all("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
        by("volumes", &["name"]),
    ],
};
static CONTAINER: Type = Type {
    fields: &[
        by("env", &["name"]),
        by_all("ports", &["containerPort", "protocol"]),
        by("volumeDevices", &["devicePath"]),
        by("volumeMounts", &["mountPath"]),
    ],
};
static STATUS: Type = Type {
    fields: &[
        by("conditions", &["type"]),
        by("hostIPs", &["ip"]),
        by("podIPs", &["ip"]),
        by("resourceClaimStatuses", &["name"]),
    ],
};
fn prepare_create(pod: &mut Value) {
    defaults::new_pod(pod);
    let class = qos::class(&pod["spec"]);
    pod.set("status", json!({"phase": "Pending", "qosClass": class}));
    if !items(&pod["spec"], "schedulingGates").is_empty() {
        pod.set_at(
            &["status", "conditions"],
            json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]),
        );
    }
}

/// The grace period of a deletion: none for a pod without a node or that has ended, otherwise the requested one or the
/// pod's own (K8s pkg/registry/core/pod/strategy.go CheckGracefulDelete).
fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    if unscheduled || matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded")) {
        return 0;
    }
    let period = asked.or(pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
    if period < 0 { 1 } else { period }
}
