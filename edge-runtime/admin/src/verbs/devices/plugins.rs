//! `edge-runtime devices plugins`: which containers have which devices of device plugins, from the folders of the pods, while
//! daemon and plugins run or not.

use edge_runtime::cli::CliError;
use edge_runtime::launch::devices::kept::Kept;
use edge_runtime::paths::Paths;
use sampan_pod::record::PodRecord;
use serde_json::{Value, json};

use crate::columns::columns;
use crate::find;
use crate::output::Form;

pub(super) fn run(paths: &Paths, form: Form) -> Result<(), CliError> {
    let devices = all(&find::stored_pods(paths)?, &Kept::load(paths));
    form.print(&devices, |_| table(&devices), || names(&devices))
}

/// An object for each device of a container.
fn all(pods: &[PodRecord], kept: &Kept) -> Vec<Value> {
    let mut all = Vec::new();
    for pod in pods {
        for has in kept.of_pod(&pod.uid) {
            all.extend(has.ids.iter().map(|id| {
                json!({"resource": has.resource, "device": id, "namespace": pod.namespace, "pod": pod.name,
                    "container": has.container})
            }));
        }
    }
    all
}

fn text<'a>(device: &'a Value, field: &str) -> &'a str {
    device[field].as_str().unwrap_or_default()
}

fn names(devices: &[Value]) -> Vec<String> {
    devices.iter().map(|device| format!("{}/{}", text(device, "resource"), text(device, "device"))).collect()
}

fn table(devices: &[Value]) -> String {
    let mut rows = vec![["RESOURCE", "DEVICE", "POD", "CONTAINER"].map(str::to_owned)];
    rows.extend(devices.iter().map(|device| {
        let pod = format!("{}/{}", text(device, "namespace"), text(device, "pod"));
        [
            text(device, "resource").to_owned(),
            text(device, "device").to_owned(),
            pod,
            text(device, "container").to_owned(),
        ]
    }));
    columns(&rows, "   ")
}

#[cfg(test)]
mod tests {
    use edge_runtime::launch::devices::kept::Allocation;

    use super::*;

    #[test]
    fn each_device_has_its_container() {
        let mut kept = Kept::default();
        let some = |uid: &str, ids: &[&str]| Allocation {
            uid: uid.to_owned(),
            container: "c".to_owned(),
            resource: "example.com/gpu".to_owned(),
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..Allocation::default()
        };
        kept.put(some("u", &["0", "1"]));
        kept.put(some("gone", &["2"]));
        let pod =
            |uid: &str| PodRecord { uid: uid.into(), namespace: "ns".into(), name: uid.into(), ..Default::default() };
        let devices = all(&[pod("u"), pod("v")], &kept);
        assert_eq!(names(&devices), ["example.com/gpu/0", "example.com/gpu/1"]);
        let shown = table(&devices);
        assert_eq!(shown.lines().count(), 3, "{shown}");
        assert!(shown.contains("example.com/gpu   1        ns/u   c"), "{shown}");
    }
}
