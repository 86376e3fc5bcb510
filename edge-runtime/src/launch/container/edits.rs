//! What device plugins change in a container, as parts of its OCI configuration.

use std::io;
use std::path::{Path, PathBuf};

use sampan_plugins_control::{DeviceNode, Edits, Mount as EditedMount};

use crate::launch::devices::kept::OfContainer;
use crate::launch::error::ContainerError;
use crate::launch::look::Look;
use crate::launch::oci_spec::{GrantedDevice, HostDevice};
use crate::launch::user::User;
use crate::volume;
use crate::volume::mounts::{Mount, Propagation};

/// Most device nodes of a container, those in folders included.
const MOST_NODES: usize = 1024;

/// Options of a mount that are passed on.
const OPTIONS: [&str; 8] =
    ["nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "strictatime", "nosymfollow"];
/// Options that each mount has anyway.
const OWN_OPTIONS: [&str; 7] = ["bind", "rbind", "private", "rprivate", "suid", "dev", "exec"];

fn edits(of: Option<&OfContainer>) -> impl Iterator<Item = (&String, &Edits)> {
    of.into_iter().flat_map(|of| of.iter()).map(|(resource, allocation)| (resource, &allocation.edits))
}

/// Variables, which those of the container replace.
pub(super) fn env(of: Option<&OfContainer>) -> Vec<(String, String)> {
    edits(of).flat_map(|(_, edits)| &edits.env).map(|pair| (pair.name.clone(), pair.value.clone())).collect()
}

/// Annotations for the OCI runtime.
pub(super) fn annotations(of: Option<&OfContainer>) -> Vec<(String, String)> {
    edits(of).flat_map(|(_, edits)| &edits.annotations).map(|pair| (pair.name.clone(), pair.value.clone())).collect()
}

/// Adds mounts, and work of a helper for them: as with a hostPath, what they show may be on a file system that is away. A
/// mount of the pod at the same place comes first.
pub(super) fn mounts(
    of: Option<&OfContainer>,
    mounts: &mut Vec<Mount>,
    looks: &mut Vec<Look>,
) -> Result<(), ContainerError> {
    for (resource, edits) in edits(of) {
        for edited in &edits.mounts {
            let target = PathBuf::from(&edited.container);
            if mounts.iter().any(|mount| mount.target == target) {
                continue;
            }
            let (volume, path) = (resource.clone(), PathBuf::from(&edited.host));
            looks.push(Look::Volume(volume::look::Look::Host { volume, path, type_: String::new() }));
            mounts.push(mount(resource, edited, target)?);
        }
    }
    Ok(())
}

fn mount(resource: &str, edited: &EditedMount, target: PathBuf) -> Result<Mount, ContainerError> {
    let (mut locked, mut propagation) = (Vec::new(), Propagation::Private);
    for option in &edited.options {
        match (OPTIONS.iter().find(|known| *known == option), option.as_str()) {
            (Some(known), _) => locked.push(*known),
            (None, "slave" | "rslave") => propagation = Propagation::HostToContainer,
            (None, own) if OWN_OPTIONS.contains(&own) => {}
            (None, other) => {
                let why = format!(
                    "{resource}: a mount at {} has the option {other}, which is not supported",
                    edited.container
                );
                return Err(ContainerError::config(why));
            }
        }
    }
    Ok(Mount {
        source: PathBuf::from(&edited.host),
        target,
        read_only: edited.read_only,
        recursive_read_only: false,
        propagation,
        locked,
        foreign: Some(resource.to_owned()),
    })
}

/// Device nodes, as they are now. A folder below `/dev` stands for the nodes in it. A container that is not root gets them
/// as its own, unless the plugin gives them an owner.
pub(super) fn devices(of: Option<&OfContainer>, user: &User) -> io::Result<Vec<GrantedDevice>> {
    let mut granted: Vec<GrantedDevice> = Vec::new();
    for (resource, edits) in edits(of) {
        for node in &edits.devices {
            let named = |error: io::Error| io::Error::other(format!("device {} of {resource}: {error}", node.host));
            for device in nodes(node).map_err(named)? {
                if granted.iter().any(|other| other.device.path == device.path) {
                    continue;
                }
                if granted.len() >= MOST_NODES {
                    return Err(named(io::Error::other(format!(
                        "the container has more than {MOST_NODES} device nodes"
                    ))));
                }
                granted.push(GrantedDevice { device: owned(device, node, user), access: node.permissions.clone() });
            }
        }
    }
    Ok(granted)
}

fn owned(device: HostDevice, node: &DeviceNode, user: &User) -> HostDevice {
    let own = (user.uid != 0).then_some((user.uid, user.gid));
    HostDevice {
        mode: node.mode.unwrap_or(device.mode),
        uid: node.uid.or(own.map(|(uid, _)| uid)).unwrap_or(device.uid),
        gid: node.gid.or(own.map(|(_, gid)| gid)).unwrap_or(device.gid),
        ..device
    }
}

/// The nodes that a plugin means, with their paths in the container.
fn nodes(node: &DeviceNode) -> io::Result<Vec<HostDevice>> {
    let (host, target) = (Path::new(&node.host), PathBuf::from(&node.container));
    if let Some(number) = node.number {
        let (major, minor) = (number.major.into(), number.minor.into());
        return Ok(vec![HostDevice { path: target, block: number.block, major, minor, mode: 0o660, uid: 0, gid: 0 }]);
    }
    // Elsewhere a look at it may never end.
    if !host.starts_with("/dev") {
        return Err(io::Error::other("is not below /dev"));
    }
    if !host.is_dir() {
        return Ok(vec![HostDevice { path: target, ..HostDevice::at(host)? }]);
    }
    let all = HostDevice::below(host).into_iter();
    Ok(all
        .filter_map(|device| Some(HostDevice { path: target.join(device.path.strip_prefix(host).ok()?), ..device }))
        .collect())
}

#[cfg(test)]
mod tests {
    use sampan_plugins_control::{Number, Pair};

    use super::*;
    use crate::launch::devices::kept::Allocation;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    fn of(edits: Edits) -> OfContainer {
        let allocation = Allocation { ids: vec![text("0")], edits, ..Allocation::default() };
        [(text("example.com/gpu"), allocation)].into_iter().collect()
    }

    fn node(host: &str, container: &str) -> DeviceNode {
        DeviceNode {
            container: text(container),
            host: text(host),
            permissions: text("rw"),
            number: None,
            mode: None,
            uid: None,
            gid: None,
        }
    }

    #[test]
    fn container_without_devices_is_not_changed() {
        let (mut all, mut looks) = (Vec::new(), Vec::new());
        assert!(mounts(None, &mut all, &mut looks).is_ok() && all.is_empty() && looks.is_empty());
        assert!(env(None).is_empty() && annotations(None).is_empty());
        assert!(devices(None, &User::default()).unwrap().is_empty());
    }

    #[test]
    fn nodes_have_the_numbers_of_the_board_and_the_names_of_the_plugin() {
        let with = |edited: DeviceNode, user: &User| {
            devices(Some(&of(Edits { devices: vec![edited], ..Edits::default() })), user)
        };
        let root = User::default();
        let got = with(node("/dev/null", "/dev/gpu0"), &root).unwrap();
        let device = &got[0].device;
        assert_eq!((device.path.to_str(), device.major, device.minor), (Some("/dev/gpu0"), 1, 3));
        assert_eq!((got[0].access.as_str(), device.uid), ("rw", 0));
        let user = User { uid: 7, gid: 8, ..User::default() };
        let own = |edited| with(edited, &user).map(|got| (got[0].device.uid, got[0].device.gid, got[0].device.mode));
        assert_eq!(own(DeviceNode { mode: Some(0o600), ..node("/dev/null", "/dev/x") }).unwrap(), (7, 8, 0o600));
        assert_eq!(own(DeviceNode { gid: Some(9), mode: Some(0), ..node("/dev/null", "/dev/x") }).unwrap(), (7, 9, 0));
        let number = Some(Number { block: true, major: 259, minor: 4 });
        let made = with(DeviceNode { number, ..node("/nowhere", "/dev/x") }, &root).unwrap();
        assert_eq!((made[0].device.block, made[0].device.major, made[0].device.minor), (true, 259, 4));
        for wrong in ["/dev/none", "/etc/passwd"] {
            let error = with(node(wrong, "/dev/x"), &root).unwrap_err().to_string();
            assert!(error.starts_with(&format!("device {wrong} of example.com/gpu: ")), "{error}");
        }
        let both = vec![node("/dev/null", "/dev/x"), node("/dev/zero", "/dev/x")];
        assert_eq!(devices(Some(&of(Edits { devices: both, ..Edits::default() })), &root).unwrap().len(), 1);
    }

    #[test]
    fn folder_stands_for_the_nodes_in_it() {
        let folder = Edits { devices: vec![node("/dev", "/x")], ..Edits::default() };
        let got = devices(Some(&of(folder)), &User::default()).unwrap();
        assert!(got.iter().any(|one| one.device.path == Path::new("/x/null")), "{got:?}");
    }

    #[test]
    fn mounts_are_looked_at_as_a_host_path_is() {
        let edited = |container: &str, options: &[&str]| EditedMount {
            container: text(container),
            host: text("/usr/lib/gpu"),
            read_only: true,
            options: options.iter().map(|option| text(option)).collect(),
        };
        let own = Mount { target: "/taken".into(), ..Mount::default() };
        let (mut all, mut looks) = (vec![own], Vec::new());
        let edits = vec![edited("/taken", &[]), edited("/gpu", &["rbind", "nosuid", "nodev"])];
        assert!(mounts(Some(&of(Edits { mounts: edits, ..Edits::default() })), &mut all, &mut looks).is_ok());
        assert_eq!((all.len(), looks.len()), (2, 1));
        assert_eq!((all[1].read_only, all[1].locked.as_slice()), (true, ["nosuid", "nodev"].as_slice()));
        assert_eq!(all[1].foreign.as_deref(), Some("example.com/gpu"));
        assert_eq!(looks[0].path(), Path::new("/usr/lib/gpu"));
        let edits = vec![edited("/other", &["shared"])];
        let refused = mounts(Some(&of(Edits { mounts: edits, ..Edits::default() })), &mut all, &mut looks);
        let why = refused.expect_err("the host would get mounts of the container").to_string();
        assert_eq!(why, "example.com/gpu: a mount at /other has the option shared, which is not supported");
    }

    #[test]
    fn variables_and_annotations_are_in_order() {
        let pair = |name: &str, value: &str| Pair { name: text(name), value: text(value) };
        let edits = Edits { env: vec![pair("A", "1")], annotations: vec![pair("b", "2")], ..Edits::default() };
        assert_eq!(env(Some(&of(edits.clone()))), [(text("A"), text("1"))]);
        assert_eq!(annotations(Some(&of(edits))), [(text("b"), text("2"))]);
    }
}
