//! Volumes of a pod.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::env;
use apimachinery::field::{Errors, FieldError, invalid_text, one_of};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;
use apimachinery::quantity::Quantity;

const MODE_DETAIL: &str = "must be a number between 0 and 0777 (octal), both inclusive";
/// Field paths that a downward API file may name.
const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// In the order of the API server's checks: the first one is the volume's type.
const VOLUME_KINDS: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "scaleIO",
    "projected",
    "csi",
    "ephemeral",
    "image",
];

/// `spec.volumes`; returns the volumes that are valid, for the mounts to refer to.
pub(crate) fn volumes<'a>(errors: &mut Errors, path: &str, spec: &'a Value) -> HashMap<&'a str, &'a Value> {
    let mut known: HashMap<&str, &Value> = HashMap::new();
    for (i, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("{path}[{i}]");
        let before = errors.len();
        source(errors, &path, volume);
        let name = text(volume, "name");
        let name_path = format!("{path}.name");
        if name.is_empty() {
            errors.push(FieldError::required(name_path.clone(), ""));
        } else {
            invalid_text(errors, &name_path, name, names::dns_label(name));
        }
        if known.contains_key(name) {
            errors.push(FieldError::duplicate(name_path, &name.into()));
        }
        if errors.len() == before {
            known.insert(name, volume);
        }
    }
    known
}

fn source(errors: &mut Errors, path: &str, volume: &Value) {
    let mut found = 0;
    for kind in VOLUME_KINDS {
        let Some(value) = present(volume, kind) else { continue };
        found += 1;
        let path = format!("{path}.{kind}");
        if found > 1 {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 volume type"));
            continue;
        }
        one_source(errors, &path, kind, value);
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

fn one_source(errors: &mut Errors, path: &str, kind: &str, source: &Value) {
    let needs = |errors: &mut Errors, field: &str| {
        if text(source, field).is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    };
    match kind {
        "emptyDir" if Quantity::from_value(&source["sizeLimit"]).is_some_and(Quantity::is_negative) => {
            let path = format!("{path}.sizeLimit");
            errors.push(FieldError::forbidden(path, "SizeLimit field must be a valid resource quantity"));
        }
        "hostPath" => {
            if text(source, "path").is_empty() {
                needs(errors, "path");
                return;
            }
            no_backsteps(errors, &format!("{path}.path"), text(source, "path"));
            let kind = text(source, "type");
            if !HOST_PATH_TYPES.contains(&kind) {
                errors.push(FieldError::not_supported(format!("{path}.type"), &kind.into(), HOST_PATH_TYPES));
            }
        }
        "configMap" | "secret" => {
            needs(errors, if kind == "secret" { "secretName" } else { "name" });
            mode(errors, path, source, "defaultMode");
            key_to_paths(errors, path, source);
        }
        "downwardAPI" => {
            mode(errors, path, source, "defaultMode");
            for file in items(source, "items") {
                downward_file(errors, path, file);
            }
        }
        "projected" => projected(errors, path, source),
        "persistentVolumeClaim" => needs(errors, "claimName"),
        "nfs" => {
            needs(errors, "server");
            needs(errors, "path");
            let directory = text(source, "path");
            if !directory.starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(format!("{path}.path"), &directory.into(), detail));
            }
        }
        "csi" => needs(errors, "driver"),
        "image" => {
            needs(errors, "reference");
            let policy = text(source, "pullPolicy");
            one_of(errors, format!("{path}.pullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
        }
        _ => {}
    }
}

fn projected(errors: &mut Errors, path: &str, projected: &Value) {
    mode(errors, path, projected, "defaultMode");
    let mut paths = HashSet::new();
    for (i, source) in items(projected, "sources").iter().enumerate() {
        let at = format!("{path}.sources[{i}]");
        let mut kinds = 0;
        for kind in
            ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"]
        {
            let Some(value) = present(source, kind) else { continue };
            kinds += 1;
            let at = format!("{at}.{kind}");
            if kind == "serviceAccountToken" {
                token(errors, path, &at, value);
                continue;
            }
            if matches!(kind, "secret" | "configMap") {
                if text(value, "name").is_empty() {
                    errors.push(FieldError::required(format!("{at}.name"), ""));
                }
                key_to_paths(errors, &at, value);
            }
            for file in items(value, "items") {
                if kind == "downwardAPI" {
                    downward_file(errors, &at, file);
                }
                let file = text(file, "path");
                if !file.is_empty() && !paths.insert(file) {
                    let shown = if kind == "downwardAPI" { file } else { text(value, "name") };
                    errors.push(FieldError::invalid(path, &shown.into(), "conflicting duplicate paths"));
                }
            }
        }
        if kinds > 1 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 volume type per source"));
        }
    }
}

fn token(errors: &mut Errors, projected: &str, path: &str, token: &Value) {
    let seconds = integer(token, "expirationSeconds").unwrap_or_default();
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), &seconds.into(), detail));
    }
    if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), &seconds.into(), detail));
    }
    let path = format!("{projected}.path");
    match text(token, "path") {
        "" => errors.push(FieldError::required(path, "")),
        file => local_path(errors, &path, file),
    }
}

fn key_to_paths(errors: &mut Errors, path: &str, source: &Value) {
    for (i, item) in items(source, "items").iter().enumerate() {
        let path = format!("{path}.items[{i}]");
        for field in ["key", "path"] {
            if text(item, field).is_empty() {
                errors.push(FieldError::required(format!("{path}.{field}"), ""));
            }
        }
        local_path(errors, &format!("{path}.path"), text(item, "path"));
        mode(errors, &path, item, "mode");
    }
}

fn downward_file(errors: &mut Errors, path: &str, file: &Value) {
    if text(file, "path").is_empty() {
        errors.push(FieldError::required(format!("{path}.path"), ""));
    }
    local_path(errors, &format!("{path}.path"), text(file, "path"));
    match (present(file, "fieldRef"), present(file, "resourceFieldRef")) {
        (Some(field), resource) => {
            env::object_field(errors, &format!("{path}.fieldRef"), field, VOLUME_FIELDS);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, &"resource".into(), detail));
            }
        }
        (None, Some(resource)) => {
            env::resource_field(errors, &format!("{path}.resourceFieldRef"), resource, true);
        }
        (None, None) => errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required")),
    }
    mode(errors, path, file, "mode");
}

fn mode(errors: &mut Errors, path: &str, holder: &Value, field: &str) {
    if let Some(mode) = integer(holder, field).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(FieldError::invalid(format!("{path}.{field}"), &mode.into(), MODE_DETAIL));
    }
}

/// A path below a directory: relative, without `..` elements.
pub(crate) fn descending_path(errors: &mut Errors, path: &str, target: &str) {
    if target.starts_with('/') {
        errors.push(FieldError::invalid(path, &target.into(), "must be a relative path"));
    }
    no_backsteps(errors, path, target);
}

/// Same as `descending_path`, and refuses a leading `..`, which the kubelet's atomic writer reserves.
fn local_path(errors: &mut Errors, path: &str, target: &str) {
    descending_path(errors, path, target);
    if target.starts_with("..") && !target.starts_with("../") && target != ".." {
        errors.push(FieldError::invalid(path, &target.into(), "must not start with '..'"));
    }
}

fn no_backsteps(errors: &mut Errors, path: &str, target: &str) {
    if target.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, &target.into(), "must not contain '..'"));
    }
}
