//! How the lists of a kind merge, as its Kubernetes types declare it: `patchMergeKey` for strategic merge patch,
//! `listType` and `listMapKey` for server-side apply. Knows no kind. Each kind has a value of this type, which holds
//! only the fields that deviate from the rule "objects merge, lists are replaced", and the path to them.

/// Fields of Kubernetes' own types that server-side apply treats as one value although they are objects
/// (`structType=atomic` and `mapType=atomic` in k8s.io/api), or lists of such objects: label and node selectors, and
/// references. Each name means the same in all served kinds; names that differ between kinds (`resource`,
/// `scaleTargetRef`) are in the tables of their kinds. Sorted.
pub(super) const ATOMIC: &[&str] = &[
    "configMapKeyRef",
    "controllerExpandSecretRef",
    "controllerPublishSecretRef",
    "dataSource",
    "fieldRef",
    "fileKeyRef",
    "imagePullSecrets",
    "involvedObject",
    "labelSelector",
    "namespaceSelector",
    "nodeExpandSecretRef",
    "nodePublishSecretRef",
    "nodeSelector",
    "nodeStageSecretRef",
    "ownerReferences",
    "podSelector",
    "port",
    "preference",
    "regarding",
    "related",
    "required",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "resourceFieldRef",
    "roleRef",
    "scopeSelector",
    "secretKeyRef",
    "secretRef",
    "secrets",
    "selector",
    "targetRef",
];

/// The type of an object, or of one of its fields.
#[derive(Debug)]
pub struct Type {
    pub(crate) fields: &'static [Field],
}

/// One field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    name: &'static str,
    /// The field's own type, of its elements when it is a list.
    of: &'static Type,
    list: List,
}

/// How a list merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// No list, or replaced as a whole.
    Replace,
    /// An object that a strategic merge patch replaces as a whole.
    Whole,
    /// An object that is one value in server-side apply.
    One,
    /// A set of plain values.
    Set,
    /// Objects that are identified by some of their fields.
    By {
        /// In a strategic merge patch; without it the list is replaced there.
        merge: Option<&'static str>,
        /// Keys for server-side apply; without keys the list is atomic there.
        map: &'static [&'static str],
    },
}

impl List {
    /// The key of a strategic merge patch.
    pub(super) fn merge_key(self) -> Option<&'static str> {
        match self {
            Self::By { merge, .. } => merge,
            Self::Replace | Self::Whole | Self::One | Self::Set => None,
        }
    }
}

impl Type {
    /// Type and list kind of a field.
    pub(super) fn field(&self, name: &str) -> (&'static Type, List) {
        self.fields.iter().find(|f| f.name == name).map_or((&NONE, List::Replace), |f| (f.of, f.list))
    }
}

/// A field that is an object.
pub(crate) const fn object(name: &'static str, of: &'static Type) -> Field {
    Field { name, of, list: List::Replace }
}

/// An object that a patch replaces instead of merging it.
pub(crate) const fn whole(name: &'static str) -> Field {
    Field { name, of: &NONE, list: List::Whole }
}

/// An object that is one value in server-side apply (`structType=atomic`).
pub(crate) const fn one(name: &'static str) -> Field {
    Field { name, of: &NONE, list: List::One }
}

/// A set of plain values.
pub(crate) const fn set(name: &'static str) -> Field {
    Field { name, of: &NONE, list: List::Set }
}

/// A list of objects that merges by one key.
pub(crate) const fn by(name: &'static str, key: &'static [&'static str; 1]) -> Field {
    by_of(name, key, &NONE)
}

/// Same as `by`, for items with lists that merge.
pub(crate) const fn by_of(name: &'static str, key: &'static [&'static str; 1], of: &'static Type) -> Field {
    Field { name, of, list: List::By { merge: Some(key[0]), map: key } }
}

/// A list that merges by the first key in a patch, and by all of them in server-side apply.
pub(crate) const fn by_all(name: &'static str, keys: &'static [&'static str; 2]) -> Field {
    Field { name, of: &NONE, list: List::By { merge: Some(keys[0]), map: keys } }
}

/// A list that merges in a strategic merge patch only.
pub(crate) const fn patched(name: &'static str, key: &'static str) -> Field {
    Field { name, of: &NONE, list: List::By { merge: Some(key), map: &[] } }
}

/// A list that merges in server-side apply only.
pub(crate) const fn map(name: &'static str, keys: &'static [&'static str]) -> Field {
    Field { name, of: &NONE, list: List::By { merge: None, map: keys } }
}

static NONE: Type = Type { fields: &[] };
static METADATA: Type = Type { fields: &[set("finalizers"), by("ownerReferences", &["uid"])] };
/// `metadata`, as every kind has it.
pub(crate) const META: Field = object("metadata", &METADATA);
/// An object of which nothing but the metadata merges.
pub(crate) static OBJECT: Type = Type { fields: &[META] };
/// A status with conditions.
pub(crate) static CONDITIONS: Type = Type { fields: &[by("conditions", &["type"])] };
