//! Which files a configMap, secret, downwardAPI or projected volume has. Pure but for the object lookup.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use serde_json::Value;

use super::context::VolumeContext;
use super::downward;
use super::error::VolumeError;
use crate::pod::local_api;
use crate::pod::token::{self, Wanted};
use crate::store::secrets;
use crate::sys::sort::sort_by;
use crate::sys::vec_map::VecMap;

/// Kubernetes' `defaultMode`.
const DEFAULT_MODE: i32 = 0o644;
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) data: Vec<u8>,
    pub(super) mode: u32,
    /// Root if `None`.
    pub(super) owner: Option<u32>,
}

/// Files by their path relative to the volume.
pub(super) type Payload = VecMap<String, File>;

/// `None` if the volume's source is not one of the four.
pub(super) fn of_volume(ctx: &VolumeContext<'_>, volume: &Volume) -> Option<Result<Payload, VolumeError>> {
    let mut collector = Collector { ctx, volume: &volume.name, mode: DEFAULT_MODE, files: Vec::new() };
    let result = if let Some(source) = &volume.config_map {
        collector.mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        collector.object("ConfigMap", &source.name, source.items.as_deref(), source.optional, false)
    } else if let Some(source) = &volume.secret {
        collector.mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let name = source.secret_name.as_deref().unwrap_or_default();
        collector.object("Secret", name, source.items.as_deref(), source.optional, false)
    } else if let Some(source) = &volume.downward_api {
        collector.mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        collector.downward(source.items.as_deref().unwrap_or_default())
    } else if let Some(source) = &volume.projected {
        collector.mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let sources = source.sources.as_deref().unwrap_or_default();
        sources.iter().try_for_each(|source| collector.projection(source, sources))
    } else {
        return None;
    };
    Some(result.map(|()| payload(collector.files)))
}

/// Of two files of one path the last one stays. A volume can have thousands, in any order: sorted first, each goes to
/// the map's end.
fn payload(mut files: Vec<(String, File)>) -> Payload {
    sort_by(&mut files, |one, other| one.0.cmp(&other.0));
    files.into_iter().collect()
}

/// Name of the volume's source as in a manifest; `None` without a source.
pub(super) fn source_type(volume: &Volume) -> Option<String> {
    let Ok(Value::Object(fields)) = serde_json::to_value(volume) else { return None };
    fields.into_iter().map(|(name, _)| name).find(|name| name != "name")
}

struct Collector<'a> {
    ctx: &'a VolumeContext<'a>,
    volume: &'a str,
    mode: i32,
    /// Files by path, as the volume names them.
    files: Vec<(String, File)>,
}

impl Collector<'_> {
    /// `all`: the sources of the volume, this one included.
    fn projection(&mut self, source: &VolumeProjection, all: &[VolumeProjection]) -> Result<(), VolumeError> {
        let is_root_ca = self.ctx.uses_local_api && local_api::is_root_ca(source, all);
        let unsupported = if let Some(source) = &source.config_map {
            return self.object("ConfigMap", &source.name, source.items.as_deref(), source.optional, is_root_ca);
        } else if let Some(source) = &source.secret {
            return self.object("Secret", &source.name, source.items.as_deref(), source.optional, false);
        } else if let Some(source) = &source.downward_api {
            return self.downward(source.items.as_deref().unwrap_or_default());
        } else if let Some(source) = &source.service_account_token {
            return self.token(source);
        } else if source.cluster_trust_bundle.is_some() {
            "projected.clusterTrustBundle"
        } else if source.pod_certificate.is_some() {
            "projected.podCertificate"
        } else {
            return Ok(());
        };
        Err(VolumeError::NotSupported { volume: self.volume.to_string(), source_type: unsupported.to_string() })
    }

    /// `is_root_ca`: the certificate of the local API is added to the cluster's.
    fn object(
        &mut self,
        kind: &'static str,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
        is_root_ca: bool,
    ) -> Result<(), VolumeError> {
        let optional = optional.unwrap_or(false);
        let namespace = self.ctx.pod.metadata.namespace.as_deref().unwrap_or("default");
        let Some(object) = (self.ctx.objects)(kind, namespace, name) else {
            if optional {
                return Ok(());
            }
            return Err(VolumeError::Missing { volume: self.volume.to_string(), kind, name: name.to_string() });
        };
        // Optional or not: it exists, and the pod would start without it.
        if secrets::is_withheld(&object) {
            return Err(VolumeError::Withheld { volume: self.volume.to_string(), problem: secrets::withheld(name) });
        }
        let mut data = self.data(kind, name, &object)?;
        if is_root_ca && let Some(trusted) = data.get_mut(local_api::ROOT_CA_KEY) {
            let own = (self.ctx.objects)(local_api::KIND, "", "");
            let missing = || VolumeError::MissingCertificate { volume: self.volume.to_string() };
            let own = own.as_ref().and_then(Value::as_str).ok_or_else(missing)?;
            trusted.extend_from_slice(if trusted.ends_with(b"\n") { b"" } else { b"\n" });
            trusted.extend_from_slice(own.as_bytes());
        }
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            return data.into_iter().try_for_each(|(key, data)| self.add(&key, data, None));
        };
        for item in items {
            match data.get_mut(&item.key) {
                // Two items may name one key.
                Some(data) => self.add(&item.path, data.clone(), item.mode)?,
                None if optional => {}
                None => {
                    let (volume, key) = (self.volume.to_string(), item.key.clone());
                    return Err(VolumeError::MissingKey { volume, kind, key });
                }
            }
        }
        Ok(())
    }

    /// All keys of a ConfigMap (`data`, `binaryData`) or Secret (`data`).
    fn data(&self, kind: &str, name: &str, object: &Value) -> Result<BTreeMap<String, Vec<u8>>, VolumeError> {
        let invalid = |key: &str, problem: &str| VolumeError::Invalid {
            volume: self.volume.to_string(),
            problem: format!("{} {name:?}: key {key:?} {problem}", kind.to_ascii_lowercase()),
        };
        let mut all = BTreeMap::new();
        for field in ["data", "binaryData"] {
            let encoded = kind == "Secret" || field == "binaryData";
            for (key, value) in object.get(field).and_then(Value::as_object).into_iter().flatten() {
                let text = value.as_str().ok_or_else(|| invalid(key, "is no string"))?;
                let bytes = match encoded {
                    true => STANDARD.decode(text).map_err(|_| invalid(key, "is not base64"))?,
                    false => text.as_bytes().to_vec(),
                };
                all.insert(key.clone(), bytes);
            }
        }
        Ok(all)
    }

    /// Closed to all but the user that every container runs as, or the pod's group
    /// (K8s pkg/volume/projected/projected.go, `collectData`).
    fn token(&mut self, source: &ServiceAccountTokenProjection) -> Result<(), VolumeError> {
        let uid = self.ctx.pod.metadata.uid.as_deref().unwrap_or_default();
        let found = (self.ctx.objects)(token::KIND, uid, &Wanted::of(source).name());
        let text = found.as_ref().and_then(|found| found.get("token")).and_then(Value::as_str);
        let missing = || VolumeError::MissingToken { volume: self.volume.to_string() };
        let data = text.ok_or_else(missing)?.as_bytes().to_vec();
        let owner = token::common_user(self.ctx.pod);
        let mode = (owner.is_some() || self.ctx.fs_group().is_some()).then_some(0o600);
        self.add(&source.path, data, mode)?;
        if let Some((_, file)) = self.files.last_mut() {
            file.owner = owner;
        }
        Ok(())
    }

    fn downward(&mut self, items: &[DownwardAPIVolumeFile]) -> Result<(), VolumeError> {
        let (pod, facts) = (self.ctx.pod, self.ctx.facts);
        for item in items {
            let value = if let Some(field) = &item.field_ref {
                downward::field_value(pod, &field.field_path, facts)
            } else if let Some(field) = &item.resource_field_ref {
                let container = field.container_name.as_deref().unwrap_or_default();
                downward::resource_value(pod, container, &field.resource, field.divisor.as_ref(), facts)
            } else {
                Ok(String::new())
            };
            let value = value.map_err(|error| self.invalid(error.to_string()))?;
            self.add(&item.path, value.into_bytes(), item.mode)?;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, data: Vec<u8>, mode: Option<i32>) -> Result<(), VolumeError> {
        let clean = clean_path(path).map_err(|problem| self.invalid(format!("invalid path {path:?}: {problem}")))?;
        let mode = u32::try_from(mode.unwrap_or(self.mode)).ok().filter(|mode| *mode <= 0o777);
        let mode = mode.ok_or_else(|| self.invalid(format!("mode of {path:?} must be 0 to 0777")))?;
        self.files.push((clean, File { data, mode, owner: None }));
        Ok(())
    }

    fn invalid(&self, problem: String) -> VolumeError {
        VolumeError::Invalid { volume: self.volume.to_string(), problem }
    }
}

/// A relative path without `..`, which nothing can lead out of the volume; the API server checks the same, but
/// static pods and a lying server do not pass it.
fn clean_path(path: &str) -> Result<String, &'static str> {
    if path.len() > MAX_PATH {
        return Err("too long");
    }
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => parts.push(name.to_str().unwrap_or_default()),
            Component::CurDir => {}
            Component::ParentDir => return Err("must not contain '..'"),
            Component::RootDir | Component::Prefix(_) => return Err("must be relative"),
        }
    }
    match parts.first() {
        None => Err("must not be empty"),
        // `..data` and the folders behind it are ours.
        Some(first) if first.starts_with("..") => Err("must not start with '..'"),
        _ if parts.iter().any(|part| part.len() > MAX_NAME || part.contains('\0')) => Err("has an impossible name"),
        _ => Ok(parts.join("/")),
    }
}

#[cfg(test)]
mod tests;
