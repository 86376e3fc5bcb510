//! What the bridge asks a node to serve over a stream. Values only.

use serde::{Deserialize, Serialize};

/// Number of a stream (logs, exec, ...), chosen by the side that opens it, never reused within a connection. The bridge's
/// are below [`EDGE_STREAMS`](crate::stream::EDGE_STREAMS).
pub type StreamId = u64;

/// What the bridge asks a node to serve over a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum StreamRequest {
    /// Container log, as the kubelet's `/containerLogs` (`PodLogOptions` of the core API).
    Logs {
        namespace: String,
        pod: String,
        uid: String,
        container: String,
        #[serde(default)]
        follow: bool,
        #[serde(default)]
        previous: bool,
        #[serde(default)]
        timestamps: bool,
        #[serde(default)]
        tail_lines: Option<u64>,
        #[serde(default)]
        since_seconds: Option<u64>,
        /// RFC 3339.
        #[serde(default)]
        since_time: Option<String>,
        #[serde(default)]
        limit_bytes: Option<u64>,
    },
    /// A command in a running container, as the kubelet's `/exec`. Bytes in both directions are records of
    /// [`channel`](crate::channel); the first from the edge is an empty one on `OPENED`, the last its `STATUS`.
    Exec {
        namespace: String,
        pod: String,
        uid: String,
        container: String,
        command: Vec<String>,
        #[serde(default)]
        stdin: bool,
        #[serde(default)]
        stdout: bool,
        #[serde(default)]
        stderr: bool,
        #[serde(default)]
        tty: bool,
    },
    /// The standard streams of a container's own process, as the kubelet's `/attach`. Records as for `Exec`.
    Attach {
        namespace: String,
        pod: String,
        uid: String,
        container: String,
        #[serde(default)]
        stdin: bool,
        #[serde(default)]
        stdout: bool,
        #[serde(default)]
        stderr: bool,
        #[serde(default)]
        tty: bool,
    },
    /// One TCP connection to a port inside the pod's network namespace. Records of [`channel`](crate::channel):
    /// `OPENED` when it is established, then `STDIN` towards the pod and `STDOUT` from it, each closed by `CLOSE`.
    PortForward { namespace: String, pod: String, uid: String, port: u16 },
    /// Usage of the node, its pods and their containers: the JSON of the kubelet's `/stats/summary`, then the end.
    Stats {},
    /// Forget this volume of the node with all that is in it: the name of a folder that the node has made for a
    /// PersistentVolume. The end without an error says that it is gone, as it is when there was none.
    DeleteVolume { volume: String },
    /// A call of the controller of a CSI driver on the node; `path` is gRPC's, `/csi.v1.Controller/CreateVolume`. Records as
    /// for `PortForward`: `STDIN` is the length of the message in four bytes (big endian), and the message;
    /// `STDOUT` is one byte with gRPC's code, the length of the rest in four bytes, and the answer or the text of the error.
    Csi { driver: String, path: String },
    /// A request this build does not know; answered by ending the stream with a reason.
    #[serde(other)]
    Unknown,
}
