//! `csi.v1.Identity` and `csi.v1.Node`: what a driver says of itself.

use super::csi::Map;
use crate::names::{is_label_key, is_label_value};
use crate::wire::{Malformed, Value, fields};

pub(crate) const PLUGIN_INFO: &str = "/csi.v1.Identity/GetPluginInfo";
pub(crate) const NODE_INFO: &str = "/csi.v1.Node/NodeGetInfo";
pub(crate) const CAPABILITIES: &str = "/csi.v1.Node/NodeGetCapabilities";

/// Longest answer, bytes.
const MAX_ANSWER: usize = 64 << 10;
/// Longest name of the node, bytes: `csiNodeIDLongerMaxLength` in Kubernetes' `pkg/apis/storage/validation`.
const MAX_NODE_ID: usize = 256;
/// Most topology keys. Each is a label of the Node.
const MAX_TOPOLOGY: usize = 32;

/// The driver's name in a `GetPluginInfoResponse`.
///
/// # Errors
/// It is malformed; the text says what.
pub(crate) fn plugin_name(message: &[u8]) -> Result<String, String> {
    let mut name = String::new();
    for field in within(message)? {
        if let (1, value) = field.map_err(malformed)? {
            value.text().map_err(malformed)?.clone_into(&mut name);
        }
    }
    Ok(name)
}

/// A `NodeGetInfoResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeInfo {
    pub(crate) id: String,
    /// Most volumes of the driver on the node; `None`: no limit.
    pub(crate) count: Option<i64>,
    pub(crate) topology: Map,
}

impl NodeInfo {
    /// # Errors
    /// It is malformed or over a limit; the text says what.
    pub(crate) fn read(message: &[u8]) -> Result<Self, String> {
        let mut info = Self::default();
        for field in within(message)? {
            match field.map_err(malformed)? {
                (1, value) => value.text().map_err(malformed)?.clone_into(&mut info.id),
                // Zero and less mean no limit, as in the kubelet's `nodeinfomanager`.
                (2, value) => {
                    let count = value.signed().map_err(malformed)?;
                    info.count = (count > 0).then(|| count.min(i64::from(i32::MAX)));
                }
                (3, value) => segments(value, &mut info.topology)?,
                _ => {}
            }
        }
        if info.id.is_empty() || info.id.len() > MAX_NODE_ID || info.id.chars().any(char::is_control) {
            return Err(format!("the node_id must have 1 to {MAX_NODE_ID} bytes and no control characters"));
        }
        Ok(info)
    }
}

fn segments(topology: Value<'_>, all: &mut Map) -> Result<(), String> {
    for field in fields(topology.bytes().map_err(malformed)?) {
        let (1, entry) = field.map_err(malformed)? else { continue };
        let (mut key, mut value) = ("", "");
        for field in fields(entry.bytes().map_err(malformed)?) {
            match field.map_err(malformed)? {
                (1, text) => key = text.text().map_err(malformed)?,
                (2, text) => value = text.text().map_err(malformed)?,
                _ => {}
            }
        }
        if !is_label_key(key) || !is_label_value(value) {
            return Err("a topology segment cannot be a label of a Node".to_owned());
        }
        all.insert(key.to_owned(), value.to_owned());
        if all.len() > MAX_TOPOLOGY {
            return Err(format!("there are more than {MAX_TOPOLOGY} topology segments"));
        }
    }
    Ok(())
}

/// What of a `NodeGetCapabilitiesResponse` matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// `STAGE_UNSTAGE_VOLUME`.
    pub(crate) stage: bool,
    /// `EXPAND_VOLUME`.
    pub(crate) expand: bool,
    /// `SINGLE_NODE_MULTI_WRITER`.
    pub(crate) multi_writer: bool,
    /// `VOLUME_MOUNT_GROUP`.
    pub(crate) mount_group: bool,
}

impl Capabilities {
    /// # Errors
    /// It is malformed; the text says what.
    pub(crate) fn read(message: &[u8]) -> Result<Self, String> {
        let mut read = Self::default();
        for field in within(message)? {
            let (1, capability) = field.map_err(malformed)? else { continue };
            for field in fields(capability.bytes().map_err(malformed)?) {
                let (1, rpc) = field.map_err(malformed)? else { continue };
                for field in fields(rpc.bytes().map_err(malformed)?) {
                    let (1, kind) = field.map_err(malformed)? else { continue };
                    match kind.signed().map_err(malformed)? {
                        1 => read.stage = true,
                        3 => read.expand = true,
                        5 => read.multi_writer = true,
                        6 => read.mount_group = true,
                        _ => {}
                    }
                }
            }
        }
        Ok(read)
    }
}

fn within(message: &[u8]) -> Result<crate::wire::Fields<'_>, String> {
    match message.len() > MAX_ANSWER {
        true => Err(format!("the answer has {} bytes, and {MAX_ANSWER} are allowed", message.len())),
        false => Ok(fields(message)),
    }
}

fn malformed(error: Malformed) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Writer;

    fn segment(key: &str, value: &str) -> Writer {
        Writer::default().message(1, Writer::default().text(1, key).text(2, value))
    }

    #[test]
    fn node_info_is_read() {
        let message = Writer::default().text(1, "n1").signed(2, 8).message(3, segment("topology.x/zone", "z1"));
        let info = NodeInfo::read(&message.finish()).expect("an answer");
        assert_eq!((info.id.as_str(), info.count), ("n1", Some(8)));
        assert_eq!(info.topology.get("topology.x/zone").map(String::as_str), Some("z1"));
        let count = |count| NodeInfo::read(&Writer::default().text(1, "n").signed(2, count).finish()).map(|i| i.count);
        assert_eq!([count(0), count(-1), count(i64::MAX)], [Ok(None), Ok(None), Ok(Some(i64::from(i32::MAX)))]);
    }

    #[test]
    fn wrong_node_info_is_refused() {
        let read = |message: Writer| NodeInfo::read(&message.finish());
        assert!(read(Writer::default()).is_err_and(|why| why.contains("1 to 256 bytes")));
        assert!(read(Writer::default().text(1, &"n".repeat(257))).is_err());
        assert!(read(Writer::default().text(1, "a\nb")).is_err());
        let long = "k".repeat(64);
        for (key, value) in [("", "v"), ("a/b/c", "v"), ("k", "a b"), (long.as_str(), "v"), ("-k", "v")] {
            let message = Writer::default().text(1, "n").message(3, segment(key, value));
            assert!(read(message).is_err_and(|why| why.contains("cannot be a label")), "{key}={value}");
        }
        let many = (0..=MAX_TOPOLOGY).fold(Writer::default().text(1, "n"), |message, number| {
            message.message(3, segment(&format!("k{number}"), "v"))
        });
        assert!(read(many).is_err_and(|why| why.contains("more than 32")));
        assert!(NodeInfo::read(&vec![0; MAX_ANSWER + 1]).is_err());
        assert!(NodeInfo::read(b"\x08\x01").is_err() && NodeInfo::read(b"\x0a\x01n\x1a\x02\x08\x01").is_err());
    }

    #[test]
    fn capabilities_are_read_and_unknown_ones_skipped() {
        let rpc = |kind| Writer::default().message(1, Writer::default().signed(1, kind));
        let message = [1, 2, 6, 99].iter().fold(Writer::default(), |all, kind| all.message(1, rpc(*kind)));
        let wanted = Capabilities { stage: true, mount_group: true, ..Capabilities::default() };
        assert_eq!(Capabilities::read(&message.finish()), Ok(wanted));
        assert_eq!(Capabilities::read(b""), Ok(Capabilities::default()));
        assert_eq!(Capabilities::read(b"\x0a\x00"), Ok(Capabilities::default()), "no rpc");
        assert!(Capabilities::read(b"\x0a\x02\x0a").is_err());
    }

    #[test]
    fn name_is_read() {
        let message = Writer::default().text(1, "nfs.csi.k8s.io").text(2, "4.0");
        assert_eq!(plugin_name(&message.finish()).as_deref(), Ok("nfs.csi.k8s.io"));
        assert_eq!(plugin_name(b"").as_deref(), Ok(""));
    }
}
