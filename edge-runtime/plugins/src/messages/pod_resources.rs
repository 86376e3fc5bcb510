//! `v1.PodResourcesLister`: which pod has which device.

use sampan_plugins_control::{Asked, ContainerResources, PodResources};

use crate::wire::{Malformed, Writer, fields};

const LIST: &str = "/v1.PodResourcesLister/List";
const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";
const GET: &str = "/v1.PodResourcesLister/Get";

/// Looks up the NUMA nodes of a device: none are known if its plugin has gone.
pub(crate) type Numa<'a> = &'a dyn Fn(&str, &str) -> Vec<i64>;

/// What a call asks for. `None`: there is no such method.
///
/// # Errors
/// The bytes are no `GetPodResourcesRequest`.
pub(crate) fn asked(path: &str, message: &[u8]) -> Result<Option<Asked>, Malformed> {
    Ok(match path {
        LIST => Some(Asked::List {}),
        ALLOCATABLE => Some(Asked::Allocatable {}),
        GET => {
            let (mut name, mut namespace) = (String::new(), String::new());
            for field in fields(message) {
                match field? {
                    (1, value) => value.text()?.clone_into(&mut name),
                    (2, value) => value.text()?.clone_into(&mut namespace),
                    _ => {}
                }
            }
            Some(Asked::Get { namespace, name })
        }
        _ => None,
    })
}

/// A `ListPodResourcesResponse`, and a `GetPodResourcesResponse` for one pod: both have pods in field 1.
pub(crate) fn pods(pods: &[PodResources], numa: Numa<'_>) -> Vec<u8> {
    pods.iter().fold(Writer::default(), |all, each| all.message(1, pod(each, numa))).finish()
}

fn pod(pod: &PodResources, numa: Numa<'_>) -> Writer {
    let head = Writer::default().text(1, &pod.name).text(2, &pod.namespace);
    pod.containers.iter().fold(head, |all, each| all.message(3, container(each, numa)))
}

fn container(container: &ContainerResources, numa: Numa<'_>) -> Writer {
    let mut all = Writer::default().text(1, &container.name);
    for assigned in &container.devices {
        for id in &assigned.ids {
            all = device(all, 2, &assigned.resource, id, &numa(&assigned.resource, id));
        }
    }
    all.list(3, &container.cpus)
}

/// Adds a device once for each of its NUMA nodes, as `containerDevicesFromResourceDeviceInstances` of Kubernetes'
/// `pkg/kubelet/cm/helpers_linux.go` does.
fn device(all: Writer, number: u32, resource: &str, id: &str, numa: &[i64]) -> Writer {
    let plain = || Writer::default().text(1, resource).text(2, id);
    if numa.is_empty() {
        return all.message(number, plain());
    }
    numa.iter().fold(all, |all, node| {
        let topology = Writer::default().message(1, Writer::default().signed(1, *node));
        all.message(number, plain().message(3, topology))
    })
}

/// An `AllocatableResourcesResponse`. Devices are resource, name and NUMA nodes.
pub(crate) fn allocatable<'a>(devices: impl Iterator<Item = (&'a str, &'a str, &'a [i64])>, cpus: &[i64]) -> Vec<u8> {
    devices
        .fold(Writer::default(), |all, (resource, id, numa)| device(all, 1, resource, id, numa))
        .list(2, cpus)
        .finish()
}

#[cfg(test)]
mod tests {
    use sampan_plugins_control::Assigned;

    use super::*;

    #[test]
    fn requests_are_read() {
        assert_eq!(asked(LIST, b""), Ok(Some(Asked::List {})));
        assert_eq!(asked(ALLOCATABLE, b""), Ok(Some(Asked::Allocatable {})));
        let get = Asked::Get { namespace: "ns".into(), name: "p".into() };
        assert_eq!(asked(GET, b"\x0a\x01p\x12\x02ns"), Ok(Some(get)));
        assert_eq!(asked(GET, b"\x0a"), Err(Malformed));
        assert_eq!(asked("/v1.PodResourcesLister/Watch", b""), Ok(None));
    }

    #[test]
    fn pods_have_their_devices_by_numa_node() {
        let numa = |resource: &str, id: &str| if (resource, id) == ("r", "a") { vec![0_i64, 1] } else { Vec::new() };
        let all = [PodResources {
            namespace: "ns".into(),
            name: "p".into(),
            containers: vec![ContainerResources {
                name: "c".into(),
                devices: vec![Assigned { resource: "r".into(), ids: vec!["a".into(), "b".into()] }],
                cpus: vec![2, 3],
            }],
        }];
        // Node 0 is the default: its message is empty.
        let devices = b"\x12\x0a\x0a\x01r\x12\x01a\x1a\x02\x0a\x00\x12\x0c\x0a\x01r\x12\x01a\x1a\x04\x0a\x02\x08\x01\
            \x12\x06\x0a\x01r\x12\x01b\x1a\x02\x02\x03";
        let mut container = b"\x0a\x01c".to_vec();
        container.extend_from_slice(devices);
        let mut pod = b"\x0a\x01p\x12\x02ns\x1a".to_vec();
        pod.push(u8::try_from(container.len()).expect("short"));
        pod.extend(container);
        let mut expected = vec![0x0a, u8::try_from(pod.len()).expect("short")];
        expected.extend(pod);
        assert_eq!(pods(&all, &numa), expected);
        assert_eq!(pods(&[], &numa), b"");
    }

    #[test]
    fn allocatable_has_devices_and_cpus() {
        let devices = [("r", "a", &[][..])];
        assert_eq!(allocatable(devices.into_iter(), &[1]), b"\x0a\x06\x0a\x01r\x12\x01a\x12\x01\x01");
    }
}
