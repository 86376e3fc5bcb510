//! Mounts and block devices: where a container sees the pod's volumes.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::volume::descending_path;
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{flag, items, present, text};

/// `volumeMounts` and `volumeDevices` of a container.
pub(crate) fn mounts(errors: &mut Errors, path: &str, container: &Value, volumes: &HashMap<&str, &Value>) {
    let at = format!("{path}.volumeMounts");
    let devices = items(container, "volumeDevices");
    let device_names: HashSet<&str> = devices.iter().map(|d| text(d, "name")).collect();
    let device_paths: HashSet<&str> = devices.iter().map(|d| text(d, "devicePath")).collect();
    let mut seen = HashSet::new();
    for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
        let here = format!("{at}[{i}]");
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{here}.name"), ""));
        }
        if !volumes.contains_key(name) {
            errors.push(FieldError::not_found(format!("{here}.name"), &name.into()));
        }
        if target.is_empty() {
            errors.push(FieldError::required(format!("{here}.mountPath"), ""));
        }
        if !seen.insert(target) {
            errors.push(FieldError::invalid(format!("{here}.mountPath"), &target.into(), "must be unique"));
        }
        if device_names.contains(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid(format!("{here}.name"), &name.into(), detail));
        }
        if device_paths.contains(target) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(format!("{here}.mountPath"), &target.into(), detail));
        }
        sub_paths(errors, &at, &here, mount);
        propagation(errors, &at, mount, flag(&container["securityContext"], "privileged"));
    }
    block_devices(errors, path, container, volumes);
}

/// The API server reports these on the list, not on the element.
fn sub_paths(errors: &mut Errors, list: &str, here: &str, mount: &Value) {
    let (plain, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !plain.is_empty() {
        descending_path(errors, &format!("{list}.subPath"), plain);
    }
    if !expression.is_empty() {
        if !plain.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(format!("{here}.subPathExpr"), &expression.into(), detail));
        }
        descending_path(errors, &format!("{list}.subPathExpr"), expression);
    }
}

fn propagation(errors: &mut Errors, list: &str, mount: &Value, privileged: bool) {
    let mode = present(mount, "mountPropagation").and_then(Value::as_str);
    if let Some(mode) = mode {
        const MODES: &[&str] = &["Bidirectional", "HostToContainer", "None"];
        let path = format!("{list}.mountPropagation");
        if !MODES.contains(&mode) {
            errors.push(FieldError::not_supported(path.clone(), &mode.into(), MODES));
        }
        if mode == "Bidirectional" && !privileged {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    if let Some(recursive) = present(mount, "recursiveReadOnly").and_then(Value::as_str) {
        let path = format!("{list}.recursiveReadOnly");
        match recursive {
            "Disabled" => {}
            "Enabled" | "IfPossible" => {
                if !flag(mount, "readOnly") {
                    errors.push(FieldError::forbidden(path.clone(), "may only be specified when readOnly is true"));
                }
                if mode.is_some_and(|m| m != "None") {
                    let detail = "may only be specified when mountPropagation is None or not specified";
                    errors.push(FieldError::forbidden(path, detail));
                }
            }
            other => {
                let supported = &["Disabled", "Enabled", "IfPossible"];
                errors.push(FieldError::not_supported(path, &other.into(), supported));
            }
        }
    }
}

fn block_devices(errors: &mut Errors, path: &str, container: &Value, volumes: &HashMap<&str, &Value>) {
    for (i, device) in items(container, "volumeDevices").iter().enumerate() {
        let here = format!("{path}.volumeDevices[{i}]");
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{here}.name"), ""));
        }
        match volumes.get(name) {
            Some(v) if present(v, "persistentVolumeClaim").or(present(v, "ephemeral")).is_none() => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(format!("{here}.name"), &name.into(), detail));
            }
            Some(_) => {}
            None => errors.push(FieldError::not_found(format!("{here}.name"), &name.into())),
        }
        if target.is_empty() {
            errors.push(FieldError::required(format!("{here}.devicePath"), ""));
        }
    }
}
