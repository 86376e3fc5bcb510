//! `AllocateResponse`, for one container.

use sampan_plugins_control::{DeviceNode, MAX_EDITS, Mount, Pair};

use super::device_plugin::MAX_ANSWER;
use super::push;
use crate::wire::{Malformed, fields};

/// What a plugin wants for a container, as it says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) env: Vec<Pair>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) devices: Vec<DeviceNode>,
    pub(crate) annotations: Vec<Pair>,
    /// Names of CDI devices, without those of annotations.
    cdi: Vec<String>,
}

/// Annotations that name CDI devices, for container runtimes that know no field for them.
const CDI_PREFIX: &str = "cdi.k8s.io/";

impl Allocated {
    /// # Errors
    /// It is malformed, over a limit, or for no container; the text says what.
    pub(crate) fn read(message: &[u8]) -> Result<Self, String> {
        if message.len() > MAX_ANSWER {
            return Err(format!("the answer has {} bytes, and {MAX_ANSWER} are allowed", message.len()));
        }
        for field in fields(message) {
            if let (1, container) = field.map_err(malformed)? {
                return container_response(container.bytes().map_err(malformed)?);
            }
        }
        // The kubelet's text.
        Err("no containers return in allocation response".to_owned())
    }

    /// Names of all CDI devices: those of the field, then those of annotations, separated by commas. As in containerd,
    /// a device may be in both.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn cdi_devices(&self) -> Result<Vec<&str>, String> {
        let is_cdi = |pair: &&Pair| pair.name.starts_with(CDI_PREFIX);
        let annotated = self.annotations.iter().filter(is_cdi).flat_map(|pair| pair.value.split(','));
        let mut all = Vec::new();
        for name in self.cdi.iter().map(String::as_str).chain(annotated) {
            if !all.contains(&name) {
                push(&mut all, name, MAX_EDITS, "CDI devices")?;
            }
        }
        Ok(all)
    }
}

fn malformed(error: Malformed) -> String {
    error.to_string()
}

fn container_response(message: &[u8]) -> Result<Allocated, String> {
    let mut all = Allocated::default();
    for field in fields(message) {
        let (number, value) = field.map_err(malformed)?;
        if !(1..=5).contains(&number) {
            continue;
        }
        let bytes = value.bytes().map_err(malformed)?;
        match number {
            1 => push(&mut all.env, pair(bytes).map_err(malformed)?, MAX_EDITS, "environment variables")?,
            2 => push(&mut all.mounts, mount(bytes).map_err(malformed)?, MAX_EDITS, "mounts")?,
            3 => push(&mut all.devices, device(bytes).map_err(malformed)?, MAX_EDITS, "device nodes")?,
            4 => push(&mut all.annotations, pair(bytes).map_err(malformed)?, MAX_EDITS, "annotations")?,
            _ => push(&mut all.cdi, first_text(bytes).map_err(malformed)?, MAX_EDITS, "CDI devices")?,
        }
    }
    Ok(all)
}

/// An entry of a map.
fn pair(message: &[u8]) -> Result<Pair, Malformed> {
    let mut pair = Pair { name: String::new(), value: String::new() };
    for field in fields(message) {
        match field? {
            (1, value) => value.text()?.clone_into(&mut pair.name),
            (2, value) => value.text()?.clone_into(&mut pair.value),
            _ => {}
        }
    }
    Ok(pair)
}

fn mount(message: &[u8]) -> Result<Mount, Malformed> {
    let mut mount = Mount { container: String::new(), host: String::new(), read_only: false, options: Vec::new() };
    for field in fields(message) {
        match field? {
            (1, value) => value.text()?.clone_into(&mut mount.container),
            (2, value) => value.text()?.clone_into(&mut mount.host),
            (3, value) => mount.read_only = value.flag()?,
            _ => {}
        }
    }
    Ok(mount)
}

fn device(message: &[u8]) -> Result<DeviceNode, Malformed> {
    let mut device = DeviceNode {
        container: String::new(),
        host: String::new(),
        permissions: String::new(),
        number: None,
        mode: None,
        uid: None,
        gid: None,
    };
    for field in fields(message) {
        match field? {
            (1, value) => value.text()?.clone_into(&mut device.container),
            (2, value) => value.text()?.clone_into(&mut device.host),
            (3, value) => value.text()?.clone_into(&mut device.permissions),
            _ => {}
        }
    }
    Ok(device)
}

fn first_text(message: &[u8]) -> Result<String, Malformed> {
    let mut text = String::new();
    for field in fields(message) {
        if let (1, value) = field? {
            value.text()?.clone_into(&mut text);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Writer;

    fn pair_of(name: &str, value: &str) -> Writer {
        Writer::default().text(1, name).text(2, value)
    }

    #[test]
    fn answer_is_read() {
        let container = Writer::default()
            .message(1, pair_of("GPU", "0"))
            .message(1, pair_of("EMPTY", ""))
            .message(2, Writer::default().text(1, "/lib/x").text(2, "/opt/x").flag(3, true))
            .message(3, Writer::default().text(1, "/dev/a").text(2, "/dev/b").text(3, "rw"))
            .message(4, pair_of("k", "v"))
            .message(5, Writer::default().text(1, "v.com/c=0"));
        let message = Writer::default().message(1, container).message(1, Writer::default()).finish();
        let read = Allocated::read(&message).expect("an answer");
        let pair = |name: &str, value: &str| Pair { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(read.env, [pair("GPU", "0"), pair("EMPTY", "")]);
        assert_eq!(read.annotations, [pair("k", "v")]);
        assert_eq!((read.mounts[0].container.as_str(), read.mounts[0].host.as_str()), ("/lib/x", "/opt/x"));
        assert!(read.mounts[0].read_only);
        let device = &read.devices[0];
        assert_eq!([&device.container, &device.host, &device.permissions], ["/dev/a", "/dev/b", "rw"]);
        assert_eq!(read.cdi, ["v.com/c=0"]);
        assert_eq!(
            Allocated::read(&Writer::default().message(1, Writer::default()).finish()),
            Ok(Allocated::default())
        );
    }

    #[test]
    fn annotations_name_cdi_devices_as_well() {
        let container = Writer::default()
            .message(4, pair_of("cdi.k8s.io/plugin_0", "v.com/c=1,v.com/c=0"))
            .message(4, pair_of("cdi.k8s.iox", "v.com/c=2"))
            .message(4, pair_of("cdi.k8s.io/", ""))
            .message(5, Writer::default().text(1, "v.com/c=0"));
        let read = Allocated::read(&Writer::default().message(1, container).finish()).expect("an answer");
        assert_eq!(read.cdi_devices(), Ok(vec!["v.com/c=0", "v.com/c=1", ""]));
        let many: Vec<_> = (0..=MAX_EDITS).map(|number| format!("v.com/c={number}")).collect();
        let container = Writer::default().message(4, pair_of("cdi.k8s.io/a", &many.join(",")));
        let read = Allocated::read(&Writer::default().message(1, container).finish()).expect("an answer");
        assert_eq!(read.cdi_devices(), Err("there are more than 128 CDI devices".to_owned()));
    }

    #[test]
    fn answer_over_a_limit_or_without_a_container_is_refused() {
        let why = |message: &[u8]| Allocated::read(message).expect_err("refused");
        assert_eq!(why(&[]), "no containers return in allocation response");
        assert!(why(&vec![0; MAX_ANSWER + 1]).contains("1048576 are allowed"));
        for (number, what) in
            [(1, "environment variables"), (2, "mounts"), (3, "device nodes"), (4, "annotations"), (5, "CDI devices")]
        {
            let add = |container: Writer, _| container.message(number, Writer::default());
            let container = (0..=MAX_EDITS).fold(Writer::default(), add);
            assert_eq!(
                why(&Writer::default().message(1, container).finish()),
                format!("there are more than 128 {what}")
            );
        }
        for wrong in [&b"\x08\x01"[..], b"\x0a\x02\x08\x01", b"\x0a\x05\x0a\x03\x0a\x01\xff", b"\x0a"] {
            assert!(why(wrong).contains("no protobuf message"), "{wrong:?}");
        }
    }
}
