//! Messages between the daemon and `edge-plugins`, the helper that talks to device plugins and CSI drivers: one JSON text
//! per line over a Unix socket at which the helper listens, at most [`MAX_LINE`] bytes. Values only. Does not know
//! sockets, gRPC, pods or the store.
//!
//! The helper is stateless: allocations are the daemon's. The daemon says which devices are free, the helper chooses
//! among them and calls the plugin.
//!
//! | from | line |
//! |---|---|
//! | daemon | `{"daemon":{"version":2,"node":"n","settings":{"root":"/var/lib/kubelet","devicePlugins":true,"podResources":false,"csi":false,"csiControllers":{},"cdiFolders":["/etc/cdi","/var/run/cdi"],"taken":["example.com/serial"]}}}` |
//! | helper | `{"hello":{"version":2}}` |
//! | helper | `{"devices":{"resource":"example.com/gpu","all":[{"id":"a","healthy":true,"numa":[0]}]}}` |
//! | helper | `{"told":{}}` |
//! | helper | `{"ready":{"refused":[]}}` |
//! | daemon | `{"allocate":{"id":1,"resource":"example.com/gpu","pod":"default/web","container":"c","had":[],"free":["a"],"count":1}}` |
//! | helper | `{"allocated":{"id":1,"ids":["a"],"preStart":false,"edits":{"env":[],"mounts":[],"devices":[],"annotations":[]}}}` |
//! | daemon | `{"preStart":{"id":2,"resource":"example.com/gpu","ids":["a"]}}` |
//! | helper | `{"prepared":{"id":2}}` |
//! | helper | `{"gone":{"resource":"example.com/gpu"}}` |
//! | helper | `{"drivers":{"drivers":[{"name":"nfs.csi.k8s.io","nodeID":"n","topologyKeys":[],"allocatable":{"count":8},"labels":{}}]}}` |
//! | daemon | `{"keep":{"pods":["UID"]}}` |
//! | daemon | `{"mount":{"id":3,"mount":{"driver":"nfs.csi.k8s.io", …}}}` |
//! | helper | `{"mounted":{"id":3,"path":"/var/lib/kubelet/pods/UID/volumes/kubernetes.io~csi/PV/mount"}}` |
//! | helper | `{"again":{"pod":"UID","volume":"PV"}}` |
//! | daemon | `{"unmount":{"id":4,"pod":"UID","volume":"PV"}}` |
//! | helper | `{"unmounted":{"id":4}}` |
//! | daemon | `{"ping":{}}` |
//! | helper | `{"pong":{}}` |
//! | daemon | `{"end":{}}` |
//!
//! After `Hello` the helper sends `Devices` for each resource whose plugin is connected, then `Told`, and continues with
//! changes: a resource that the daemon knows and that was not named before `Told` is as `Gone`. Only the newest
//! connection of a daemon counts. A helper of another version or with other settings ends when `Daemon` comes, without
//! an answer; the daemon starts another one. Without a daemon the helper stays, and keeps its connections to plugins.
//!
//! `Drivers` comes before `Told` as well, if the settings have `csi`. The daemon answers `Told` with `Keep`. Volumes are
//! the file system's state, see `docs/csi.md`: the daemon may repeat each of their orders at any time.
//!
//! Answers come in any order, at the latest after some minutes; the one to `Mount` of a volume with fsGroup and millions of
//! files within an hour. The daemon has one `Allocate` for a resource under way at a time, also if no container waits for
//! its answer any more: a plugin that hangs has no queue. An order whose connection ends has no answer; the daemon repeats
//! it.

mod csi;
mod edits;
mod from_helper;
mod resources;
mod settings;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use csi::{CSI_SOCKET, CsiMount, CsiPod, MAX_DRIVERS, MAX_HANDLE};
pub use edits::{DeviceNode, Edits, Mount, Number, Pair, are_edits};
pub use resources::{Asked, Assigned, ContainerResources, PodResources, Resources};
pub use settings::Settings;

/// Changes with anything that an older helper or daemon would misunderstand: then the helper ends and another one starts.
pub const VERSION: u32 = 2;

/// Longest line in either direction, bytes without the line feed. Longer ones end the connection. Has room for
/// [`MAX_DEVICES`] devices with the longest names.
pub const MAX_LINE: usize = 4 << 20;

/// Most resources of all plugins together.
pub const MAX_RESOURCES: usize = 64;

/// Most devices of one resource.
pub const MAX_DEVICES: usize = 4_096;

/// Longest name of a device, bytes. None has control characters.
pub const MAX_ID: usize = 253;

/// Most variables, mounts, device nodes and annotations of an [`Edits`], each.
pub const MAX_EDITS: usize = 128;

/// Most NUMA nodes of one device.
pub const MAX_NUMA: usize = 8;

/// A message to the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToHelper {
    /// The daemon connects.
    Daemon { version: u32, node: String, settings: Settings },
    /// Choose devices, and allocate them. Answered by `Allocated` or `Failed` with the same number.
    Allocate {
        id: u64,
        resource: String,
        /// `NAMESPACE/NAME` and the container, for messages.
        pod: String,
        container: String,
        /// Devices that must be among the chosen ones: those that init containers of the pod had.
        had: Vec<String>,
        /// Healthy devices that may be chosen. None of `had`.
        free: Vec<String>,
        /// Number of devices, those of `had` included.
        count: u32,
    },
    /// A container is about to start with these devices. Sent before every start if `Allocated` says so. Answered by
    /// `Prepared` or `Failed` with the same number.
    PreStart { id: u64, resource: String, ids: Vec<String> },
    /// Answer to `AskResources` with the same number.
    Resources { id: u64, resources: Resources },
    /// Stage and publish a volume of a CSI driver in a pod, unless it is there. Repeated by the daemon whenever the pod
    /// starts a container, after a new connection, and with other secrets or tokens. Answered by `Mounted` or `Failed`
    /// with the same number.
    Mount { id: u64, mount: Box<CsiMount> },
    /// Unpublish a volume of a pod, by the folder's name, and unstage it if no other pod has it. Answered by `Unmounted`,
    /// also if it is not there, or `Failed` with the same number.
    Unmount { id: u64, pod: String, volume: String },
    /// All pods, by UID, that may have volumes: what others have is unpublished and unstaged. Sent after `Told`, before
    /// the first `Mount`. Has no answer.
    Keep { pods: Vec<String> },
    /// Answered by `Pong`; a helper without an answer counts as hung.
    Ping {},
    /// Exit: the module is off, or the node shuts down.
    End {},
}

/// A message of the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FromHelper {
    /// First line to a daemon.
    Hello { version: u32 },
    /// All devices of a resource, each time its plugin lists them: sorted by id, each once.
    Devices { resource: String, all: Vec<Device> },
    /// The plugin of this resource has gone: its devices cannot be allocated. If it does not come back within some
    /// minutes, the resource is to be removed from the node; the daemon keeps that time.
    Gone { resource: String },
    /// The helper has named all resources that it knows.
    Told {},
    /// What the helper cannot do now, a line for each with its reason; it tries again. Sent after `Told`, and with each
    /// change: all lines, also those that the daemon knows.
    Ready { refused: Vec<String> },
    /// The plugin has allocated these devices.
    Allocated {
        id: u64,
        /// Sorted.
        ids: Vec<String>,
        /// The plugin wants `PreStart` before every start of the container.
        pre_start: bool,
        /// [`Edits`] as JSON, checked by [`are_edits`].
        edits: Value,
    },
    /// The container may start.
    Prepared { id: u64 },
    /// An order has failed.
    Failed {
        id: u64,
        why: String,
        /// Worth another attempt, at the latest when `Devices` of the resource come: the plugin is not connected, was
        /// restarted meanwhile, or the helper has too many orders. Otherwise the plugin has refused. For a volume: its
        /// driver is not registered, and another attempt is worth it when `Drivers` names it. Without `gone` it is
        /// repeated with back-off.
        gone: bool,
    },
    /// The volume is in the pod.
    Mounted {
        id: u64,
        /// Folder of the node to mount in containers; for a block volume the device.
        path: String,
    },
    /// The volume is not in the pod.
    Unmounted { id: u64 },
    /// All CSI drivers of the node, whenever one has come or gone: a list of objects with `name`, `nodeID`,
    /// `topologyKeys`, `allocatable` (`{"count": …}` or absent) and `labels` (the topology of the node).
    Drivers { drivers: Value },
    /// The driver wants the volume published again (`requiresRepublish`): answered by a fresh `Mount`.
    Again { pod: String, volume: String },
    /// A client of podresources waits for what pods have. Answered by `Resources` with the same number.
    AskResources { id: u64, what: Asked },
    /// Answer to `Ping`.
    Pong {},
    /// For `edge-runtime status`, which shows the `text` in it; sent when it has changed, at most once a second.
    Counters { counters: Value },
}

/// A device of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub id: String,
    pub healthy: bool,
    /// NUMA nodes that it is near to.
    pub numa: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn lines_are_as_documented() {
        let line = |line: &str| serde_json::from_str::<ToHelper>(line).expect("a line");
        let settings = Settings {
            root: "/var/lib/kubelet".into(),
            device_plugins: true,
            pod_resources: false,
            csi: false,
            csi_controllers: BTreeMap::new(),
            cdi_folders: vec!["/etc/cdi".into(), "/var/run/cdi".into()],
            taken: vec!["example.com/serial".into()],
        };
        assert_eq!(
            line(
                r#"{"daemon":{"version":2,"node":"n","settings":{"root":"/var/lib/kubelet","devicePlugins":true,
                "podResources":false,"csi":false,"csiControllers":{},"cdiFolders":["/etc/cdi","/var/run/cdi"],"taken":["example.com/serial"]}}}"#
            ),
            ToHelper::Daemon { version: 2, node: "n".into(), settings }
        );
        let allocate = ToHelper::Allocate {
            id: 1,
            resource: "example.com/gpu".into(),
            pod: "default/web".into(),
            container: "c".into(),
            had: Vec::new(),
            free: vec!["a".into()],
            count: 1,
        };
        let text = r#"{"allocate":{"id":1,"resource":"example.com/gpu","pod":"default/web","container":"c","had":[],"free":["a"],"count":1}}"#;
        assert_eq!(line(text), allocate);
        assert_eq!(serde_json::to_string(&allocate).expect("JSON"), text);
        assert_eq!(
            line(r#"{"preStart":{"id":2,"resource":"r","ids":["a"]}}"#),
            ToHelper::PreStart { id: 2, resource: "r".into(), ids: vec!["a".into()] }
        );
        assert_eq!(line(r#"{"ping":{}}"#), ToHelper::Ping {});
        assert_eq!(line(r#"{"keep":{"pods":["u"]}}"#), ToHelper::Keep { pods: vec!["u".into()] });
        assert_eq!(
            line(r#"{"unmount":{"id":4,"pod":"u","volume":"v"}}"#),
            ToHelper::Unmount { id: 4, pod: "u".into(), volume: "v".into() }
        );
        let mount = r#"{"mount":{"id":3,"mount":{"driver":"d.example.com","handle":"h","volume":"pv","pod":{"uid":"u","name":"n","namespace":"ns","serviceAccount":"default"},"source":{"driver":"d.example.com"},"inline":false,"accessModes":["ReadWriteOnce"],"mountOptions":["noatime"],"block":false,"readOnly":true,"fsGroup":2000,"fsGroupOnRootMismatch":true,"driverObject":{"attachRequired":false},"attachment":null,"stageSecret":{"k":"dg=="},"publishSecret":null,"tokens":null,"capacity":1048576}}}"#;
        assert_eq!(serde_json::to_string(&line(mount)).expect("JSON"), mount);
    }

    #[test]
    fn longest_lines_fit() {
        // A quotation mark takes two bytes in JSON; nothing that is allowed takes more.
        let id = "\"".repeat(MAX_ID);
        let device = Device { id: id.clone(), healthy: false, numa: vec![i64::MIN; MAX_NUMA] };
        let all = vec![device; MAX_DEVICES];
        let line = FromHelper::Devices { resource: "r".repeat(MAX_ID), all };
        assert!(serde_json::to_vec(&line).expect("JSON").len() < MAX_LINE);
        let line = ToHelper::Allocate {
            id: u64::MAX,
            resource: "r".repeat(MAX_ID),
            pod: "p".repeat(2 * MAX_ID),
            container: "c".repeat(MAX_ID),
            had: Vec::new(),
            free: vec![id; MAX_DEVICES],
            count: u32::MAX,
        };
        assert!(serde_json::to_vec(&line).expect("JSON").len() < MAX_LINE);
    }
}
