//! persistentVolumeClaim and ephemeral: a volume of this node (PersistentVolume types `local` and `hostPath`) or of a CSI
//! driver that a claim is bound to. Decides from the claim as the bridge sends it, with the volume's spec inside; binding
//! is the cluster's affair.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, LocalVolumeSource, NodeSelectorRequirement, NodeSelectorTerm, Pod, Volume as PodVolume,
    VolumeNodeAffinity,
};
use serde::Deserialize;
use serde_json::Value;

use super::context::VolumeContext;
use super::csi::CsiVolume;
use super::error::VolumeError;
use crate::pod::spec::{self, containers_of, uid};

/// Path of volumes of the cluster's local provisioner (`sampan.dev/local`), on every node. A node with another root has
/// them below that.
pub const PROVISIONED: &str = "/var/lib/edge-runtime/volumes";

/// Whether this can be the name of a provisioned volume: one folder, and none that is hidden.
pub fn is_volume_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && !name.contains('/') && !name.contains('\0')
}

/// Kind for lookups.
pub(super) const KIND: &str = "PersistentVolumeClaim";

/// What the bridge sends.
#[derive(Debug, Deserialize)]
struct Claim {
    #[serde(default)]
    metadata: Meta,
    spec: Option<ClaimSpec>,
    /// `None` until it is bound.
    #[serde(default)]
    volume: Option<Volume>,
    /// `status` of the VolumeAttachment of a CSI volume to this node.
    #[serde(default)]
    attachment: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Debug, Default, Deserialize)]
struct Meta {
    #[serde(default)]
    uid: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSpec {
    volume_mode: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Volume {
    name: String,
    spec: Option<Value>,
}

/// What matters here of a PersistentVolumeSpec: code for all its thirty sources would be 1 % of the binary.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeSpec {
    claim_ref: Option<Meta>,
    volume_mode: Option<String>,
    node_affinity: Option<VolumeNodeAffinity>,
    local: Option<LocalVolumeSource>,
    host_path: Option<HostPathVolumeSource>,
}

/// A folder or file of this node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) path: PathBuf,
    /// The `type` of a hostPath; `None` for a local volume, which must exist.
    pub(super) host_path_type: Option<String>,
    /// A volume of the node's own: it is made when the first pod needs it.
    pub(super) provisioned: bool,
    pub(super) read_only: bool,
}

/// What a claim is bound to.
pub(super) enum Found {
    Here(Bound),
    Csi(Box<CsiVolume>),
}

/// A claim that a pod names, or has by its template.
pub(super) struct Reference {
    pub(super) name: String,
    read_only: bool,
    /// The claim is the pod's own.
    own: bool,
}

impl Reference {
    /// Name of the claim of a template: K8s staging/src/k8s.io/component-helpers/storage/ephemeral, `VolumeClaimName`.
    pub(super) fn of(pod: &Pod, volume: &PodVolume) -> Option<Self> {
        if let Some(source) = &volume.persistent_volume_claim {
            let read_only = source.read_only.unwrap_or(false);
            return Some(Self { name: source.claim_name.clone(), read_only, own: false });
        }
        volume.ephemeral.as_ref()?;
        Some(Self { name: [spec::name(pod), "-", &volume.name].concat(), read_only: false, own: true })
    }
}

pub(super) fn find(ctx: &VolumeContext<'_>, volume: &str, source: &Reference) -> Result<Found, VolumeError> {
    let (namespace, name) = (ctx.namespace(), &source.name);
    // Texts of K8s pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go.
    let waiting = |why: &str| VolumeError::Claim {
        volume: volume.to_string(),
        problem: format!("error processing PVC {namespace}/{name}: {why}"),
    };
    let Some(found) = (ctx.objects)(KIND, namespace, name) else {
        let why = format!("failed to fetch PVC from API server: persistentvolumeclaims {name:?} not found");
        return Err(waiting(&why));
    };
    if source.own && !is_controlled_by(&found, uid(ctx.pod)) {
        let pod = spec::name(ctx.pod);
        let problem = format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)");
        return Err(VolumeError::Claim { volume: volume.to_string(), problem });
    }
    let claim: Claim = serde_json::from_value(found).map_err(|error| waiting(&error.to_string()))?;
    let Some(bound) = &claim.volume else { return Err(waiting("PVC is not bound")) };
    let spec = bound.spec.clone().map(serde_json::from_value::<VolumeSpec>).transpose();
    let spec = spec.map_err(|error| waiting(&error.to_string()))?.unwrap_or_default();
    let owner = spec.claim_ref.as_ref().map_or("", |reference| reference.uid.as_str());
    if !owner.is_empty() && owner != claim.metadata.uid {
        return Err(waiting(&format!("volume {} is bound to another claim", bound.name)));
    }
    let block = Some("Block");
    let claimed = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let is_csi = bound.spec.as_ref().is_some_and(|spec| spec["csi"].is_object());
    let is_block = claimed == block || spec.volume_mode.as_deref() == block;
    if is_block && !is_csi {
        let source_type = "persistentVolumeClaim with volumeMode Block".to_string();
        return Err(VolumeError::NotSupported { volume: volume.to_string(), source_type });
    }
    let affinity = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let here = affinity.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, ctx)));
    if !here {
        let problem = format!(
            "MountVolume.NodeAffinity check failed for volume {:?} : no matching NodeSelectorTerms",
            bound.name
        );
        return Err(VolumeError::Claim { volume: volume.to_string(), problem });
    }
    let read_only = source.read_only;
    if let Some(spec) = bound.spec.clone().filter(|_| is_csi) {
        used_as_it_is(ctx.pod, volume, is_block)?;
        let parts = (spec, claim.attachment.clone(), &claim.status);
        let csi = CsiVolume::bound(ctx, (volume, bound.name.as_str()), parts, is_block, read_only);
        return Ok(Found::Csi(Box::new(csi)));
    }
    if let Some(local) = &spec.local {
        let (path, provisioned) = match provisioned(&local.path) {
            Some(name) => (ctx.paths.volumes().join(name), true),
            None => (absolute(volume, &local.path)?, false),
        };
        return Ok(Found::Here(Bound { path, host_path_type: None, provisioned, read_only }));
    }
    if let Some(host) = &spec.host_path {
        let type_ = host.type_.clone().unwrap_or_default();
        let path = absolute(volume, &host.path)?;
        return Ok(Found::Here(Bound { path, host_path_type: Some(type_), provisioned: false, read_only }));
    }
    let source_type = format!("persistentVolumeClaim of a {} volume", kind(bound.spec.as_ref()));
    Err(VolumeError::NotSupported { volume: volume.to_string(), source_type })
}

/// The folder of a volume that the provisioner of the cluster has put on this node, by its path.
fn provisioned(path: &str) -> Option<&str> {
    let name = path.strip_prefix(PROVISIONED)?.strip_prefix('/')?;
    is_volume_name(name).then_some(name)
}

fn absolute(volume: &str, path: &str) -> Result<PathBuf, VolumeError> {
    let plain = Path::new(path);
    if plain.is_absolute() && !plain.components().any(|part| part == std::path::Component::ParentDir) {
        return Ok(plain.to_path_buf());
    }
    let problem = format!("path {path:?} of the persistent volume must be absolute and without '..'");
    Err(VolumeError::Invalid { volume: volume.to_string(), problem })
}

/// Whether the pod is the controller of the claim.
fn is_controlled_by(claim: &Value, uid: &str) -> bool {
    let mut owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["controller"] == true && owner["uid"] == uid)
}

/// Refuses a block volume in `volumeMounts`, and a file system in `volumeDevices` (K8s
/// pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go, `createVolumeSpec`).
fn used_as_it_is(pod: &Pod, volume: &str, is_block: bool) -> Result<(), VolumeError> {
    let wrong = match is_block {
        true => containers_of(pod).any(|one| one.volume_mounts.iter().flatten().any(|mount| mount.name == volume)),
        false => containers_of(pod).any(|one| one.volume_devices.iter().flatten().any(|device| device.name == volume)),
    };
    if !wrong {
        return Ok(());
    }
    let (mode, list) = if is_block { ("Block", "volumeMounts") } else { ("Filesystem", "volumeDevices") };
    let problem = format!("volume {volume} has volumeMode {mode}, but is specified in {list}");
    Err(VolumeError::Claim { volume: volume.to_string(), problem })
}

/// Name of the volume's source, as in a manifest.
fn kind(spec: Option<&Value>) -> String {
    let other = "capacity accessModes claimRef persistentVolumeReclaimPolicy storageClassName mountOptions volumeMode \
        nodeAffinity volumeAttributesClassName";
    let fields = spec.and_then(Value::as_object).into_iter().flatten();
    let sources = fields.filter(|(name, value)| !value.is_null() && !other.split(' ').any(|one| one == *name));
    sources.map(|(name, _)| name.as_str()).next().unwrap_or("unknown").to_owned()
}

/// Matches only labels that every node has by default. The cluster's scheduler has checked all others.
fn matches(term: &NodeSelectorTerm, ctx: &VolumeContext<'_>) -> bool {
    let holds = |requirement: &NodeSelectorRequirement| {
        let own = match requirement.key.as_str() {
            "kubernetes.io/hostname" | "metadata.name" => ctx.facts.node_name.as_str(),
            "kubernetes.io/os" => "linux",
            _ => return true,
        };
        let named = requirement.values.iter().flatten().any(|value| value == own);
        match requirement.operator.as_str() {
            "In" => named,
            "NotIn" => !named,
            "DoesNotExist" => false,
            _ => true,
        }
    };
    term.match_expressions.iter().flatten().all(holds) && term.match_fields.iter().flatten().all(holds)
}
