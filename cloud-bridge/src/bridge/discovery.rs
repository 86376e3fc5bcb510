//! What the API serves of a group, and why a reading of its kinds ends.

use std::time::Duration;

use kube::runtime::watcher;
use serde_json::Value;

use super::requests::{Requests, code};

/// Interval of checks whether the API has started to serve a kind: one small request, and only while a node needs the
/// kind. The first object often follows the definitions within a second.
pub(super) const UNSERVED: Duration = Duration::from_secs(1);
/// Pause after a failed check, doubled up to the second value.
pub(super) const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Number of refusals after which a list counts as refused: an API server that has just started refuses requests that
/// it will allow.
const REFUSALS: u32 = 5;

/// Returns the discovery of a group; null if the group does not exist. `api`: group and version.
pub(super) async fn of_group(requests: &Requests, api: &str) -> kube::Result<Value> {
    match requests.get(&format!("/apis/{api}")).await {
        // By its code alone: the message names no object.
        Err(error) if code(&error) == Some(404) => Ok(Value::Null),
        resources => resources,
    }
}

/// Whether a group's discovery has a resource of this name; false for malformed discovery.
pub(super) fn has(resources: &Value, name: &str) -> bool {
    resources["resources"].as_array().into_iter().flatten().any(|one| one["name"] == name)
}

/// Reason why a reading has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// A newer reading is requested.
    Stale,
    /// The API no longer serves them.
    Gone,
    /// The bridge may not read them.
    Refused,
}

/// Number of refused lists of one reading.
#[derive(Default)]
pub(super) struct Refusals(u32);

impl Refusals {
    /// Takes an error of a watch. Returns why the reading is over, if it is. `read`: everything was listed once.
    pub(super) fn take(&mut self, error: &watcher::Error, read: bool) -> Option<Over> {
        match answer(error) {
            Some(404) => return Some(Over::Gone),
            Some(403) if !read => self.0 += 1,
            _ => {}
        }
        (self.0 >= REFUSALS).then_some(Over::Refused)
    }
}

/// The HTTP status with which the API refused a list or a watch.
fn answer(error: &watcher::Error) -> Option<u16> {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) => code(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn initial_lists_count_as_refused_after_some_refusals() {
        let error = |code| {
            let status = Status::failure("m", "r").with_code(code);
            watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
        };
        let mut refusals = Refusals::default();
        for _ in 1..REFUSALS {
            assert_eq!(refusals.take(&error(403), false), None);
            assert_eq!(refusals.take(&error(403), true), None, "a watch is started again");
            assert_eq!(refusals.take(&error(503), false), None);
        }
        assert_eq!(refusals.take(&error(404), false), Some(Over::Gone));
        assert_eq!(refusals.take(&error(403), false), Some(Over::Refused));
    }
}
