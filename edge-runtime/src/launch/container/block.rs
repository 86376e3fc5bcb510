//! Block volumes of a container (`volumeDevices`), as device nodes.

use std::io;
use std::path::Path;

use k8s_openapi::api::core::v1::Container;

use crate::launch::error::ContainerError;
use crate::launch::oci_spec::{GrantedDevice, HostDevice};
use crate::launch::user::User;
use crate::sys::files::named;
use crate::sys::vec_map::VecMap;
use crate::volume::VolumeHostPath;

/// The nodes as they are now (K8s pkg/kubelet/kubelet_pods.go, `makeBlockVolumes`). A container that is not root gets them
/// as its own, as other devices.
pub(super) fn devices(
    container: &Container,
    volumes: &VecMap<String, VolumeHostPath>,
    user: &User,
) -> Result<Vec<GrantedDevice>, ContainerError> {
    let mut granted = Vec::new();
    for wanted in container.volume_devices.iter().flatten() {
        let target = Path::new(&wanted.device_path);
        if !target.is_absolute() {
            let why = format!("error DevicePath `{}` must be an absolute path", wanted.device_path);
            return Err(ContainerError::config(why));
        }
        let Some(volume) = volumes.get(&wanted.name) else {
            let why = format!("cannot find volume {:?} to pass into container {:?}", wanted.name, container.name);
            return Err(ContainerError::config(why));
        };
        let mut device = HostDevice::at(&volume.path).map_err(named(&volume.path))?;
        if !device.block {
            return Err(named(&volume.path)(io::Error::other("is not a block device")).into());
        }
        device.path = target.to_owned();
        if user.uid != 0 {
            (device.uid, device.gid) = (user.uid, user.gid);
        }
        let access = if volume.read_only { "r" } else { "rwm" };
        granted.push(GrantedDevice { device, access: access.to_owned() });
    }
    Ok(granted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volumes(path: &str) -> VecMap<String, VolumeHostPath> {
        let volume = VolumeHostPath { path: path.into(), read_only: false, foreign: true };
        [("disk".to_owned(), volume)].into_iter().collect()
    }

    fn refused(name: &str, target: &str, path: &str) -> String {
        let container = json!({"name": "c", "volumeDevices": [{"name": name, "devicePath": target}]});
        let container: Container = serde_json::from_value(container).unwrap();
        devices(&container, &volumes(path), &User::default()).expect_err("refused").to_string()
    }

    #[test]
    fn container_without_block_volumes_gets_none() {
        let container = Container { name: "c".to_owned(), ..Container::default() };
        assert!(devices(&container, &volumes("/dev/null"), &User::default()).is_ok_and(|all| all.is_empty()));
    }

    #[test]
    fn only_block_devices_of_volumes_are_given() {
        assert_eq!(refused("disk", "xvda", "/dev/null"), "error DevicePath `xvda` must be an absolute path");
        let unknown = refused("other", "/dev/xvda", "/dev/null");
        assert_eq!(unknown, "cannot find volume \"other\" to pass into container \"c\"");
        assert_eq!(refused("disk", "/dev/xvda", "/dev/null"), "/dev/null: is not a block device");
        assert_eq!(refused("disk", "/dev/xvda", "/etc/passwd"), "/etc/passwd: is no device");
    }

    #[test]
    fn node_of_the_volume_has_the_name_of_the_container() {
        // A machine without a loop device has nothing to give.
        let Some(path) =
            ["/dev/loop0", "/dev/vda", "/dev/sda"].into_iter().find(|path| HostDevice::at(Path::new(path)).is_ok())
        else {
            return;
        };
        let container = json!({"name": "c", "volumeDevices": [{"name": "disk", "devicePath": "/dev/xvda"}]});
        let container: Container = serde_json::from_value(container).unwrap();
        let user = User { uid: 7, gid: 8, ..User::default() };
        let mut all = volumes(path);
        let given = |all: &VecMap<String, VolumeHostPath>| devices(&container, all, &user).unwrap_or_default();
        let (own, host) = (given(&all), HostDevice::at(Path::new(path)).unwrap());
        assert_eq!((own[0].device.major, own[0].device.minor), (host.major, host.minor));
        assert_eq!(
            (own[0].device.path.as_path(), own[0].device.uid, own[0].device.gid),
            (Path::new("/dev/xvda"), 7, 8)
        );
        assert_eq!(own[0].access, "rwm");
        all.get_mut("disk").unwrap().read_only = true;
        assert_eq!(given(&all)[0].access, "r");
    }
}
