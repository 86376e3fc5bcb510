//! Workloads and revisions as stored here: without their templates. A template may have a megabyte of text, which is
//! fifty as a tree, and most objects are processed a thousand times before their template is used. It is read when
//! needed ([`super::held`]).

use std::ops::{Deref, DerefMut};

use apimachinery::typed;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1::{self as core, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::annotations;
use super::digest::Digest;
use super::store::Cached;
use super::toleration::spec_on_nodes;

/// The label that distinguishes the pods of a Deployment's templates.
pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";

/// An object whose template is known by its digest.
pub(crate) trait Templated {
    /// `None` if it has no readable template.
    fn digest(&self) -> Option<Digest>;
}

/// Takes a template out of an object, except for the parts that are always needed: its labels, and the restart policy.
pub(super) fn take(template: &mut PodTemplateSpec) -> PodTemplateSpec {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    let restart_policy = template.spec.as_ref().and_then(|spec| spec.restart_policy.clone());
    let rest = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels, ..ObjectMeta::default() }),
        spec: Some(PodSpec { restart_policy, ..PodSpec::default() }),
    };
    std::mem::replace(template, rest)
}

/// Common code of all of them: `$kept` is created from `$full`, and contains it, without its template, as its `object`.
macro_rules! kept {
    ($kept:ident, $full:ty) => {
        impl<'de> Deserialize<'de> for $kept {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$full>::deserialize(deserializer).map(Self::from)
            }
        }

        apimachinery::read_as!($kept, $full);

        impl Deref for $kept {
            type Target = $full;

            fn deref(&self) -> &$full {
                &self.object
            }
        }

        impl DerefMut for $kept {
            fn deref_mut(&mut self) -> &mut $full {
                &mut self.object
            }
        }

        impl Cached for $kept {
            fn meta(&self) -> &ObjectMeta {
                &self.object.metadata
            }
        }

        impl Templated for $kept {
            fn digest(&self) -> Option<Digest> {
                self.digest
            }
        }
    };
}

/// A workload: where its template is, the label by which templates may differ that are the same, and which annotations are kept,
/// if not all.
macro_rules! workload {
    ($kept:ident, $full:ty, $template:expr, $ignored:expr, $annotations:expr) => {
        #[derive(Debug, Clone, Default)]
        pub(crate) struct $kept {
            object: $full,
            digest: Option<Digest>,
        }

        impl From<$full> for $kept {
            fn from(mut object: $full) -> Self {
                let template: fn(&mut $full) -> Option<&mut PodTemplateSpec> = $template;
                let taken = template(&mut object).map(take);
                let kept: Option<&[&str]> = $annotations;
                if let Some(names) = kept {
                    annotations::keep(&mut object.metadata, names);
                }
                Self { digest: taken.map(|taken| Digest::of(&taken, $ignored)), object }
            }
        }

        kept!($kept, $full);
    };
}

workload!(Deployment, apps::Deployment, |one| Some(&mut one.spec.as_mut()?.template), Some(TEMPLATE_HASH), None);
workload!(ReplicaSet, apps::ReplicaSet, |one| one.spec.as_mut()?.template.as_mut(), Some(TEMPLATE_HASH), None);
workload!(
    ReplicationController,
    core::ReplicationController,
    |one| one.spec.as_mut()?.template.as_mut(),
    None,
    Some(&[])
);

/// A StatefulSet, and the names of the claims of each of its pods.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatefulSet {
    object: apps::StatefulSet,
    digest: Option<Digest>,
    claims: Vec<Box<str>>,
}

impl From<apps::StatefulSet> for StatefulSet {
    fn from(mut object: apps::StatefulSet) -> Self {
        let taken = object.spec.as_mut().map(|spec| take(&mut spec.template));
        annotations::keep(&mut object.metadata, &[]);
        let claims = object.spec.as_mut().and_then(|spec| spec.volume_claim_templates.take());
        let names = claims.into_iter().flatten().map(|claim| claim.metadata.name.unwrap_or_default().into_boxed_str());
        Self { digest: taken.map(|taken| Digest::of(&taken, None)), claims: names.collect(), object }
    }
}

impl StatefulSet {
    /// The names of the templates of its claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().map(|name| &**name)
    }
}

kept!(StatefulSet, apps::StatefulSet);

/// A DaemonSet, and on which nodes its pods belong.
#[derive(Debug, Clone, Default)]
pub(crate) struct DaemonSet {
    object: apps::DaemonSet,
    digest: Option<Digest>,
    /// Tolerations as text: there may be thousands.
    on_nodes: Box<str>,
}

impl From<apps::DaemonSet> for DaemonSet {
    fn from(mut object: apps::DaemonSet) -> Self {
        let taken = object.spec.as_mut().map(|spec| take(&mut spec.template));
        annotations::keep(&mut object.metadata, annotations::OF_DAEMON_SETS);
        let on_nodes = spec_on_nodes(taken.as_ref().and_then(|taken| taken.spec.as_ref())).into();
        Self { digest: taken.map(|taken| Digest::of(&taken, None)), on_nodes, object }
    }
}

impl DaemonSet {
    /// The part of the spec of its pods by which nodes are chosen.
    pub(super) fn on_nodes(&self) -> serde_json::Value {
        serde_json::from_str(&self.on_nodes).unwrap_or_default()
    }
}

kept!(DaemonSet, apps::DaemonSet);

/// A revision of a template.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControllerRevision {
    object: apps::ControllerRevision,
    digest: Option<Digest>,
}

impl From<apps::ControllerRevision> for ControllerRevision {
    fn from(mut object: apps::ControllerRevision) -> Self {
        annotations::keep(&mut object.metadata, &[]);
        let data = object.data.take();
        let template = data.as_ref().and_then(|data| data.0.get("spec")?.get("template"));
        let template = template.filter(|template| template.is_object());
        let read: Option<PodTemplateSpec> = template.and_then(|template| typed::read(template).ok());
        Self { digest: read.map(|template| Digest::of(&template, None)), object }
    }
}

kept!(ControllerRevision, apps::ControllerRevision);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn template() -> Value {
        json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "x".repeat(100_000)}},
            "spec": {"restartPolicy": "Always", "nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        })
    }

    fn spec() -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"selector": {}, "template": template()}})
    }

    #[test]
    fn of_a_template_labels_and_a_digest_are_kept() {
        let deployment: Deployment = typed::read(&spec()).unwrap();
        let kept = deployment.spec.as_ref().unwrap().template.clone();
        assert_eq!(kept.metadata.as_ref().unwrap().labels.as_ref().unwrap()["a"], "b");
        assert!(kept.metadata.unwrap().annotations.is_none());
        let kept = kept.spec.unwrap();
        assert_eq!((kept.restart_policy.as_deref(), kept.containers.len()), (Some("Always"), 0));
        let mut set = spec();
        set["spec"]["template"]["metadata"]["labels"][TEMPLATE_HASH] = "x".into();
        let set: ReplicaSet = typed::read(&set).unwrap();
        assert_eq!(set.digest(), deployment.digest(), "its ReplicaSet has one label more");
        let none: ReplicaSet = typed::read(&json!({"metadata": {}, "spec": {"selector": {}}})).unwrap();
        assert!(none.digest().is_none());
        let daemons: DaemonSet = typed::read(&spec()).unwrap();
        assert_eq!(daemons.on_nodes()["nodeName"], "n");
        let controller: ReplicationController = typed::read(&spec()).unwrap();
        assert!(controller.digest().is_some());
    }

    #[test]
    fn of_claims_a_stateful_set_keeps_the_names() {
        let mut set = spec();
        set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}, {"metadata": {}}]);
        let set: StatefulSet = typed::read(&set).unwrap();
        assert_eq!(set.claims().collect::<Vec<_>>(), ["data", ""]);
        assert!(set.spec.as_ref().unwrap().volume_claim_templates.is_none());
    }

    #[test]
    fn revision_has_the_digest_of_its_template() {
        let set: StatefulSet = typed::read(&spec()).unwrap();
        let revision = |data: Value| -> ControllerRevision {
            let metadata = json!({"annotations": {"a": "b"}});
            typed::read(&json!({"metadata": metadata, "revision": 1, "data": data})).unwrap()
        };
        let mut data = template();
        data["$patch"] = "replace".into();
        let same = revision(json!({"spec": {"template": data}}));
        assert_eq!(same.digest(), set.digest());
        assert_eq!((&same.data, &same.metadata.annotations), (&None, &None), "and nothing else of it");
        for other in [json!({}), json!({"spec": {"template": []}}), json!({"spec": {"template": {"spec": 1}}})] {
            assert!(revision(other.clone()).digest().is_none(), "{other}");
        }
    }
}
