//! Volumes of CSI drivers: what is known of one in a pod, and the order to mount it, or what that waits for. Pure but for
//! the object lookup. The helper `edge-plugins` mounts them.

use k8s_openapi::api::core::v1::{CSIVolumeSource, ServiceAccountTokenProjection};
use sampan_plugins_control::{CsiMount, CsiPod};
use serde_json::{Map, Value, json};

use super::context::{ObjectLookup, VolumeContext};
use super::error::{ATTACH, MAP, SET_UP, VolumeError};
use crate::pod::quantity;
use crate::pod::spec::{name, uid};
use crate::pod::token::{self, Wanted};
use crate::store::secrets;

/// Kind for lookups.
const DRIVER: &str = "CSIDriver";

/// A volume of a CSI driver in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiVolume {
    /// Name in the pod.
    pub name: String,
    /// Name of the PersistentVolume; of an inline volume, its name in the pod. Folders and messages have it.
    pub folder: String,
    pub block: bool,
    pub read_only: bool,
    inline: bool,
    /// `csi` of the PersistentVolume, or of the pod's volume.
    source: Value,
    /// `spec` of the PersistentVolume; null for an inline volume.
    spec: Value,
    /// `status` of the VolumeAttachment.
    attachment: Value,
    /// `spec` of the CSIDriver object.
    driver: Value,
    /// Bytes to which its file system is to grow.
    grows: Option<u64>,
}

impl CsiVolume {
    pub(super) fn inline(ctx: &VolumeContext<'_>, name: &str, source: &CSIVolumeSource) -> Self {
        Self {
            name: name.to_owned(),
            folder: name.to_owned(),
            block: false,
            read_only: source.read_only.unwrap_or(false),
            inline: true,
            source: serde_json::to_value(source).unwrap_or_default(),
            spec: Value::Null,
            attachment: Value::Null,
            driver: driver_spec(ctx.objects, &source.driver),
            grows: None,
        }
    }

    /// A PersistentVolume; `claimed` is `status` of its claim. As in the kubelet, `readOnly` of its source is for its
    /// attachment alone (K8s pkg/volume/csi/csi_util.go, `getReadOnlyFromSpec`).
    pub(super) fn bound(
        ctx: &VolumeContext<'_>,
        (name, folder): (&str, &str),
        (spec, attachment, claimed): (Value, Value, &Value),
        block: bool,
        read_only: bool,
    ) -> Self {
        let source = spec["csi"].clone();
        let driver = driver_spec(ctx.objects, &text(&source["driver"]));
        let grows = storage(&spec).filter(|bytes| storage(claimed).is_some_and(|before| before < *bytes));
        let (name, folder) = (name.to_owned(), folder.to_owned());
        Self { name, folder, block, read_only, inline: false, source, spec, attachment, driver, grows }
    }

    /// Name in `status.volumesInUse` of the Node, which holds back a detachment. None for a volume that is not attached.
    pub fn in_use(&self) -> Option<String> {
        let name = || ["kubernetes.io/csi/", &self.driver_name(), "^", &text(&self.source["volumeHandle"])].concat();
        self.is_attachable().then(name)
    }

    fn driver_name(&self) -> String {
        text(&self.source["driver"])
    }

    /// Without a CSIDriver object, too (K8s pkg/volume/csi/csi_plugin.go, `skipAttach`).
    fn is_attachable(&self) -> bool {
        !self.inline && self.driver["attachRequired"] != false
    }

    pub(super) fn not_supported(&self) -> VolumeError {
        let source = if self.inline { "csi (" } else { "persistentVolumeClaim of a csi (" };
        let end = if self.inline { ")" } else { ") volume" };
        let source_type = [source, &self.driver_name(), end].concat();
        VolumeError::NotSupported { volume: self.name.clone(), source_type }
    }

    /// The kubelet's name of the step that mounts it.
    pub fn verb(&self) -> &'static str {
        if self.block { MAP } else { SET_UP }
    }

    fn failed(&self, problem: String) -> VolumeError {
        VolumeError::Csi { verb: self.verb(), volume: self.folder.clone(), problem }
    }

    /// The order to mount it.
    pub(super) fn order(&self, ctx: &VolumeContext<'_>) -> Result<CsiMount, VolumeError> {
        self.check_mode()?;
        self.check_attached()?;
        let account = ctx.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        Ok(CsiMount {
            driver: self.driver_name(),
            handle: text(&self.source["volumeHandle"]),
            volume: self.folder.clone(),
            pod: CsiPod {
                uid: uid(ctx.pod).to_owned(),
                name: name(ctx.pod).to_owned(),
                namespace: ctx.namespace().to_owned(),
                service_account: account.unwrap_or("default").to_owned(),
            },
            source: self.source.clone(),
            inline: self.inline,
            access_modes: texts(&self.spec["accessModes"]),
            mount_options: texts(&self.spec["mountOptions"]),
            block: self.block,
            read_only: self.read_only,
            fs_group: ctx.fs_group().map(i64::from),
            fs_group_on_root_mismatch: ctx.change_policy() == Some("OnRootMismatch"),
            driver_object: self.driver.clone(),
            attachment: self.attachment.clone(),
            stage_secret: self.secret(ctx, "nodeStageSecretRef", "NodeStageSecretRef")?,
            publish_secret: self.secret(ctx, "nodePublishSecretRef", "NodePublishSecretRef")?,
            tokens: self.tokens(ctx)?,
            capacity: self.grows,
        })
    }

    /// K8s pkg/volume/csi/csi_mounter.go, `supportsVolumeLifecycleMode`.
    fn check_mode(&self) -> Result<(), VolumeError> {
        let modes = texts(&self.driver["volumeLifecycleModes"]);
        // An API server defaults an empty list to this.
        let is_supported = match self.inline {
            true => modes.iter().any(|mode| mode == "Ephemeral"),
            false => modes.is_empty() || modes.iter().any(|mode| mode == "Persistent"),
        };
        if is_supported {
            return Ok(());
        }
        let only = if self.driver.is_null() {
            "no CSIDriver object".to_owned()
        } else {
            ["only supports [\"", &modes.join("\" \""), "\"]"].concat()
        };
        let (mode, driver) = (if self.inline { "Ephemeral" } else { "Persistent" }, self.driver_name());
        Err(self.failed(format!("volume mode {mode:?} not supported by driver {driver} ({only})")))
    }

    fn check_attached(&self) -> Result<(), VolumeError> {
        if !self.is_attachable() || self.attachment["attached"] == true {
            return Ok(());
        }
        let volume = self.folder.clone();
        let problem = match self.attachment["attachError"]["message"].as_str() {
            Some(message) => message.to_owned(),
            None => "Volume not attached according to node status".to_owned(),
        };
        Err(VolumeError::Csi { verb: ATTACH, volume, problem })
    }

    /// `data` of the Secret that a field of the source names, if it names one; null otherwise. `called`: the field in
    /// messages.
    fn secret(&self, ctx: &VolumeContext<'_>, field: &str, called: &str) -> Result<Value, VolumeError> {
        let reference = &self.source[field];
        let Some(name) = reference["name"].as_str() else { return Ok(Value::Null) };
        let own = ctx.namespace();
        // A pod names Secrets of its own namespace.
        let namespace = if self.inline { own } else { reference["namespace"].as_str().unwrap_or(own) };
        let Some(mut secret) = (ctx.objects)("Secret", namespace, name) else {
            let why = format!("secrets {name:?} not found");
            return Err(self.failed(format!("fetching {called} {namespace}/{name} failed: {why}")));
        };
        if secrets::is_withheld(&secret) {
            return Err(VolumeError::Withheld { volume: self.folder.clone(), problem: secrets::withheld(name) });
        }
        Ok(secret.get_mut("data").map(Value::take).unwrap_or_default())
    }

    /// Status of each token by audience (K8s pkg/volume/csi/csi_mounter.go, `podServiceAccountTokenAttrs`).
    fn tokens(&self, ctx: &VolumeContext<'_>) -> Result<Value, VolumeError> {
        let mut all = Map::new();
        for wanted in requests(&self.driver) {
            let Some(held) = (ctx.objects)(token::KIND, uid(ctx.pod), &wanted.name()) else {
                return Err(VolumeError::MissingToken { volume: self.folder.clone() });
            };
            all.insert(wanted.audience, json!({"token": held["token"], "expirationTimestamp": held["expires"]}));
        }
        Ok(if all.is_empty() { Value::Null } else { Value::Object(all) })
    }
}

/// `spec` of the CSIDriver object; null without one.
pub(super) fn driver_spec(objects: ObjectLookup<'_>, driver: &str) -> Value {
    objects(DRIVER, "", driver).and_then(|mut found| found.get_mut("spec").map(Value::take)).unwrap_or_default()
}

/// Tokens that the driver with this specification asks for.
pub(super) fn requests(driver: &Value) -> Vec<Wanted> {
    let all = driver["tokenRequests"].as_array().into_iter().flatten();
    let wanted = all.map(|one| {
        Wanted::of(&ServiceAccountTokenProjection {
            audience: one["audience"].as_str().map(str::to_owned),
            expiration_seconds: one["expirationSeconds"].as_i64(),
            path: String::new(),
        })
    });
    wanted.collect()
}

/// Bytes in the `capacity` of a volume or a claim.
fn storage(of: &Value) -> Option<u64> {
    let bytes = quantity::value(of["capacity"]["storage"].as_str()?)?;
    u64::try_from(bytes).ok()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(text).collect()
}
