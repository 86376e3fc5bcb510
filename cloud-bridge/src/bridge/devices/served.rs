//! Which kinds of devices.kubeedge.io the API served at the last check. Knows nothing of watches.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;

use crate::bridge::discovery::has;
use crate::bridge::followed::follow::{LOOK, LOOK_SOON, Look};

/// Kinds that the API serves, by its discovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    /// Devices and their models.
    pub(super) devices: bool,
    pub(super) statuses: bool,
    /// Whether statuses are a subresource: the main resource then ignores the status.
    pub(super) subresource: bool,
}

#[derive(Default)]
pub(super) struct Looks {
    served: Mutex<Served>,
    again: Notify,
}

impl Looks {
    fn lock(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn served(&self) -> Served {
        *self.lock()
    }

    /// Requests a new check, because an answer of the API contradicts the last one.
    pub(super) fn again(&self) {
        self.again.notify_one();
    }
}

impl Look for Looks {
    fn serves(&self, resources: &Value) -> bool {
        let served = read(resources);
        *self.lock() = served;
        served.devices
    }

    fn patience(&self) -> Duration {
        // The definition of statuses may be created a moment after those of Devices.
        if self.served().statuses { LOOK } else { LOOK_SOON }
    }

    async fn asked(&self) {
        self.again.notified().await;
    }
}

fn read(resources: &Value) -> Served {
    let has = |name: &str| has(resources, name);
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
