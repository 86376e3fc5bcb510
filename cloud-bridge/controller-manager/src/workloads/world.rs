//! State of all controllers: a store for each kind that they read. Pure; others pass events to it. Contains the only
//! table of kinds.

use std::sync::Arc;

use apimachinery::key::ObjectKey;
use apimachinery::typed::Misfit;
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::Value;

use super::batch::{CronJob, Job};
use super::held::Held;
use super::node::Node;
use super::now::Now;
use super::pod::Pod;
use super::service::Service;
use super::store::{Cached, Seen, Store};
use super::template::Template;
use super::templated::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, ReplicationController, StatefulSet};
use super::volume::Volume;
use super::volume_claim::Claim;
use crate::pods::{self, Pods};
use crate::watch;

/// A key of the controller that is named by its kind.
pub(crate) type Task = (Kind, ObjectKey);

/// What happened to an object of a kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) seen: Seen,
}

macro_rules! kinds {
    ($($kind:ident $store:ident $type:ty,)*) => {
        /// A kind that controllers read or write.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        impl Kind {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),*];

            /// Its group and version, as in `apiVersion`.
            pub(crate) fn api_version(self) -> String {
                match self {
                    $(Self::$kind => <$type as ::kube::Resource>::api_version(&()).into_owned(),)*
                }
            }

            /// Its name, as in `kind`.
            pub(crate) fn name(self) -> String {
                match self {
                    $(Self::$kind => <$type as ::kube::Resource>::kind(&()).into_owned(),)*
                }
            }

            /// Where the API has its objects.
            pub(crate) fn url(self, namespace: &str) -> String {
                let namespace = (!namespace.is_empty()).then_some(namespace);
                match self {
                    $(Self::$kind => <$type as ::kube::Resource>::url_path(&(), namespace),)*
                }
            }
        }

        /// An event of a watch of any of the kinds.
        #[derive(Debug)]
        #[expect(clippy::large_enum_variant, reason = "there is one at a time, which is taken in at once")]
        pub(crate) enum Watched {
            $($kind(Event<$type>),)*
        }

        impl Watched {
            /// An event of this kind, with its object read.
            pub(crate) fn read(kind: Kind, event: Event<Value>) -> Result<Self, Misfit> {
                Ok(match kind {
                    $(Kind::$kind => Self::$kind(watch::typed(event)?),)*
                })
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct World {
            $(pub(crate) $store: Store<$type>,)*
            /// The template that was read for the key at hand.
            held: Option<Held>,
        }

        impl World {
            /// Whether all of it is known. With incomplete knowledge no step is safe.
            pub(crate) fn is_complete(&self) -> bool {
                $(self.$store.is_complete())&&*
            }

            /// Handles an event of a watch, or the result of a write.
            pub(crate) fn watched(&mut self, watched: Watched, now: Now) -> Vec<Change> {
                match watched {
                    $(Watched::$kind(event) => {
                        let seen = self.$store.watched(event, now).into_iter();
                        seen.map(|seen| Change { kind: Kind::$kind, seen }).collect()
                    })*
                }
            }

            /// A write removed the object with this uid.
            pub(crate) fn removed(&mut self, kind: Kind, key: &ObjectKey, uid: &str) -> Option<Change> {
                match kind {
                    $(Kind::$kind => Some(Change { kind, seen: self.$store.remove(key, uid)? }),)*
                }
            }
        }

        /// What happens to the objects of all kinds, in one stream.
        pub(crate) fn watches(
            client: &::kube::Client,
            pods: &Pods,
        ) -> impl ::futures::Stream<Item = Result<Watched, (Kind, String)>> + use<> {
            use ::futures::StreamExt as _;
            let mut all = ::futures::stream::SelectAll::new();
            all.push(pods.follow().map(of_pod).boxed());
            for (kind, resource) in [$((Kind::$kind, ::kube::api::ApiResource::erase::<$type>(&()))),*] {
                if kind == Kind::Pod {
                    continue;
                }
                let api = ::kube::Api::all_with(client.clone(), &resource);
                let one = watch::watch(api, move |event| Watched::read(kind, event));
                all.push(one.map(move |event| event.map_err(|error| (kind, error))).boxed());
            }
            all
        }
    };
}

kinds! {
    Pod pods Pod,
    ReplicaSet replica_sets ReplicaSet,
    Deployment deployments Deployment,
    ReplicationController replication_controllers ReplicationController,
    Node nodes Node,
    ControllerRevision controller_revisions ControllerRevision,
    DaemonSet daemon_sets DaemonSet,
    PersistentVolumeClaim claims Claim,
    PersistentVolume volumes Volume,
    StorageClass storage_classes StorageClass,
    StatefulSet stateful_sets StatefulSet,
    PodDisruptionBudget disruption_budgets PodDisruptionBudget,
    Job jobs Job,
    CronJob cron_jobs CronJob,
    Service services Service,
    EndpointSlice endpoint_slices EndpointSlice,
    Endpoints endpoints Endpoints,
}

impl World {
    /// The template of an object in the state that is known, if it was read for the key at hand.
    pub(crate) fn template(&self, kind: Kind, meta: &ObjectMeta) -> Option<&Template> {
        self.held.as_ref()?.template_of(kind, meta)
    }

    /// Keeps the template of an object that was read, in the place of the one before. Whether it has one.
    pub(crate) fn hold(&mut self, held: Option<Held>) -> bool {
        self.held = held;
        self.held.is_some()
    }

    /// The turn of the key has ended.
    pub(crate) fn let_go(&mut self) {
        self.held = None;
    }
}

/// An event of the watch that all controllers share.
fn of_pod(event: Event<Arc<pods::Pod>>) -> Result<Watched, (Kind, String)> {
    let own = watch::map(event, |pod| Ok(Arc::unwrap_or_clone(pod).working));
    own.map(Watched::Pod).map_err(|misfit| (Kind::Pod, misfit.to_string()))
}

macro_rules! cached {
    ($($type:ty),*) => {$(
        impl Cached for $type {
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
        }
    )*};
}

cached!(Claim, Volume, StorageClass, PodDisruptionBudget, Endpoints);

impl Cached for Service {
    /// There may be a thousand in a namespace, and each change of a pod looks for those that select it.
    fn selected_label(&self) -> Option<(&str, &str)> {
        let (name, value) = self.selector().filter(|_| self.selects_pods())?.first_key_value()?;
        Some((name.as_str(), value.as_str()))
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Cached for EndpointSlice {
    /// Indexed by the Service that they name.
    const BY_LABELS: bool = true;

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}
