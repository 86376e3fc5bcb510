//! A pod as the controllers use it, with its state: whether it counts, is ready, is available.

use std::time::Duration;

use apimachinery::typed::list;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{self as core, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::annotations;
use super::now::Now;
use super::store::Cached;

/// A pod of which only this is kept: there may be thousands.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Pod {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PodStatus,
    /// Monotonic time at which this program saw that it is ready.
    #[serde(skip)]
    ready_seen: Option<Duration>,
    /// When this program saw that it has ended or is to end, by the same clock.
    #[serde(skip)]
    ended_seen: Option<Duration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) node_name: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) subdomain: Option<String>,
    #[serde(deserialize_with = "list")]
    pub(crate) containers: Vec<Container>,
    #[serde(deserialize_with = "list")]
    pub(crate) init_containers: Vec<Container>,
    #[serde(rename = "volumes", deserialize_with = "claims")]
    pub(crate) claims: Claims,
    /// The node to which its affinity ties it by name.
    #[serde(rename = "affinity", deserialize_with = "pinned")]
    pub(crate) pinned_to: Option<String>,
}

/// The claims of a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    /// The names of those that it uses; of its ephemeral volumes from [`Pod::strip`] on.
    pub(crate) all: Vec<String>,
    /// Its ephemeral volumes: each gets a claim of its own.
    pub(crate) ephemeral: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) restart_policy: Option<String>,
    /// Those that have a name.
    #[serde(deserialize_with = "named_ports")]
    pub(crate) ports: Vec<NamedPort>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NamedPort {
    pub(crate) name: String,
    pub(crate) number: i32,
    protocol: Option<String>,
}

impl NamedPort {
    pub(crate) fn protocol(&self) -> &str {
        self.protocol.as_deref().unwrap_or("TCP")
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: Option<String>,
    reason: Option<String>,
    #[serde(rename = "podIP")]
    ip: Option<String>,
    #[serde(rename = "podIPs", deserialize_with = "list")]
    ips: Vec<core::PodIP>,
    #[serde(deserialize_with = "list")]
    pub(crate) conditions: Vec<PodCondition>,
    #[serde(deserialize_with = "list")]
    pub(crate) container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "list")]
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
}

impl PodStatus {
    /// Its addresses, as the node wrote them.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        let one = self.ip.as_deref().filter(|_| self.ips.is_empty());
        self.ips.iter().map(|one| one.ip.as_str()).chain(one)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    pub(crate) restart_count: i32,
    pub(crate) state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) finished_at: Option<Time>,
}

apimachinery::read_as!(Pod, core::Pod);

impl Cached for Pod {
    const BY_LABELS: bool = true;

    fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    fn claims(&self) -> &[String] {
        &self.spec.claims.all
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn seen(&mut self, before: Option<&Self>, now: Now) {
        self.strip();
        let known = before.and_then(|before| before.ready_seen);
        self.ready_seen = self.is_ready().then(|| known.unwrap_or(now.passed));
        let known = before.and_then(|before| before.ended_seen);
        self.ended_seen = (!self.is_active()).then(|| known.unwrap_or(now.passed));
    }
}

impl Pod {
    /// Removes the annotations that no controller reads, and names the claims of ephemeral volumes.
    pub(crate) fn strip(&mut self) {
        annotations::keep(&mut self.metadata, annotations::OF_PODS);
        let own: Vec<String> = self.spec.claims.ephemeral.iter().map(|volume| self.claim_of(volume)).collect();
        let all = &mut self.spec.claims.all;
        own.into_iter().for_each(|claim| {
            if !all.contains(&claim) {
                all.push(claim);
            }
        });
    }

    /// The name of the claim of an ephemeral volume (K8s component-helpers/storage/ephemeral).
    pub(crate) fn claim_of(&self, volume: &str) -> String {
        format!("{}-{volume}", self.metadata.name.as_deref().unwrap_or_default())
    }

    /// Whether its node made it up.
    pub(crate) fn is_mirror(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::MIRROR))
    }
}

/// The named ports of a container.
fn named_ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NamedPort>, D::Error> {
    let ports: Vec<core::ContainerPort> = list(deserializer)?;
    let named = ports.into_iter().filter_map(|port| {
        let name = port.name.filter(|name| !name.is_empty())?;
        Some(NamedPort { name, number: port.container_port, protocol: port.protocol })
    });
    Ok(named.collect())
}

/// The claims that volumes name, and the ephemeral volumes.
fn claims<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Claims, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Volume {
        #[serde(default)]
        name: String,
        persistent_volume_claim: Option<Claim>,
        ephemeral: Option<IgnoredAny>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Claim {
        claim_name: String,
    }
    let volumes: Vec<Volume> = list(deserializer)?;
    let mut claims = Claims::default();
    for volume in volumes {
        if volume.ephemeral.is_some() {
            claims.ephemeral.push(volume.name);
        } else if let Some(claim) = volume.persistent_volume_claim {
            claims.all.push(claim.claim_name);
        }
    }
    Ok(claims)
}

/// The one node that a required node affinity names (K8s pkg/controller/daemon/util `GetTargetNodeName`).
fn pinned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let affinity: Option<core::Affinity> = Option::deserialize(deserializer)?;
    let required = affinity.and_then(|affinity| affinity.node_affinity);
    let required = required.and_then(|node| node.required_during_scheduling_ignored_during_execution);
    let terms = required.map(|required| required.node_selector_terms).unwrap_or_default();
    let fields = terms.into_iter().flat_map(|term| term.match_fields.unwrap_or_default());
    let named = fields.into_iter().find(|field| field.key == "metadata.name" && field.operator == "In");
    let mut names = named.and_then(|field| field.values).unwrap_or_default();
    Ok(if names.len() == 1 { names.pop() } else { None })
}

impl Pod {
    /// The node where it is, or will be once it is bound.
    pub(crate) fn target_node(&self) -> Option<&str> {
        let bound = self.spec.node_name.as_deref().filter(|name| !name.is_empty());
        bound.or(self.spec.pinned_to.as_deref())
    }

    pub(crate) fn phase(&self) -> &str {
        self.status.phase.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it has terminated.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Its node ran short, and ended it.
    pub(crate) fn is_evicted(&self) -> bool {
        self.phase() == "Failed" && self.status.reason.as_deref() == Some("Evicted")
    }

    /// It counts as one of the pods that a controller wants (K8s `IsPodActive`).
    pub(crate) fn is_active(&self) -> bool {
        !self.is_terminal() && !self.is_deleting()
    }

    /// It is on its way out (K8s `IsPodTerminating`).
    pub(crate) fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.is_deleting()
    }

    /// When this program saw that it has ended or is to end.
    pub(crate) fn ended_at(&self) -> Option<Duration> {
        self.ended_seen
    }

    /// When this program saw that it is ready.
    pub(crate) fn ready_at(&self) -> Option<Duration> {
        self.ready_seen
    }

    /// The condition `Ready`, if it is true.
    fn ready_condition(&self) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|one| one.type_ == "Ready" && one.status == "True")
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready_condition().is_some()
    }

    /// Time of the last change of its readiness, according to its node.
    pub(crate) fn ready_changed(&self) -> Option<Timestamp> {
        let ready = self.status.conditions.iter().find(|one| one.type_ == "Ready")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    }

    /// How long it has been ready, if it is.
    pub(crate) fn ready_for(&self, now: Now) -> Option<Duration> {
        let told = self.ready_condition()?.last_transition_time.as_ref().map(|time| time.0);
        now.since(told, self.ready_seen)
    }

    /// How long it still has to be ready to be available (K8s `IsPodAvailable`): zero once it is, None while it is not
    /// ready.
    pub(crate) fn available_in(&self, min_ready_seconds: i32, now: Now) -> Option<Duration> {
        self.ready_condition()?;
        let Ok(wanted @ 1..) = u64::try_from(min_ready_seconds) else { return Some(Duration::ZERO) };
        Some(Duration::from_secs(wanted).saturating_sub(self.ready_for(now).unwrap_or_default()))
    }

    pub(crate) fn is_available(&self, min_ready_seconds: i32, now: Now) -> bool {
        self.available_in(min_ready_seconds, now).is_some_and(|wait| wait.is_zero())
    }

    /// How long ago it ended, as far as it has (K8s pkg/controller/job/backoff_utils.go `getFinishedTime`).
    pub(crate) fn ended_for(&self, now: Now) -> Option<Duration> {
        let seen = self.ended_seen?;
        let told = self.containers_ended().or_else(|| self.unready_since()).or_else(|| self.deletion_asked());
        now.since(told, Some(seen))
    }

    /// When the last of its containers and sidecars ended, if all of them have.
    fn containers_ended(&self) -> Option<Timestamp> {
        let ended =
            |status: &ContainerStatus| status.state.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0);
        let sidecars = self.status.init_container_statuses.iter().filter(|status| self.is_sidecar(&status.name));
        let ends: Option<Vec<_>> = self.status.container_statuses.iter().chain(sidecars).map(ended).collect();
        ends?.into_iter().max()
    }

    fn unready_since(&self) -> Option<Timestamp> {
        let mut conditions = self.status.conditions.iter();
        let unready = conditions.find(|one| one.type_ == "Ready" && one.status == "False")?;
        unready.last_transition_time.as_ref().map(|time| time.0)
    }

    fn deletion_asked(&self) -> Option<Timestamp> {
        let due = self.metadata.deletion_timestamp.as_ref()?.0;
        let grace = self.metadata.deletion_grace_period_seconds.unwrap_or_default();
        due.checked_sub(SignedDuration::from_secs(grace)).ok()
    }

    fn is_sidecar(&self, name: &str) -> bool {
        let named = self.spec.init_containers.iter().find(|container| container.name == name);
        named.is_some_and(|container| container.restart_policy.as_deref() == Some("Always"))
    }

    /// The most restarts of one of its containers, and of one of its sidecars.
    pub(crate) fn restarts(&self) -> (i32, i32) {
        let most = |statuses: &mut dyn Iterator<Item = &ContainerStatus>| {
            statuses.map(|status| status.restart_count).max().unwrap_or_default()
        };
        let mut sidecars = self.status.init_container_statuses.iter().filter(|status| self.is_sidecar(&status.name));
        (most(&mut self.status.container_statuses.iter()), most(&mut sidecars))
    }
}
