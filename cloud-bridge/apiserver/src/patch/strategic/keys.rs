//! How lists of built-in kinds merge: the merge keys that the Kubernetes types declare. Only fields that differ
//! from the rule "objects merge, lists are replaced", and the way to them, are listed.

/// A node of the type graph.
#[derive(Debug)]
pub(super) struct Type {
    pub(super) fields: &'static [Field],
}

/// One field of a type.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// The field's own type, of its elements when it is a list.
    pub(super) of: &'static Type,
    pub(super) list: List,
}

/// How a list merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// No list, or replaced as a whole.
    Replace,
    /// A set of plain values.
    Set,
    /// Objects told apart by this key.
    By(&'static str),
}

impl Type {
    /// What is known of a field.
    pub(super) fn field(&self, name: &str) -> (&'static Type, List) {
        self.fields.iter().find(|f| f.name == name).map_or((&NONE, List::Replace), |f| (f.of, f.list))
    }
}

/// The type of a kind.
pub(super) fn of_kind(kind: &str) -> &'static Type {
    match kind {
        "Pod" => &POD,
        "Node" => &NODE,
        "Namespace" => &NAMESPACE,
        "Service" => &SERVICE,
        "ServiceAccount" => &SERVICE_ACCOUNT,
        "PersistentVolumeClaim" => &CLAIM,
        _ => &OBJECT,
    }
}

const fn object(name: &'static str, of: &'static Type) -> Field {
    Field { name, of, list: List::Replace }
}

const fn set(name: &'static str) -> Field {
    Field { name, of: &NONE, list: List::Set }
}

const fn by(name: &'static str, key: &'static str) -> Field {
    Field { name, of: &NONE, list: List::By(key) }
}

const fn by_of(name: &'static str, key: &'static str, of: &'static Type) -> Field {
    Field { name, of, list: List::By(key) }
}

static NONE: Type = Type { fields: &[] };
static META: Type = Type { fields: &[set("finalizers"), by("ownerReferences", "uid")] };
static OBJECT: Type = Type { fields: &[object("metadata", &META)] };
static CONDITIONS: Type = Type { fields: &[by("conditions", "type")] };

static POD: Type =
    Type { fields: &[object("metadata", &META), object("spec", &POD_SPEC), object("status", &POD_STATUS)] };
static POD_SPEC: Type = Type {
    fields: &[
        by_of("containers", "name", &CONTAINER),
        by_of("ephemeralContainers", "name", &CONTAINER),
        by("hostAliases", "ip"),
        by("imagePullSecrets", "name"),
        by_of("initContainers", "name", &CONTAINER),
        by("resourceClaims", "name"),
        by("schedulingGates", "name"),
        by("topologySpreadConstraints", "topologyKey"),
        by("volumes", "name"),
    ],
};
static CONTAINER: Type = Type {
    fields: &[
        by("env", "name"),
        by("ports", "containerPort"),
        by("volumeDevices", "devicePath"),
        by("volumeMounts", "mountPath"),
    ],
};
static POD_STATUS: Type = Type {
    fields: &[by("conditions", "type"), by("hostIPs", "ip"), by("podIPs", "ip"), by("resourceClaimStatuses", "name")],
};

static NODE: Type =
    Type { fields: &[object("metadata", &META), object("spec", &NODE_SPEC), object("status", &NODE_STATUS)] };
static NODE_SPEC: Type = Type { fields: &[set("podCIDRs")] };
static NODE_STATUS: Type = Type { fields: &[by("addresses", "type"), by("conditions", "type")] };

static NAMESPACE: Type = Type { fields: &[object("metadata", &META), object("status", &CONDITIONS)] };
static CLAIM: Type = Type { fields: &[object("metadata", &META), object("status", &CONDITIONS)] };
static SERVICE: Type =
    Type { fields: &[object("metadata", &META), object("spec", &SERVICE_SPEC), object("status", &CONDITIONS)] };
static SERVICE_SPEC: Type = Type { fields: &[by("ports", "port")] };
static SERVICE_ACCOUNT: Type = Type { fields: &[object("metadata", &META), by("secrets", "name")] };
