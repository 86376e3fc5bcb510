//! How many pods the controllers want that are known to nobody here: what their `scale` says, as it was last read (K8s
//! pkg/controller/disruption `getScaleController`). Pure; the reading is done beside it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// A number is read again after this, while a budget asks for it.
const FRESH: Duration = Duration::from_secs(30);
/// So many are read for one budget in one turn.
const AT_ONCE: usize = 8;

/// The numbers by the uid of the controller, or why there is none.
#[derive(Debug, Default)]
pub(crate) struct Scales {
    known: BTreeMap<String, (Duration, Result<i64, String>)>,
}

impl Scales {
    /// The number of a controller, as it was last read.
    pub(super) fn of(&self, uid: &str) -> Option<Result<i64, &str>> {
        self.known.get(uid).map(|(_, scale)| scale.as_ref().copied().map_err(String::as_str))
    }

    /// When the first of these is to be read again.
    pub(super) fn due<'a>(&self, uids: impl Iterator<Item = &'a str>, now: Duration) -> Option<Duration> {
        uids.filter_map(|uid| Some((self.known.get(uid)?.0 + FRESH).saturating_sub(now))).min()
    }

    /// Those of the controllers that are to be read now.
    pub(super) fn unread(&self, owners: Vec<OwnerReference>, now: Duration) -> Vec<OwnerReference> {
        let fresh = |uid: &str| self.known.get(uid).is_some_and(|(read, _)| now.saturating_sub(*read) < FRESH);
        owners.into_iter().filter(|owner| !fresh(&owner.uid)).take(AT_ONCE).collect()
    }

    /// Takes in what was read, and forgets what nobody asks for any more.
    pub(crate) fn read(&mut self, uid: String, scale: Result<i64, String>, now: Duration) {
        self.known.retain(|_, (read, _)| now.saturating_sub(*read) < FRESH * 10);
        self.known.insert(uid, (now, scale));
    }
}
