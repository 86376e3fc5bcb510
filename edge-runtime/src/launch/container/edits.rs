//! What device plugins change in a container, as parts of its OCI configuration. The edits are JSON that was checked when it
//! came ([`sampan_plugins_control::are_edits`]).

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::launch::devices::kept::Allocation;
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

fn list<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn number(of: &Value, field: &str) -> Option<u32> {
    of[field].as_u64()?.try_into().ok()
}

fn pairs(of: &[Allocation], field: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for one in of {
        for pair in list(&one.edits, field) {
            all.push((text(pair, "name").to_owned(), text(pair, "value").to_owned()));
        }
    }
    all
}

/// Variables, which those of the container replace.
pub(super) fn env(of: &[Allocation]) -> Vec<(String, String)> {
    pairs(of, "env")
}

/// Annotations for the OCI runtime.
pub(super) fn annotations(of: &[Allocation]) -> Vec<(String, String)> {
    pairs(of, "annotations")
}

/// Adds mounts, and work of a helper for them: as with a hostPath, what they show may be on a file system that is away. A
/// mount of the pod at the same place comes first.
pub(super) fn mounts(of: &[Allocation], mounts: &mut Vec<Mount>, looks: &mut Vec<Look>) -> Result<(), ContainerError> {
    for one in of {
        for edited in list(&one.edits, "mounts") {
            let target = Path::new(text(edited, "container"));
            if mounts.iter().any(|mount| mount.target == target) {
                continue;
            }
            let (volume, path) = (one.resource.clone(), PathBuf::from(text(edited, "host")));
            looks.push(Look::Volume(volume::look::Look::Host { volume, path, type_: String::new() }));
            mounts.push(mount(&one.resource, edited)?);
        }
    }
    Ok(())
}

fn mount(resource: &str, edited: &Value) -> Result<Mount, ContainerError> {
    let (mut locked, mut propagation) = (Vec::new(), Propagation::Private);
    for option in list(edited, "options") {
        let option = option.as_str().unwrap_or_default();
        match (OPTIONS.iter().find(|known| **known == option), option) {
            (Some(known), _) => locked.push(*known),
            (None, "slave" | "rslave") => propagation = Propagation::HostToContainer,
            (None, own) if OWN_OPTIONS.contains(&own) => {}
            (None, other) => {
                let target = text(edited, "container");
                let why = format!("{resource}: a mount at {target} has the option {other}, which is not supported");
                return Err(ContainerError::config(why));
            }
        }
    }
    Ok(Mount {
        source: text(edited, "host").into(),
        target: text(edited, "container").into(),
        read_only: edited["readOnly"] == true,
        recursive_read_only: false,
        propagation,
        locked,
        foreign: Some(resource.to_owned()),
    })
}

/// Device nodes, as they are now. A folder below `/dev` stands for the nodes in it. A container that is not root gets them
/// as its own, unless the plugin gives them an owner.
pub(super) fn devices(of: &[Allocation], user: &User) -> io::Result<Vec<GrantedDevice>> {
    let mut granted: Vec<GrantedDevice> = Vec::new();
    for one in of {
        for node in list(&one.edits, "devices") {
            let named = |error: io::Error| {
                io::Error::other(format!("device {} of {}: {error}", text(node, "host"), one.resource))
            };
            for device in nodes(node).map_err(named)? {
                if granted.iter().any(|other| other.device.path == device.path) {
                    continue;
                }
                if granted.len() >= MOST_NODES {
                    let why = format!("the container has more than {MOST_NODES} device nodes");
                    return Err(named(io::Error::other(why)));
                }
                let access = text(node, "permissions").to_owned();
                granted.push(GrantedDevice { device: owned(device, node, user), access });
            }
        }
    }
    Ok(granted)
}

fn owned(mut device: HostDevice, node: &Value, user: &User) -> HostDevice {
    if user.uid != 0 {
        (device.uid, device.gid) = (user.uid, user.gid);
    }
    device.mode = number(node, "mode").unwrap_or(device.mode);
    device.uid = number(node, "uid").unwrap_or(device.uid);
    device.gid = number(node, "gid").unwrap_or(device.gid);
    device
}

/// The nodes that a plugin means, with their paths in the container.
fn nodes(node: &Value) -> io::Result<Vec<HostDevice>> {
    let (host, target) = (Path::new(text(node, "host")), PathBuf::from(text(node, "container")));
    let given = &node["number"];
    if let (Some(major), Some(minor)) = (number(given, "major"), number(given, "minor")) {
        let (block, major, minor) = (given["block"] == true, major.into(), minor.into());
        return Ok(vec![HostDevice { path: target, block, major, minor, mode: 0o660, uid: 0, gid: 0 }]);
    }
    // Elsewhere a look at it may never end.
    if !host.starts_with("/dev") {
        return Err(io::Error::other("is not below /dev"));
    }
    if !host.is_dir() {
        return Ok(vec![HostDevice { path: target, ..HostDevice::at(host)? }]);
    }
    let mut all = Vec::new();
    for device in HostDevice::below(host) {
        if let Ok(below) = device.path.strip_prefix(host) {
            all.push(HostDevice { path: target.join(below), ..device });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use sampan_plugins_control::{DeviceNode, Edits, Mount as EditedMount, Number, Pair};

    use super::*;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    fn of(edits: Edits) -> Vec<Allocation> {
        let edits = serde_json::to_value(edits).unwrap();
        vec![Allocation { resource: text("example.com/gpu"), ids: vec![text("0")], edits, ..Allocation::default() }]
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
        let without = [Allocation::default()];
        assert!(mounts(&without, &mut all, &mut looks).is_ok() && all.is_empty() && looks.is_empty());
        assert!(env(&without).is_empty() && annotations(&without).is_empty());
        assert!(devices(&without, &User::default()).unwrap().is_empty());
    }

    #[test]
    fn nodes_have_the_numbers_of_the_board_and_the_names_of_the_plugin() {
        let with =
            |edited: DeviceNode, user: &User| devices(&of(Edits { devices: vec![edited], ..Edits::default() }), user);
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
        assert_eq!(devices(&of(Edits { devices: both, ..Edits::default() }), &root).unwrap().len(), 1);
    }

    #[test]
    fn folder_stands_for_the_nodes_in_it() {
        let folder = Edits { devices: vec![node("/dev", "/x")], ..Edits::default() };
        let got = devices(&of(folder), &User::default()).unwrap();
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
        assert!(mounts(&of(Edits { mounts: edits, ..Edits::default() }), &mut all, &mut looks).is_ok());
        assert_eq!((all.len(), looks.len()), (2, 1));
        assert_eq!((all[1].read_only, all[1].locked.as_slice()), (true, ["nosuid", "nodev"].as_slice()));
        assert_eq!(all[1].foreign.as_deref(), Some("example.com/gpu"));
        assert_eq!(looks[0].path(), Path::new("/usr/lib/gpu"));
        let edits = vec![edited("/other", &["shared"])];
        let refused = mounts(&of(Edits { mounts: edits, ..Edits::default() }), &mut all, &mut looks);
        let why = refused.expect_err("the host would get mounts of the container").to_string();
        assert_eq!(why, "example.com/gpu: a mount at /other has the option shared, which is not supported");
    }

    #[test]
    fn variables_and_annotations_are_in_order() {
        let pair = |name: &str, value: &str| Pair { name: text(name), value: text(value) };
        let edits = Edits { env: vec![pair("A", "1")], annotations: vec![pair("b", "2")], ..Edits::default() };
        assert_eq!(env(&of(edits.clone())), [(text("A"), text("1"))]);
        assert_eq!(annotations(&of(edits)), [(text("b"), text("2"))]);
    }
}
