//! Table of the kinds of objects that nodes receive, and of groups of them: one value per kind says how the bridge
//! names, reads, watches and looks up its objects. Pure.

use edge_protocol::message::{ORDER, ObjectKey};

/// Group and version of Devices in the API.
pub(in crate::bridge) const DEVICES_API: &str = "devices.kubeedge.io/v1beta1";
/// Group and version of rules and their ends in the API.
pub(in crate::bridge) const RULES_API: &str = "rules.kubeedge.io/v1";

/// How the bridge treats objects of one kind.
#[derive(Debug)]
pub(in crate::bridge) struct Facts {
    /// Name of the kind on the link.
    pub(in crate::bridge) name: &'static str,
    /// Group and version of the kind in the API.
    pub(in crate::bridge) api: &'static str,
    /// Its plural in the API; empty for objects that the bridge makes from others.
    pub(in crate::bridge) plural: &'static str,
    /// Whether the API allows only some nodes to read an object: each node that uses it is checked.
    pub(in crate::bridge) guarded: bool,
    pub(in crate::bridge) reader: Reader,
    pub(in crate::bridge) watch: Watch,
    pub(in crate::bridge) look_up: LookUp,
}

/// The identity that reads a watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Reader {
    /// One of the nodes whose pods name it.
    Node,
    /// The bridge itself, whichever node needs it.
    Bridge,
}

/// How an object or a group is watched, while a node needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Watch {
    /// It is not: it comes in a group, or for all nodes at once.
    Never,
    /// Its metadata is watched, and each change reads it.
    Object,
    Claim,
    NodeLabels,
    ServiceLinks,
    Services,
    Policies,
    Site,
    Devices,
    Rules,
}

/// How the bridge finds out whether an object that a node holds still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum LookUp {
    /// The bridge reads the pod with its own rights.
    Pod,
    /// The bridge reads it in the name of the node.
    Object,
    /// Same, without a namespace.
    Cluster,
    /// The node needs it as long as one of its pods names it.
    Use,
    /// The bridge reads the Device or model with its own rights.
    Device,
    /// The bridge has made it, and knows whether it exists. Such an object may be sent again while its source exists.
    Made,
    /// Nodes hold its members alone.
    Group,
}

/// An object that has no watch of its own: most are made by the bridge, and sent in groups.
const MADE: Facts = Facts {
    name: "",
    api: "v1",
    plural: "",
    guarded: false,
    reader: Reader::Bridge,
    watch: Watch::Never,
    look_up: LookUp::Made,
};

/// An object that pods name and nodes receive as it is in the API.
const NAMED: Facts =
    Facts { guarded: true, reader: Reader::Node, watch: Watch::Object, look_up: LookUp::Object, ..MADE };

const GROUP: Facts = Facts { look_up: LookUp::Group, ..MADE };

/// Declares the kinds with their values.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident: $facts:expr,)*) => {
        /// Kind of an object that nodes receive, or of a group of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::bridge) enum Kind {
            $($(#[$about])* $kind,)*
        }

        impl Kind {
            const ALL: &[Self] = &[$(Self::$kind,)*];

            pub(in crate::bridge) const fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$kind => {
                        const FACTS: Facts = $facts;
                        &FACTS
                    })*
                }
            }
        }
    };
}

kinds! {
    Pod: Facts { name: "Pod", plural: "pods", look_up: LookUp::Pod, ..MADE },
    ConfigMap: Facts { name: "ConfigMap", plural: "configmaps", ..NAMED },
    Secret: Facts { name: "Secret", plural: "secrets", ..NAMED },
    /// A claim, sent with its volume.
    Claim: Facts {
        name: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        watch: Watch::Claim,
        ..NAMED
    },
    /// Names the OCI runtime of a pod. All nodes may read it.
    RuntimeClass: Facts {
        name: "RuntimeClass",
        api: "node.k8s.io/v1",
        plural: "runtimeclasses",
        guarded: false,
        look_up: LookUp::Use,
        ..NAMED
    },
    /// What a CSI driver expects of nodes, for those that mount its volumes. All nodes may read it.
    CsiDriver: Facts {
        name: "CSIDriver",
        api: "storage.k8s.io/v1",
        plural: "csidrivers",
        guarded: false,
        look_up: LookUp::Cluster,
        ..NAMED
    },
    /// The labels of a node for one pod, whose uid is its name.
    NodeLabels: Facts {
        name: "NodeLabels",
        reader: Reader::Node,
        watch: Watch::NodeLabels,
        look_up: LookUp::Use,
        ..MADE
    },
    /// A list of Services for the environment of pods; see [`groups`](super::groups) for its names.
    ServiceLinks: Facts { name: "ServiceLinks", reader: Reader::Node, watch: Watch::ServiceLinks, ..MADE },
    /// The Services of a namespace as nodes see them, with their endpoints other than a node's own pods; see
    /// [`groups`](super::groups) for its names.
    ServiceViews: Facts { name: "ServiceViews", watch: Watch::Services, ..GROUP },
    ServiceView: Facts { name: "ServiceView", ..MADE },
    EndpointView: Facts { name: "EndpointView", ..MADE },
    /// Marks a group of all Services of a namespace, or of the cluster, as complete: other Services do not exist.
    ServiceNamespace: Facts { name: "ServiceNamespace", ..MADE },
    /// The NetworkPolicies of a namespace as nodes see them, and the pods that are their peers.
    PolicyViews: Facts { name: "PolicyViews", watch: Watch::Policies, ..GROUP },
    PolicyView: Facts { name: "PolicyView", ..MADE },
    PolicyPeers: Facts { name: "PolicyPeers", ..MADE },
    /// The neighbours of a node; its name is that of the site.
    SiteView: Facts { name: "SiteView", watch: Watch::Site, ..MADE },
    /// The Devices that are bound to the node of this name, and their models.
    DeviceViews: Facts { name: "DeviceViews", watch: Watch::Devices, ..GROUP },
    Device: Facts { name: "Device", api: DEVICES_API, plural: "devices", look_up: LookUp::Device, ..MADE },
    DeviceModel: Facts { name: "DeviceModel", api: DEVICES_API, plural: "devicemodels", look_up: LookUp::Device, ..MADE },
    /// The rules whose source is the broker of the node of this name.
    RuleViews: Facts { name: "RuleViews", watch: Watch::Rules, ..GROUP },
    Rule: Facts { name: "Rule", ..MADE },
    /// The order of a fleet job.
    Order: Facts { name: ORDER, ..MADE },
}

impl Kind {
    /// The kind of this object; `None` if this bridge does not know it.
    pub(in crate::bridge) fn of(key: &ObjectKey) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.is(key))
    }

    pub(in crate::bridge) fn is(self, key: &ObjectKey) -> bool {
        key.kind == self.name()
    }

    pub(in crate::bridge) const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The key of an object of this kind.
    pub(in crate::bridge) fn key(self, namespace: impl Into<String>, name: impl Into<String>) -> ObjectKey {
        ObjectKey { kind: self.name().to_owned(), namespace: namespace.into(), name: name.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_kinds_differ() {
        let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            assert_eq!(Kind::of(&kind.key("ns", "x")), Some(*kind));
        }
        assert_eq!(Kind::of(&ObjectKey { kind: "Node".into(), namespace: String::new(), name: "x".into() }), None);
    }

    #[test]
    fn all_that_nodes_hold_can_be_withdrawn() {
        let held = |kind: &&Kind| kind.facts().look_up != LookUp::Group;
        let groups: Vec<&str> = Kind::ALL.iter().filter(|kind| !held(kind)).map(|kind| kind.name()).collect();
        assert_eq!(groups, ["ServiceViews", "PolicyViews", "DeviceViews", "RuleViews"]);
        for kind in Kind::ALL.iter().filter(held) {
            let Facts { plural, look_up, .. } = kind.facts();
            let by_path = [LookUp::Pod, LookUp::Object, LookUp::Cluster, LookUp::Device].contains(look_up);
            assert!(!by_path || !plural.is_empty(), "{kind:?} is looked up by a path");
        }
    }

    #[test]
    fn guarded_objects_are_read_in_the_name_of_a_node() {
        for kind in Kind::ALL.iter().filter(|kind| kind.facts().guarded) {
            let facts = kind.facts();
            assert!(facts.reader == Reader::Node && !facts.plural.is_empty(), "{kind:?}");
        }
    }
}
