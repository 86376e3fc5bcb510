//! The strategy of each built-in kind: which defaults, preparation, rules, columns and selectable fields it
//! has. Only wiring; the decisions live in `defaults`, `validate`, `table` and `strategic`.

pub mod builtin;
pub(crate) mod cluster_ip;
pub(crate) mod custom;
pub(crate) mod defaults;
pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod qos;
pub(crate) mod table;
pub(crate) mod validate;

use edge_protocol::json::SetField;
use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::patch::strategic::PatchError;
use crate::resource::strategy::{Column, Strategy};
use table::Spec;

use crate::patch::strategic;
use apimachinery::field::FieldError;
use apimachinery::json::{object_mut, text};

type Rule = fn(&Value) -> Vec<FieldError>;
type ChangeRule = fn(&Value, &Value) -> Vec<FieldError>;

type Part = (&'static str, fn(&mut Value, &Value), ChangeRule);

/// One built-in kind as a table of functions.
pub(crate) struct Kind {
    /// The merge keys that a strategic merge patch of the kind knows.
    pub(crate) name: &'static str,
    default: fn(&mut Value),
    prepare_create: fn(&mut Value),
    prepare_update: fn(&mut Value, &Value),
    create: Rule,
    update: ChangeRule,
    status_update: ChangeRule,
    /// Subresources that are a part of the object: what an update of one may change, and its rules.
    parts: &'static [Part],
    columns: &'static [Spec],
    row: fn(&Value, Timestamp) -> Vec<Value>,
    /// Label of a selectable field and the JSON pointer to its value.
    fields: &'static [(&'static str, &'static str)],
}

impl Strategy for Kind {
    fn default(&self, obj: &mut Value) {
        if let Some(metadata) = obj.get_mut("metadata") {
            defaults::drop_zero(metadata, &["annotations", "finalizers", "labels", "ownerReferences"]);
        }
        (self.default)(obj);
    }

    fn prepare_create(&self, obj: &mut Value) {
        (self.prepare_create)(obj);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        (self.prepare_update)(new, old);
    }

    fn validate_create(&self, obj: &Value) -> Vec<FieldError> {
        (self.create)(obj)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        (self.update)(new, old)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        (self.status_update)(new, old)
    }

    fn prepare_part_update(&self, part: &str, new: &mut Value, old: &Value) {
        match self.parts.iter().find(|(name, ..)| *name == part) {
            Some((_, prepare, _)) => prepare(new, old),
            None => new.clone_from(old),
        }
    }

    fn validate_part_update(&self, part: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        let rule = self.parts.iter().find(|(name, ..)| *name == part);
        rule.map(|(_, _, rule)| rule(new, old)).unwrap_or_default()
    }

    fn columns(&self) -> Vec<Column> {
        table::columns(self.columns)
    }

    fn row(&self, obj: &Value, now: Timestamp) -> Vec<Value> {
        (self.row)(obj, now)
    }

    fn field<'a>(&self, obj: &'a Value, label: &str) -> Option<Cow<'a, str>> {
        let (_, pointer) = self.fields.iter().find(|(known, _)| *known == label)?;
        Some(match obj.pointer(pointer) {
            Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
            Some(Value::Null) | None => match label {
                "spec.unschedulable" | "spec.hostNetwork" => Cow::Borrowed("false"),
                _ => Cow::Borrowed(""),
            },
            Some(other) => Cow::Owned(other.to_string()),
        })
    }

    fn strategic_merge(&self, current: &Value, patch: &Value) -> Result<Value, PatchError> {
        strategic::apply(self.name, current, patch)
    }
}

const PLAIN: Kind = Kind {
    name: "",
    default: |_| {},
    prepare_create: |_| {},
    prepare_update: |_, _| {},
    create: |_| Vec::new(),
    update: |_, _| Vec::new(),
    status_update: |_, _| Vec::new(),
    parts: &[],
    columns: table::PLAIN_COLUMNS,
    row: table::plain,
    fields: &[],
};

pub(crate) static POD: Kind = Kind {
    name: "Pod",
    default: defaults::pod,
    prepare_create: |pod| {
        defaults::new_pod(pod);
        let class = qos::class(&pod["spec"]);
        pod.set("status", json!({"phase": "Pending", "qosClass": class}));
        if !apimachinery::json::items(&pod["spec"], "schedulingGates").is_empty() {
            pod.set_at(
                &["status", "conditions"],
                json!([{
                    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }]),
            );
        }
    },
    prepare_update: keep_status,
    create: validate::pod::create,
    update: validate::pod_update::update,
    status_update: validate::pod_status::update,
    parts: &[
        ("ephemeralcontainers", validate::pod_ephemeral::prepare, validate::pod_ephemeral::update),
        ("resize", validate::pod_resize::prepare, validate::pod_resize::update),
    ],
    columns: table::POD_COLUMNS,
    row: table::pod,
    fields: &[
        ("spec.nodeName", "/spec/nodeName"),
        ("spec.restartPolicy", "/spec/restartPolicy"),
        ("spec.schedulerName", "/spec/schedulerName"),
        ("spec.serviceAccountName", "/spec/serviceAccountName"),
        ("spec.hostNetwork", "/spec/hostNetwork"),
        ("status.phase", "/status/phase"),
        ("status.podIP", "/status/podIP"),
        ("status.nominatedNodeName", "/status/nominatedNodeName"),
    ],
};

pub(crate) static NODE: Kind = Kind {
    name: "Node",
    default: defaults::node,
    prepare_update: keep_status,
    create: validate::node::node,
    update: validate::node::node_update,
    status_update: validate::node::node_update,
    columns: table::NODE_COLUMNS,
    row: table::node,
    fields: &[("spec.unschedulable", "/spec/unschedulable")],
    ..PLAIN
};

pub(crate) static NAMESPACE: Kind = Kind {
    name: "Namespace",
    default: defaults::namespace,
    prepare_create: |namespace| {
        namespace.set("status", json!({"phase": "Active"}));
        let finalizers = namespace.at_mut(&["spec", "finalizers"]);
        match finalizers {
            Some(Value::Array(list)) if list.iter().any(|f| f == "kubernetes") => {}
            Some(Value::Array(list)) => list.push("kubernetes".into()),
            _ => {
                if let Some(spec) = object_mut(namespace, "spec") {
                    spec.insert("finalizers".into(), json!(["kubernetes"]));
                }
            }
        }
    },
    prepare_update: |new, old| {
        keep_status(new, old);
        if let Some(spec) = object_mut(new, "spec") {
            spec.insert("finalizers".into(), old["spec"]["finalizers"].clone());
        }
    },
    create: validate::node::namespace,
    columns: table::NAMESPACE_COLUMNS,
    row: table::namespace,
    fields: &[("status.phase", "/status/phase"), ("name", "/metadata/name")],
    ..PLAIN
};

pub(crate) static CONFIG_MAP: Kind = Kind {
    name: "ConfigMap",
    default: defaults::config_map,
    create: validate::config::config_map,
    update: validate::config::config_map_update,
    columns: table::CONFIG_MAP_COLUMNS,
    row: table::config_map,
    ..PLAIN
};

pub(crate) static SECRET: Kind = Kind {
    name: "Secret",
    default: defaults::secret,
    create: validate::config::secret,
    update: validate::config::secret_update,
    columns: table::SECRET_COLUMNS,
    row: table::secret,
    fields: &[("type", "/type")],
    ..PLAIN
};

pub(crate) static SERVICE: Kind = Kind {
    name: "Service",
    default: defaults::service,
    prepare_create: |service| {
        service.set("status", json!({"loadBalancer": {}}));
        cluster_ips(service);
    },
    prepare_update: |new, old| {
        keep_status(new, old);
        // What a manifest leaves out was chosen at creation and stays.
        if text(&new["spec"], "clusterIP").is_empty() && text(&new["spec"], "type") != "ExternalName" {
            for field in ["clusterIP", "clusterIPs"] {
                if let (Some(spec), value @ (Value::String(_) | Value::Array(_))) =
                    (object_mut(new, "spec"), &old["spec"][field])
                {
                    spec.insert(field.to_owned(), value.clone());
                }
            }
        }
        cluster_ips(new);
    },
    create: validate::network::service,
    update: validate::network::service_update,
    columns: table::SERVICE_COLUMNS,
    row: table::service,
    fields: &[("spec.clusterIP", "/spec/clusterIP"), ("spec.type", "/spec/type")],
    ..PLAIN
};

pub(crate) static ENDPOINTS: Kind = Kind {
    name: "Endpoints",
    default: defaults::endpoints,
    create: validate::network::endpoints,
    update: |new, _| validate::network::endpoints(new),
    columns: table::ENDPOINTS_COLUMNS,
    row: table::endpoints,
    ..PLAIN
};

pub(crate) static ENDPOINT_SLICE: Kind = Kind {
    name: "EndpointSlice",
    default: defaults::endpoint_slice,
    columns: table::ENDPOINT_SLICE_COLUMNS,
    row: table::endpoint_slice,
    ..PLAIN
};

pub(crate) static EVENT: Kind = Kind {
    name: "Event",
    default: defaults::event,
    create: validate::node::event,
    update: |new, _| validate::node::event(new),
    columns: table::EVENT_COLUMNS,
    row: table::event,
    fields: &[
        ("involvedObject.kind", "/involvedObject/kind"),
        ("involvedObject.namespace", "/involvedObject/namespace"),
        ("involvedObject.name", "/involvedObject/name"),
        ("involvedObject.uid", "/involvedObject/uid"),
        ("involvedObject.apiVersion", "/involvedObject/apiVersion"),
        ("involvedObject.resourceVersion", "/involvedObject/resourceVersion"),
        ("involvedObject.fieldPath", "/involvedObject/fieldPath"),
        ("reason", "/reason"),
        ("reportingComponent", "/reportingComponent"),
        ("source", "/source/component"),
        ("type", "/type"),
    ],
    ..PLAIN
};

pub(crate) static PERSISTENT_VOLUME: Kind = Kind {
    name: "PersistentVolume",
    default: defaults::persistent_volume,
    prepare_create: |volume| volume.set("status", json!({"phase": "Pending"})),
    prepare_update: keep_status,
    create: validate::storage::volume,
    update: validate::storage::volume_update,
    columns: table::VOLUME_COLUMNS,
    row: table::volume,
    ..PLAIN
};

pub(crate) static PERSISTENT_VOLUME_CLAIM: Kind = Kind {
    name: "PersistentVolumeClaim",
    default: defaults::persistent_volume_claim,
    prepare_create: |claim| claim.set("status", json!({"phase": "Pending"})),
    prepare_update: keep_status,
    create: validate::storage::claim,
    update: validate::storage::claim_update,
    columns: table::CLAIM_COLUMNS,
    row: table::claim,
    ..PLAIN
};

pub(crate) static SERVICE_ACCOUNT: Kind = Kind { name: "ServiceAccount", ..PLAIN };

pub(crate) static RUNTIME_CLASS: Kind = Kind {
    name: "RuntimeClass",
    create: validate::runtime_class::create,
    update: validate::runtime_class::update,
    columns: table::RUNTIME_CLASS_COLUMNS,
    row: table::runtime_class,
    ..PLAIN
};

pub(crate) static LEASE: Kind = Kind {
    name: "Lease",
    create: validate::node::lease,
    update: |new, _| validate::node::lease(new),
    columns: table::LEASE_COLUMNS,
    row: table::lease,
    ..PLAIN
};

pub(crate) static CRD: Kind = Kind {
    name: "CustomResourceDefinition",
    prepare_update: keep_status,
    columns: table::CRD_COLUMNS,
    row: table::crd,
    ..PLAIN
};

/// An update of the main resource leaves the status as it is.
fn keep_status(new: &mut Value, old: &Value) {
    if let Some(map) = new.as_object_mut() {
        match old.get("status") {
            Some(status) => map.insert("status".to_owned(), status.clone()),
            None => map.remove("status"),
        };
    }
}

/// `clusterIPs` repeats `clusterIP`.
fn cluster_ips(service: &mut Value) {
    let ip = text(&service["spec"], "clusterIP").to_owned();
    if let Some(spec) = object_mut(service, "spec") {
        if ip.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.entry("clusterIPs").or_insert_with(|| json!([ip]));
        }
    }
}
