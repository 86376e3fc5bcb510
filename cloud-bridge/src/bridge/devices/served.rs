//! What of devices.kubeedge.io the API serves. Knows nothing of watches.

use serde_json::Value;

use crate::bridge::pod_references::DEVICES_API;
use crate::bridge::requests::Requests;

/// By its discovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    /// Devices and their models.
    pub(super) devices: bool,
    pub(super) statuses: bool,
    /// Statuses have a subresource: the main resource then takes no status.
    pub(super) subresource: bool,
}

/// What the API serves now. It is an answer that there is no such group.
pub(super) async fn look_up(requests: &Requests) -> kube::Result<Served> {
    match requests.get::<Value>(&format!("/apis/{DEVICES_API}")).await {
        Ok(resources) => Ok(read(&resources)),
        // By its code: there is no object of which it could speak.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Served::default()),
        Err(error) => Err(error),
    }
}

fn read(resources: &Value) -> Served {
    let has = |name: &str| resources["resources"].as_array().into_iter().flatten().any(|one| one["name"] == name);
    Served {
        devices: has("devices") && has("devicemodels"),
        statuses: has("devicestatuses"),
        subresource: has("devicestatuses/status"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_is_served_when_its_kinds_are() {
        let list = |names: &[&str]| {
            let resources: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
            read(&json!({ "resources": resources }))
        };
        let (devices, statuses) = (true, true);
        assert_eq!(list(&["devices", "devicemodels"]), Served { devices, ..Served::default() });
        assert_eq!(list(&["devices"]), Served::default(), "one of them is still being made");
        let all = ["devices", "devicemodels", "devicestatuses", "devicestatuses/status"];
        assert_eq!(list(&all[..3]), Served { devices, statuses, subresource: false });
        assert_eq!(list(&all), Served { devices, statuses, subresource: true });
        assert_eq!(read(&json!("nonsense")), Served::default());
    }
}
