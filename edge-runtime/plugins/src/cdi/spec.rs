//! One specification, as a file has it.

use sampan_plugins_control::{DeviceNode, Edits, Mount, Number, Pair};
use serde::Deserialize;

use crate::names::{is_cdi_kind, is_cdi_name};

/// A specification: devices of one kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    cdi_version: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) devices: Vec<Device>,
    /// For each container with one of the devices, once.
    #[serde(default)]
    pub(super) container_edits: ContainerEdits,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub(super) name: String,
    #[serde(default)]
    pub(super) container_edits: ContainerEdits,
}

/// Lists may be `null`: programs in Go write them so.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerEdits {
    env: Option<Vec<String>>,
    device_nodes: Option<Vec<Node>>,
    mounts: Option<Vec<Bind>>,
    // Not supported.
    hooks: Option<Vec<serde::de::IgnoredAny>>,
    net_devices: Option<Vec<serde::de::IgnoredAny>>,
    intel_rdt: Option<serde::de::IgnoredAny>,
    #[serde(rename = "additionalGIDs", alias = "additionalGids")]
    additional_gids: Option<Vec<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    path: String,
    host_path: Option<String>,
    r#type: Option<String>,
    major: Option<u32>,
    minor: Option<u32>,
    file_mode: Option<u32>,
    permissions: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bind {
    host_path: String,
    container_path: String,
    options: Option<Vec<String>>,
    r#type: Option<String>,
}

impl Spec {
    /// # Errors
    /// It is no specification that can be used; the text names the field.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let spec: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if !spec.cdi_version.trim_start_matches('v').starts_with(['0', '1']) {
            return Err(format!("cdiVersion {:?} is not supported; use 0.x or 1.x", spec.cdi_version));
        }
        if !is_cdi_kind(&spec.kind) {
            return Err(format!("kind {:?} is not VENDOR/CLASS", spec.kind));
        }
        if let Some(device) = spec.devices.iter().find(|device| !is_cdi_name(&device.name)) {
            return Err(format!("devices: name {:?} is not valid", device.name));
        }
        Ok(spec)
    }
}

impl ContainerEdits {
    /// # Errors
    /// It has what is not supported; the text names the field.
    pub(super) fn edits(&self) -> Result<Edits, String> {
        let is_there = |list: &Option<Vec<_>>| list.as_ref().is_some_and(|list: &Vec<_>| !list.is_empty());
        for (field, is_there) in [
            ("hooks", is_there(&self.hooks)),
            ("netDevices", is_there(&self.net_devices)),
            ("intelRdt", self.intel_rdt.is_some()),
            ("additionalGIDs", self.additional_gids.as_ref().is_some_and(|list| !list.is_empty())),
        ] {
            if is_there {
                return Err(format!("containerEdits.{field} are not supported"));
            }
        }
        let env = self.env.iter().flatten().map(|variable| pair(variable)).collect::<Result<_, _>>()?;
        let devices = self.device_nodes.iter().flatten().map(Node::device).collect::<Result<_, _>>()?;
        let mounts = self.mounts.iter().flatten().map(Bind::mount).collect::<Result<_, _>>()?;
        Ok(Edits { env, mounts, devices, annotations: Vec::new() })
    }
}

fn pair(variable: &str) -> Result<Pair, String> {
    let (name, value) =
        variable.split_once('=').ok_or_else(|| format!("containerEdits.env {variable:?} is not NAME=VALUE"))?;
    Ok(Pair { name: name.to_owned(), value: value.to_owned() })
}

impl Node {
    fn device(&self) -> Result<DeviceNode, String> {
        let wrong = |why: &str| format!("containerEdits.deviceNodes {:?}: {why}", self.path);
        let block = match self.r#type.as_deref() {
            None | Some("") => None,
            Some("b") => Some(true),
            Some("c" | "u") => Some(false),
            Some(_) => return Err(wrong("type is neither b nor c")),
        };
        // Both numbers are zero where the node on the host has them, or are left out.
        let number = match (block, self.major.unwrap_or(0), self.minor.unwrap_or(0)) {
            (_, 0, 0) => None,
            (Some(block), major, minor) => Some(Number { block, major, minor }),
            (None, ..) => return Err(wrong("major and minor without a type")),
        };
        let permissions = self.permissions.clone().filter(|permissions| !permissions.is_empty());
        Ok(DeviceNode {
            container: self.path.clone(),
            host: self.host_path.clone().filter(|path| !path.is_empty()).unwrap_or_else(|| self.path.clone()),
            permissions: permissions.unwrap_or_else(|| "rwm".to_owned()),
            number,
            mode: self.file_mode,
            uid: self.uid,
            gid: self.gid,
        })
    }
}

impl Bind {
    fn mount(&self) -> Result<Mount, String> {
        if let Some(kind) = self.r#type.as_deref().filter(|kind| !matches!(*kind, "" | "bind" | "none")) {
            return Err(format!("containerEdits.mounts {:?}: type {kind:?} is not supported", self.container_path));
        }
        let mut options = self.options.clone().unwrap_or_default();
        let read_only = options.iter().any(|option| option == "ro");
        options.retain(|option| !matches!(option.as_str(), "ro" | "rw"));
        // The OCI runtime would take anything else for data of a file system.
        if let Some(option) = options.iter().find(|option| !is_option(option)) {
            return Err(format!("containerEdits.mounts {:?}: option {option:?} is not valid", self.container_path));
        }
        Ok(Mount { container: self.container_path.clone(), host: self.host_path.clone(), read_only, options })
    }
}

/// Options of a bind mount (mount(8)).
fn is_option(option: &str) -> bool {
    matches!(
        option,
        "bind"
            | "rbind"
            | "nosuid"
            | "nodev"
            | "noexec"
            | "suid"
            | "dev"
            | "exec"
            | "noatime"
            | "relatime"
            | "strictatime"
            | "nosymfollow"
            | "nodiratime"
            | "private"
            | "rprivate"
            | "slave"
            | "rslave"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edits::tests::node;

    fn edits(text: &str) -> Result<Edits, String> {
        serde_json::from_str::<ContainerEdits>(text).expect("JSON").edits()
    }

    #[test]
    fn edits_are_read() {
        let read = edits(
            r#"{"env": ["A=b=c", "E="],
                "deviceNodes": [{"path": "/dev/a"},
                    {"path": "/dev/b", "hostPath": "/dev/c", "type": "c", "major": 1, "minor": 3, "fileMode": 432,
                     "permissions": "r", "uid": 7, "gid": 8}],
                "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro", "nosuid", "rbind"]},
                    {"hostPath": "/h", "containerPath": "/d", "options": null, "type": "bind"}],
                "hooks": [], "ofALaterVersion": 1}"#,
        );
        let read = read.expect("edits");
        let pair = |name: &str, value: &str| Pair { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(read.env, [pair("A", "b=c"), pair("E", "")]);
        let number = Some(Number { block: false, major: 1, minor: 3 });
        let second =
            DeviceNode { number, mode: Some(432), uid: Some(7), gid: Some(8), ..node("/dev/b", "/dev/c", "r") };
        assert_eq!(read.devices, [node("/dev/a", "/dev/a", "rwm"), second]);
        assert!(read.mounts[0].read_only && !read.mounts[1].read_only);
        assert_eq!(read.mounts[0].options, ["nosuid", "rbind"]);
        assert_eq!(edits(r#"{"env": null, "hooks": null}"#), Ok(Edits::default()));
    }

    #[test]
    fn unsupported_field_is_named() {
        for (text, field) in [
            (r#"{"hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk"}]}"#, "containerEdits.hooks"),
            (r#"{"netDevices": [{}]}"#, "containerEdits.netDevices"),
            (r#"{"intelRdt": {}}"#, "containerEdits.intelRdt"),
            (r#"{"additionalGIDs": [7]}"#, "containerEdits.additionalGIDs"),
            (r#"{"additionalGids": [7]}"#, "containerEdits.additionalGIDs"),
            (r#"{"env": ["A"]}"#, "containerEdits.env \"A\""),
            (r#"{"deviceNodes": [{"path": "/dev/p", "type": "p"}]}"#, "deviceNodes \"/dev/p\": type"),
            (r#"{"deviceNodes": [{"path": "/dev/p", "major": 4}]}"#, "deviceNodes \"/dev/p\": major"),
            (r#"{"mounts": [{"hostPath": "/h", "containerPath": "/c", "type": "tmpfs"}]}"#, "mounts \"/c\": type"),
            (
                r#"{"mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["rshared"]}]}"#,
                "option \"rshared\"",
            ),
        ] {
            let why = edits(text).expect_err("refused");
            assert!(why.contains(field), "{why}");
        }
    }

    #[test]
    fn specification_has_version_kind_and_names() {
        let read = |version: &str, kind: &str, name: &str| {
            let text = format!(r#"{{"cdiVersion": "{version}", "kind": "{kind}", "devices": [{{"name": "{name}"}}]}}"#);
            Spec::read(text.as_bytes()).map(drop)
        };
        for version in ["0.3.0", "0.6.0", "1.0.0", "v1.1.0"] {
            assert_eq!(read(version, "v.com/c", "all"), Ok(()), "{version}");
        }
        assert!(read("2.0.0", "v.com/c", "all").is_err_and(|why| why.contains("cdiVersion")));
        assert!(read("0.6.0", "c", "all").is_err_and(|why| why.contains("kind")));
        assert!(read("0.6.0", "v.com/c", "a b").is_err_and(|why| why.contains("name")));
        assert!(Spec::read(br#"{"kind": "v.com/c"}"#).is_err());
    }
}
