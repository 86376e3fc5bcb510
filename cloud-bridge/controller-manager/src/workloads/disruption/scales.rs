//! Number of pods that controllers of unknown kinds want: the last reading of their `scale` (K8s
//! pkg/controller/disruption `getScaleController`). Pure; the reading is done elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// A number is read again after this, while a budget asks for it.
const FRESH: Duration = Duration::from_secs(30);
/// Maximum number of readings for one budget in one turn.
const AT_ONCE: usize = 8;

/// The numbers by the uid of the controller, or the error.
#[derive(Debug, Default)]
pub(crate) struct Scales {
    known: BTreeMap<String, (Duration, Result<i64, String>)>,
}

impl Scales {
    /// The number of a controller, as it was last read.
    pub(super) fn of(&self, uid: &str) -> Option<Result<i64, &str>> {
        self.known.get(uid).map(|(_, scale)| scale.as_ref().copied().map_err(String::as_str))
    }

    /// Time until the first of these must be read again.
    pub(super) fn due<'a>(&self, uids: impl Iterator<Item = &'a str>, now: Duration) -> Option<Duration> {
        uids.filter_map(|uid| Some((self.known.get(uid)?.0 + FRESH).saturating_sub(now))).min()
    }

    /// Returns those of the controllers to read now.
    pub(super) fn unread(&self, owners: Vec<OwnerReference>, now: Duration) -> Vec<OwnerReference> {
        let fresh = |uid: &str| self.known.get(uid).is_some_and(|(read, _)| now.saturating_sub(*read) < FRESH);
        owners.into_iter().filter(|owner| !fresh(&owner.uid)).take(AT_ONCE).collect()
    }

    /// Stores a reading, and drops those that are no longer used.
    pub(crate) fn read(&mut self, uid: String, scale: Result<i64, String>, now: Duration) {
        self.known.retain(|_, (read, _)| now.saturating_sub(*read) < FRESH * 10);
        self.known.insert(uid, (now, scale));
    }
}
