//! Mount points inside read-only volumes: a pod that mounts one volume at `/etc/app` and another at
//! `/etc/app/certs` needs a folder `certs` in the first, which the OCI runtime could not make there.

use crate::pod::spec::containers;
use crate::sys::gather::Gather;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::error::{At, PathError};

/// Makes in `dir` the mount points that any container of the pod needs below the volume `name`.
pub(super) fn make_mount_points(dir: &Path, name: &str, pod: &Pod) -> Result<(), PathError> {
    for point in mount_points(name, pod) {
        let path = dir.join(point);
        if !path.exists() {
            std::fs::create_dir_all(&path).at("create mount point", &path)?;
        }
    }
    Ok(())
}

fn mount_points(name: &str, pod: &Pod) -> BTreeSet<PathBuf> {
    let Some(spec) = pod.spec.as_ref() else { return BTreeSet::new() };
    containers(spec).flat_map(|container| of_container(name, container)).into_set()
}

fn of_container(name: &str, container: &Container) -> Vec<PathBuf> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let whole = mounts.iter().filter(|mount| {
        mount.name == name
            && mount.sub_path.as_deref().is_none_or(str::is_empty)
            && mount.sub_path_expr.as_deref().is_none_or(str::is_empty)
    });
    let mut points = Vec::new();
    for outer in whole {
        for inner in mounts {
            let Ok(below) = Path::new(&inner.mount_path).strip_prefix(&outer.mount_path) else { continue };
            let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
            // A mount inside an inner mount finds its place there.
            let covered = mounts.iter().any(|other| {
                other.mount_path != outer.mount_path
                    && other.mount_path != inner.mount_path
                    && Path::new(&other.mount_path).starts_with(&outer.mount_path)
                    && Path::new(&inner.mount_path).starts_with(&other.mount_path)
            });
            if plain && !covered && below.components().next().is_some() {
                points.push(below.to_path_buf());
            }
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outermost_inner_mounts_need_a_place() {
        let pod: Pod =
            serde_json::from_value(serde_json::json!({"spec": {"containers": [{"name": "c", "volumeMounts": [
            {"name": "cfg", "mountPath": "/etc/app"}, {"name": "certs", "mountPath": "/etc/app/tls/certs"},
            {"name": "deep", "mountPath": "/etc/app/tls/certs/deep"}, {"name": "else", "mountPath": "/etc/apple"}]}]}}))
            .unwrap();
        assert_eq!(mount_points("cfg", &pod), BTreeSet::from([PathBuf::from("tls/certs")]));
        assert_eq!(mount_points("certs", &pod), BTreeSet::from([PathBuf::from("deep")]));
        assert!(mount_points("else", &pod).is_empty());
    }
}
