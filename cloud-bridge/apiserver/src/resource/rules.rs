//! Rules of a kind for the verbs, in addition to its hooks. The fields have the names of Kubernetes' strategies and
//! generic store, where these have them.

use std::time::Duration;

use serde_json::Value;

use apimachinery::names;

/// Whether an object has changed (new, old).
pub(crate) type Changed = fn(&Value, &Value) -> bool;

/// The answers of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Errors of a name.
    pub(crate) name: fn(&str) -> Vec<String>,
    /// Fields that are structures in the API and so are always there.
    pub(crate) structures: &'static [&'static str],
    /// Whether a PUT creates a missing object.
    pub(crate) allow_create_on_update: bool,
    /// An update needs no resourceVersion.
    pub(crate) allow_unconditional_update: bool,
    /// Whether a patch must keep the name of the path, whatever validation says about it.
    pub(crate) patch_keeps_name: bool,
    /// A deletion answers with the object instead of a Status.
    pub(crate) return_deleted_object: bool,
    /// Grace period of a deletion in seconds, from the one that the client asks for; without this function, an object
    /// has no grace period.
    pub(crate) grace_period: Option<fn(&Value, Option<i64>) -> i64>,
    /// Finalizer that keeps a deleted object for further work.
    pub(crate) deletion_finalizer: Option<&'static str>,
    /// `spec.finalizers` hold the object, too: its deletion turns it Terminating first.
    pub(crate) spec_finalizers: bool,
    /// Whether objects take part in garbage collection.
    pub(crate) enable_garbage_collection: bool,
    /// Whether a deletion without a propagation policy orphans dependents: the default of some older kinds
    /// (`DefaultGarbageCollectionPolicy` of their strategies).
    pub(crate) orphan_dependents: bool,
    /// Warning to a client without a policy, if any.
    pub(crate) orphan_warning: Option<&'static str>,
    /// Objects go after this time without a write.
    pub(crate) ttl: Option<Duration>,
    /// Objects of these names may not be deleted.
    pub(crate) immortal: &'static [&'static str],
    /// Objects run: admission gives them account, priority, tolerations and class.
    pub(crate) admit_pods: bool,
    /// JSON pointer to the template of pods in an object; empty for the pod itself.
    pub(crate) template: Option<&'static str>,
    /// Warning with every request, for a kind that others have replaced.
    pub(crate) deprecated: Option<&'static str>,
    /// Objects get an address of the range of Services.
    pub(crate) cluster_ip: bool,
    /// Between the served form and the stored one, where these are not the same.
    pub(crate) conversion: Option<Conversion>,
}

/// Conversion of a version of a kind to the stored one, and back. Both ignore missing fields: bodies of patches and of
/// server-side apply are parts of objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversion {
    pub(crate) to_stored: fn(&mut Value),
    pub(crate) to_served: fn(&mut Value),
}

impl Rules {
    /// Rules of custom resources.
    pub(crate) const CUSTOM: Self = Self {
        name: names::dns_subdomain,
        structures: &[],
        allow_create_on_update: false,
        allow_unconditional_update: false,
        patch_keeps_name: true,
        return_deleted_object: false,
        grace_period: None,
        deletion_finalizer: None,
        spec_finalizers: false,
        enable_garbage_collection: true,
        orphan_dependents: false,
        orphan_warning: None,
        ttl: None,
        immortal: &[],
        admit_pods: false,
        template: None,
        deprecated: None,
        cluster_ip: false,
        conversion: None,
    };
    /// Default rules of a built-in kind.
    pub(crate) const BUILT_IN: Self = Self { allow_unconditional_update: true, ..Self::CUSTOM };
    /// Rules of a built-in kind with a spec and a status.
    pub(crate) const SPEC_AND_STATUS: Self = Self { structures: &["spec", "status"], ..Self::BUILT_IN };
}
