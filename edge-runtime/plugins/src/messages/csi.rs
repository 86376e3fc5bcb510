//! `csi.v1.Node`: requests about a volume. Fields are those of `csi.proto` in container-storage-interface/spec.

use sampan_sys::vec_map::VecMap;

use crate::wire::Writer;

pub(crate) const STAGE: &str = "/csi.v1.Node/NodeStageVolume";
pub(crate) const UNSTAGE: &str = "/csi.v1.Node/NodeUnstageVolume";
pub(crate) const PUBLISH: &str = "/csi.v1.Node/NodePublishVolume";
pub(crate) const UNPUBLISH: &str = "/csi.v1.Node/NodeUnpublishVolume";
pub(crate) const EXPAND: &str = "/csi.v1.Node/NodeExpandVolume";

/// Names and values: attributes of a volume, secrets.
pub(crate) type Map = VecMap<String, String>;

/// A `VolumeCapability`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Number of the `AccessMode.Mode`.
    pub(crate) mode: i64,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Mount {
        fs_type: String,
        flags: Vec<String>,
        /// fsGroup, for a driver that applies it.
        group: Option<i64>,
    },
}

impl Access {
    fn written(&self) -> Writer {
        let access = match &self.kind {
            Kind::Block => Writer::default().bytes(1, &[]),
            Kind::Mount { fs_type, flags, group } => {
                let group = group.map_or_else(String::new, |group| group.to_string());
                let flags = flags.iter().map(String::as_str);
                Writer::default().message(2, Writer::default().text(1, fs_type).texts(2, flags).text(3, &group))
            }
        };
        access.message(3, Writer::default().signed(1, self.mode))
    }
}

fn map(writer: Writer, number: u32, map: &Map) -> Writer {
    map.iter()
        .fold(writer, |writer, (key, value)| writer.message(number, Writer::default().text(1, key).text(2, value)))
}

/// A `NodeStageVolumeRequest`.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) handle: &'a str,
    pub(crate) staging: &'a str,
    pub(crate) access: &'a Access,
    pub(crate) publish_context: &'a Map,
    pub(crate) secrets: &'a Map,
    pub(crate) context: &'a Map,
}

impl Stage<'_> {
    pub(crate) fn written(&self) -> Vec<u8> {
        let message = map(Writer::default().text(1, self.handle), 2, self.publish_context);
        let message = message.text(3, self.staging).message(4, self.access.written());
        map(map(message, 5, self.secrets), 6, self.context).finish()
    }
}

/// A `NodePublishVolumeRequest`.
#[derive(Debug)]
pub(crate) struct Publish<'a> {
    pub(crate) handle: &'a str,
    /// Empty for a volume that is not staged.
    pub(crate) staging: &'a str,
    pub(crate) target: &'a str,
    pub(crate) access: &'a Access,
    pub(crate) read_only: bool,
    pub(crate) publish_context: &'a Map,
    pub(crate) secrets: &'a Map,
    pub(crate) context: &'a Map,
}

impl Publish<'_> {
    pub(crate) fn written(&self) -> Vec<u8> {
        let message = map(Writer::default().text(1, self.handle), 2, self.publish_context);
        let message = message.text(3, self.staging).text(4, self.target).message(5, self.access.written());
        map(map(message.flag(6, self.read_only), 7, self.secrets), 8, self.context).finish()
    }
}

/// A `NodeUnpublishVolumeRequest` or `NodeUnstageVolumeRequest`: they have the same fields.
pub(crate) fn undo(handle: &str, path: &str) -> Vec<u8> {
    Writer::default().text(1, handle).text(2, path).finish()
}

/// A `NodeExpandVolumeRequest`.
pub(crate) fn expand(handle: &str, path: &str, bytes: i64, staging: &str, access: &Access) -> Vec<u8> {
    let range = Writer::default().signed(1, bytes);
    let message = Writer::default().text(1, handle).text(2, path).message(3, range).text(4, staging);
    message.message(5, access.written()).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> Map {
        [(key.to_owned(), value.to_owned())].into_iter().collect()
    }

    #[test]
    fn requests_have_the_fields_of_csi() {
        let mount = Kind::Mount { fs_type: "ext4".into(), flags: vec!["noatime".into()], group: Some(7) };
        let access = Access { mode: 1, kind: mount };
        let (publish, secrets, context) = (one("p", "1"), one("s", "2"), one("c", "3"));
        let capability = b"\x12\x12\x0a\x04ext4\x12\x07noatime\x1a\x017\x1a\x02\x08\x01";
        let (handle, access) = ("h", &access);
        let stage =
            Stage { handle, staging: "/s", access, publish_context: &publish, secrets: &secrets, context: &context };
        let wanted = [
            &b"\x0a\x01h\x12\x06\x0a\x01p\x12\x011\x1a\x02/s\x22\x18"[..],
            capability,
            b"\x2a\x06\x0a\x01s\x12\x012\x32\x06\x0a\x01c\x12\x013",
        ];
        assert_eq!(stage.written(), wanted.concat());
        let publish = Publish {
            handle,
            staging: "/s",
            target: "/t",
            access,
            read_only: true,
            publish_context: &publish,
            secrets: &secrets,
            context: &context,
        };
        let wanted = [
            &b"\x0a\x01h\x12\x06\x0a\x01p\x12\x011\x1a\x02/s\x22\x02/t\x2a\x18"[..],
            capability,
            b"\x30\x01\x3a\x06\x0a\x01s\x12\x012\x42\x06\x0a\x01c\x12\x013",
        ];
        assert_eq!(publish.written(), wanted.concat());
        assert_eq!(undo("h", "/t"), b"\x0a\x01h\x12\x02/t");
        let block = Access { mode: 5, kind: Kind::Block };
        let wanted = b"\x0a\x01h\x12\x02/t\x1a\x03\x08\x80\x08\x22\x02/s\x2a\x06\x0a\x00\x1a\x02\x08\x05";
        assert_eq!(expand("h", "/t", 1_024, "/s", &block), wanted);
    }
}
