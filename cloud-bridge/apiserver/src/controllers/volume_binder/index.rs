//! Index of what volumes offer and claims request, so that they need not all be compared. It may be outdated: a caller
//! that finds a match reads the objects before it writes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::facts::{Class, Offer, Request, claim_of};
use apimachinery::key::ObjectKey;
use apimachinery::quantity::Quantity;

#[derive(Default)]
pub(super) struct Index {
    offers: BTreeMap<String, Offer>,
    /// Offers reserved for no claim, the smallest first.
    free: BTreeMap<Class, BTreeSet<(Option<Quantity>, String)>>,
    /// The claim that each volume names, whatever the volume's phase.
    claims: BTreeMap<String, (ObjectKey, String)>,
    /// The volumes that name a claim, and the uid that they name.
    naming: BTreeMap<ObjectKey, BTreeMap<String, String>>,
    requests: BTreeMap<ObjectKey, Request>,
    /// Requests that any volume may meet.
    open: BTreeMap<Class, BTreeSet<ObjectKey>>,
    /// Requests that ask for one volume.
    asking: BTreeMap<String, BTreeSet<ObjectKey>>,
}

/// Removes a member from a set of a map, and the set with its last member.
fn take<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, member: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(member);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

impl Index {
    /// Sets the state of a volume; `None` if it was deleted.
    pub(super) fn set_volume(&mut self, name: &str, volume: Option<&Value>) {
        if let Some(old) = self.offers.remove(name) {
            take(&mut self.free, &old.class, &(old.size, old.name));
        }
        if let Some((key, _)) = self.claims.remove(name)
            && let Some(volumes) = self.naming.get_mut(&key)
        {
            volumes.remove(name);
            if volumes.is_empty() {
                self.naming.remove(&key);
            }
        }
        let Some(volume) = volume else { return };
        if let Some((key, uid)) = claim_of(volume) {
            self.naming.entry(key.clone()).or_default().insert(name.to_owned(), uid.clone());
            self.claims.insert(name.to_owned(), (key, uid));
        }
        if let Some(offer) = Offer::of(volume) {
            if offer.kept_for.is_none() {
                self.free.entry(offer.class.clone()).or_default().insert((offer.size, offer.name.clone()));
            }
            self.offers.insert(name.to_owned(), offer);
        }
    }

    /// Sets the state of a claim; `None` if it was deleted. Returns its request, if it waits.
    pub(super) fn set_claim(
        &mut self,
        key: &ObjectKey,
        claim: Option<&Value>,
        class: Option<&Value>,
    ) -> Option<Request> {
        if let Some(old) = self.requests.remove(key) {
            if old.volume.is_empty() {
                take(&mut self.open, &old.class, key);
            } else {
                take(&mut self.asking, &old.volume, key);
            }
        }
        let request = Request::of(claim?, class)?;
        if request.volume.is_empty() {
            self.open.entry(request.class.clone()).or_default().insert(key.clone());
        } else {
            self.asking.entry(request.volume.clone()).or_default().insert(key.clone());
        }
        self.requests.insert(key.clone(), request.clone());
        Some(request)
    }

    /// The volumes that name a claim, and the uid that each of them names.
    pub(super) fn naming(&self, key: &ObjectKey) -> Vec<(String, String)> {
        self.naming.get(key).into_iter().flatten().map(|(name, uid)| (name.clone(), uid.clone())).collect()
    }

    /// The best volume for a request: one that is kept for it, then the smallest.
    pub(super) fn best(&self, request: &Request) -> Option<String> {
        let meets = |offer: &&Offer| request.is_met_by(offer);
        let kept = self.naming.get(&request.key).into_iter().flat_map(BTreeMap::keys);
        let kept = kept.filter_map(|name| self.offers.get(name)).filter(meets).min_by_key(|offer| offer.size);
        let found = kept.or_else(|| {
            if request.delayed {
                return None;
            }
            if !request.volume.is_empty() {
                return self.offers.get(&request.volume).filter(meets);
            }
            let large_enough = self.free.get(&request.class)?.range((request.size, String::new())..);
            large_enough.filter_map(|(_, name)| self.offers.get(name)).find(meets)
        });
        found.map(|offer| offer.name.clone())
    }

    /// The first request that a volume meets.
    pub(super) fn first(&self, volume: &str) -> Option<ObjectKey> {
        let offer = self.offers.get(volume)?;
        let met = |key: &&ObjectKey| self.requests.get(*key).is_some_and(|request| request.is_met_by(offer));
        if let Some((key, _)) = &offer.kept_for {
            return Some(key).filter(met).cloned();
        }
        let asking = self.asking.get(volume).into_iter().flatten().find(met);
        let open = self.open.get(&offer.class).into_iter().flatten().find(met);
        asking.into_iter().chain(open).min().cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(name: &str, size: &str, claim: Option<&str>) -> Value {
        let mut volume = json!({"metadata": {"name": name}, "status": {"phase": "Available"},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}});
        if let Some(claim) = claim {
            volume["spec"]["claimRef"] = json!({"namespace": "ns", "name": claim});
        }
        volume
    }

    fn claim(name: &str, size: &str, volume: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"volumeName": volume,
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "ns".into(), name: name.into() }
    }

    #[test]
    fn claim_gets_its_reserved_volume_or_the_smallest_sufficient() {
        let mut index = Index::default();
        for (name, size, claim) in
            [("small", "1Gi", None), ("large", "4Gi", None), ("middle", "2Gi", None), ("kept", "8Gi", Some("mine"))]
        {
            index.set_volume(name, Some(&volume(name, size, claim)));
        }
        let best = |index: &mut Index, name: &str, size: &str, volume: &str| {
            let request = index.set_claim(&key(name), Some(&claim(name, size, volume)), None).unwrap();
            index.best(&request)
        };
        assert_eq!(best(&mut index, "a", "500Mi", "").as_deref(), Some("small"));
        assert_eq!(best(&mut index, "a", "1500Mi", "").as_deref(), Some("middle"));
        assert_eq!(best(&mut index, "a", "5Gi", ""), None, "what is kept for another is not for it");
        assert_eq!(best(&mut index, "a", "1Gi", "large").as_deref(), Some("large"));
        assert_eq!(best(&mut index, "mine", "1Gi", "").as_deref(), Some("kept"));
        index.set_volume("middle", None);
        assert_eq!(best(&mut index, "a", "1500Mi", "").as_deref(), Some("large"));
    }

    #[test]
    fn volume_binds_to_first_match_and_removed_ones_leave_nothing() {
        let mut index = Index::default();
        for (name, size, volume) in [("b", "1Gi", ""), ("c", "1Gi", "v"), ("a", "9Gi", "")] {
            index.set_claim(&key(name), Some(&claim(name, size, volume)), None);
        }
        index.set_volume("v", Some(&volume("v", "2Gi", None)));
        assert_eq!(index.first("v"), Some(key("b")));
        index.set_claim(&key("b"), None, None);
        assert_eq!(index.first("v"), Some(key("c")));
        index.set_volume("v", Some(&volume("v", "2Gi", Some("a"))));
        assert_eq!((index.first("v"), index.naming(&key("a"))), (None, vec![("v".to_owned(), String::new())]));
        index.set_volume("v", None);
        for name in ["a", "c"] {
            index.set_claim(&key(name), None, None);
        }
        let Index { offers, free, claims, naming, requests, open, asking } = index;
        assert!(offers.is_empty() && free.is_empty() && claims.is_empty() && naming.is_empty());
        assert!(requests.is_empty() && open.is_empty() && asking.is_empty());
    }
}
