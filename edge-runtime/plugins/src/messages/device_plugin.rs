//! `v1beta1.DevicePlugin`: requests of this helper, and lists of devices.

use sampan_plugins_control::{Device, MAX_DEVICES, MAX_ID, MAX_NUMA};
use sampan_sys::vec_map::VecMap;

use super::push;
use crate::names::is_device_id;
use crate::wire::{Malformed, Writer, fields};

pub(crate) const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
pub(crate) const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
pub(crate) const PREFERRED: &str = "/v1beta1.DevicePlugin/GetPreferredAllocation";
pub(crate) const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";
pub(crate) const PRE_START: &str = "/v1beta1.DevicePlugin/PreStartContainer";

/// Longest list of devices, bytes: [`MAX_DEVICES`] with the longest names and their NUMA nodes.
const MAX_LIST: usize = 2 << 20;
/// Longest of the other answers, bytes.
pub(crate) const MAX_ANSWER: usize = 1 << 20;

/// The devices of a `ListAndWatchResponse`, sorted by name. Of two with one name the last one counts, as in the kubelet.
///
/// # Errors
/// It is malformed or over a limit; the text says what.
pub(crate) fn devices(message: &[u8]) -> Result<Vec<Device>, String> {
    if message.len() > MAX_LIST {
        return Err(format!("the list of devices has {} bytes, and {MAX_LIST} are allowed", message.len()));
    }
    let mut all = Vec::new();
    for field in fields(message) {
        if let (1, value) = field.map_err(|error| error.to_string())? {
            let device = device(value.bytes().map_err(|error| error.to_string())?)?;
            push(&mut all, device, MAX_DEVICES, "devices")?;
        }
    }
    let mut by_id = VecMap::new();
    // In order first: each is inserted at the end then.
    all.sort_by(|a, b| a.id.cmp(&b.id));
    for device in all {
        by_id.insert(device.id.clone(), device);
    }
    Ok(by_id.into_values().collect())
}

fn device(message: &[u8]) -> Result<Device, String> {
    let malformed = |error: Malformed| error.to_string();
    let mut device = Device { id: String::new(), healthy: false, numa: Vec::new() };
    for field in fields(message) {
        match field.map_err(malformed)? {
            (1, value) => value.text().map_err(malformed)?.clone_into(&mut device.id),
            (2, value) => device.healthy = value.text().map_err(malformed)? == "Healthy",
            (3, value) => {
                for field in fields(value.bytes().map_err(malformed)?) {
                    if let (1, node) = field.map_err(malformed)? {
                        let node = numa(node.bytes().map_err(malformed)?).map_err(malformed)?;
                        push(&mut device.numa, node, MAX_NUMA, "NUMA nodes of a device")?;
                    }
                }
            }
            _ => {}
        }
    }
    if !is_device_id(&device.id) {
        return Err(format!(
            "a device has the ID {:?}; it must have 1 to {MAX_ID} bytes and no control characters",
            device.id.chars().take(64).collect::<String>()
        ));
    }
    Ok(device)
}

fn numa(message: &[u8]) -> Result<i64, Malformed> {
    let mut id = 0;
    for field in fields(message) {
        if let (1, value) = field? {
            id = value.signed()?;
        }
    }
    Ok(id)
}

/// A `PreferredAllocationRequest` for one container.
pub(crate) fn preferred_request(available: &[&str], must: &[String], count: usize) -> Vec<u8> {
    let request = Writer::default()
        .texts(1, available.iter().copied())
        .texts(2, must.iter().map(String::as_str))
        .signed(3, i64::try_from(count).unwrap_or(i64::MAX));
    Writer::default().message(1, request).finish()
}

/// The devices of a `PreferredAllocationResponse` for one container.
///
/// # Errors
/// It is malformed or over a limit; the text says what.
pub(crate) fn preferred(message: &[u8]) -> Result<Vec<String>, String> {
    let malformed = |error: Malformed| error.to_string();
    let mut ids = Vec::new();
    if message.len() > MAX_LIST {
        return Err(format!("the answer has {} bytes, and {MAX_LIST} are allowed", message.len()));
    }
    for field in fields(message) {
        let (1, container) = field.map_err(malformed)? else { continue };
        for field in fields(container.bytes().map_err(malformed)?) {
            if let (1, id) = field.map_err(malformed)? {
                push(&mut ids, id.text().map_err(malformed)?.to_owned(), MAX_DEVICES, "devices")?;
            }
        }
        // One container was asked about.
        break;
    }
    Ok(ids)
}

/// An `AllocateRequest` for one container.
pub(crate) fn allocate_request(ids: &[String]) -> Vec<u8> {
    let request = Writer::default().texts(1, ids.iter().map(String::as_str));
    Writer::default().message(1, request).finish()
}

/// A `PreStartContainerRequest`.
pub(crate) fn pre_start_request(ids: &[String]) -> Vec<u8> {
    Writer::default().texts(1, ids.iter().map(String::as_str)).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(all: &[(&str, &str, &[i64])]) -> Vec<u8> {
        let device = |writer: Writer, (id, health, numa): &(&str, &str, &[i64])| {
            let mut device = Writer::default().text(1, id).text(2, health);
            if !numa.is_empty() {
                let nodes =
                    numa.iter().fold(Writer::default(), |nodes, id| nodes.message(1, Writer::default().signed(1, *id)));
                device = device.message(3, nodes);
            }
            writer.message(1, device)
        };
        all.iter().fold(Writer::default(), device).finish()
    }

    #[test]
    fn list_of_devices_is_read_in_order() {
        let message = list(&[("b", "Healthy", &[0, 1]), ("a", "Unhealthy", &[]), ("c", "", &[]), ("b", "sick", &[])]);
        let device = |id: &str, healthy| Device { id: id.to_owned(), healthy, numa: Vec::new() };
        assert_eq!(devices(&message), Ok(vec![device("a", false), device("b", false), device("c", false)]));
        let message = list(&[("b", "Healthy", &[0, 1])]);
        assert_eq!(devices(&message), Ok(vec![Device { numa: vec![0, 1], ..device("b", true) }]));
        assert_eq!(devices(&[]), Ok(Vec::new()));
    }

    #[test]
    fn list_over_a_limit_is_refused() {
        let ids: Vec<String> = (0..=MAX_DEVICES).map(|number| number.to_string()).collect();
        let all: Vec<(&str, &str, &[i64])> = ids.iter().map(|id| (id.as_str(), "Healthy", &[][..])).collect();
        assert_eq!(devices(&list(&all[1..])).map(|all| all.len()), Ok(MAX_DEVICES));
        let why = |message: &[u8]| devices(message).expect_err("refused");
        assert_eq!(why(&list(&all)), "there are more than 4096 devices");
        assert_eq!(why(&list(&[("a", "", &[0; MAX_NUMA + 1])])), "there are more than 8 NUMA nodes of a device");
        assert!(why(&list(&[("", "Healthy", &[])])).contains("a device has the ID \"\""));
        assert!(why(&list(&[("a\nb", "Healthy", &[])])).contains("a\\nb"));
        assert!(why(&list(&[(&"x".repeat(MAX_ID + 1), "Healthy", &[])])).contains("1 to 253 bytes"));
        assert!(why(&vec![0; MAX_LIST + 1]).contains("2097152 are allowed"));
        assert!(why(b"\x0a\x02").contains("no protobuf message"));
        assert!(why(b"\x0a\x02\x08\x01").contains("no protobuf message"));
        // Two bytes each: they are counted before they are kept.
        let many: Vec<u8> = b"\x0a\x03\x0a\x01a".repeat(MAX_DEVICES + 1);
        assert_eq!(why(&many), "there are more than 4096 devices");
    }

    #[test]
    fn requests_are_of_one_container() {
        let ids = ["a".to_owned(), "b".to_owned()];
        assert_eq!(allocate_request(&ids), b"\x0a\x06\x0a\x01a\x0a\x01b");
        assert_eq!(pre_start_request(&ids), b"\x0a\x01a\x0a\x01b");
        assert_eq!(preferred_request(&["a", "b"], &ids[..1], 2), b"\x0a\x0b\x0a\x01a\x0a\x01b\x12\x01a\x18\x02");
    }

    #[test]
    fn preference_is_of_the_first_container() {
        assert_eq!(preferred(b"\x0a\x06\x0a\x01b\x0a\x01a"), Ok(vec!["b".to_owned(), "a".to_owned()]));
        assert_eq!(preferred(b"\x0a\x03\x0a\x01b\x0a\x03\x0a\x01a"), Ok(vec!["b".to_owned()]));
        assert_eq!(preferred(b""), Ok(Vec::new()));
        assert!(preferred(b"\x0a\x06\x0a").is_err());
        assert!(preferred(b"\x08\x01").is_err());
    }
}
