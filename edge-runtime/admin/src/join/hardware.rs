//! What this board reports about itself to enrol with a claim token. Reads below a root; the bridge judges what it is worth.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use edge_runtime::link::join::Hardware;

/// Maximum length of a text, in bytes, and number of network addresses; the bridge takes no more.
const LONGEST: u64 = 128;
const MACS: usize = 32;

pub(crate) fn look(root: &Path) -> Hardware {
    let first = |places: &[&str]| places.iter().find_map(|place| text(&root.join(place))).unwrap_or_default();
    Hardware {
        serial: first(&["proc/device-tree/serial-number", "sys/class/dmi/id/product_serial"]),
        mac: macs(&root.join("sys/class/net")),
        model: first(&["proc/device-tree/model", "sys/class/dmi/id/product_name"]),
        machine_id: first(&["etc/machine-id"]),
    }
}

/// The first line of a file, without what is not printable ASCII; strings of the device tree end with a zero.
fn text(file: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    let line = bytes.split(|byte| matches!(byte, b'\n' | 0)).next()?;
    let plain: String = line.iter().filter(|byte| matches!(byte, b' '..=b'~')).map(|byte| char::from(*byte)).collect();
    let plain = plain.trim();
    (!plain.is_empty()).then(|| plain.to_owned())
}

/// Permanent addresses (`NET_ADDR_PERM`, linux/netdevice.h) of Ethernet devices that are hardware, sorted.
fn macs(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let device = entry.path();
        let says = |file: &str, value: &str| text(&device.join(file)).as_deref() == Some(value);
        if device.join("device").exists() && says("addr_assign_type", "0") && says("type", "1") {
            found.extend(text(&device.join("address")).filter(|address| address.len() == 17));
        }
    }
    found.sort_unstable();
    found.truncate(MACS);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, content: &[u8]) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    #[test]
    fn board_reports_what_its_firmware_says() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(look(root), Hardware::default());
        write(root, "sys/class/dmi/id/product_serial", b"DMI-1\n");
        write(root, "etc/machine-id", b"0f0f\n");
        assert_eq!(look(root).serial, "DMI-1");
        write(root, "proc/device-tree/serial-number", b"10000000abcd1234\0");
        write(root, "proc/device-tree/model", b"Raspberry \xff\x07Pi 4\0");
        for (device, assigned, kind, address) in [
            ("wlan0", "0", "1", "b8:27:eb:00:00:02"),
            ("eth0", "0", "1", "b8:27:eb:00:00:01"),
            ("usb0", "1", "1", "02:00:00:00:00:01"),
            ("can0", "0", "280", "00:00:00:00:00:00"),
        ] {
            fs::create_dir_all(root.join("sys/class/net").join(device).join("device")).unwrap();
            for (file, content) in [("addr_assign_type", assigned), ("type", kind), ("address", address)] {
                write(root, &format!("sys/class/net/{device}/{file}"), format!("{content}\n").as_bytes());
            }
        }
        let found = look(root);
        assert_eq!((found.serial.as_str(), found.model.as_str()), ("10000000abcd1234", "Raspberry Pi 4"));
        assert_eq!(
            (found.mac.join(" ").as_str(), found.machine_id.as_str()),
            ("b8:27:eb:00:00:01 b8:27:eb:00:00:02", "0f0f")
        );
    }
}
