//! Binds PersistentVolumeClaims to existing volumes, as the volume controller of a cluster (K8s
//! pkg/controller/volume/persistentvolume). Provisioners create a volume for one claim, which is bound like any other.

mod facts;
mod index;

use sampan_json::SetField;
use std::sync::Arc;

use serde_json::json;

use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use crate::kinds::storage_class;
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::{Store, StoreError, Stored};
use apimachinery::json::text;
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use facts::{Offer, claim_of};
use index::Index;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Volume(String),
    Claim(ObjectKey),
}

#[derive(Default)]
pub(super) struct VolumeBinder {
    index: Index,
}

impl Controller for VolumeBinder {
    type Key = Key;

    const NAME: &'static str = "binding volumes";

    /// Volumes first: a claim of before the start has the choice of all of them.
    fn storages(_: &Inner) -> Vec<String> {
        vec![VOLUMES.into(), CLAIMS.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<Key>) {
        match seen.storage {
            VOLUMES => queue.add(Key::Volume(seen.key.name.clone())),
            CLAIMS => queue.add(Key::Claim(seen.key.clone())),
            _ => {}
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, Key>, key: &Key) -> ApiResult<()> {
        match key {
            Key::Volume(name) => self.volume(turn, name)?,
            Key::Claim(key) => self.claim(turn.store, turn.queue, key)?,
        }
        Ok(())
    }
}

impl VolumeBinder {
    /// Handles a change of a volume: a new one becomes available, an available one may fit a waiting claim, and one
    /// whose claim is gone is kept, with its data.
    fn volume(&mut self, turn: &mut Turn<'_, Key>, name: &str) -> Result<(), StoreError> {
        let Some(volume) = self.read(turn.store, name)? else { return Ok(()) };
        if is_orphan(turn.store, &volume)? {
            return set_phase(turn.store, &volume, "Released");
        }
        match volume.value()["status"]["phase"].as_str().unwrap_or_default() {
            "" | "Pending" => set_phase(turn.store, &volume, "Available"),
            "Available" => match self.index.first(name) {
                // There may be a better one for it.
                Some(claim) => self.claim(turn.store, turn.queue, &claim),
                None => Ok(()),
            },
            "Bound" => {
                let Some((key, _)) = claim_of(volume.value()) else {
                    return set_phase(turn.store, &volume, "Released");
                };
                self.claim(turn.store, turn.queue, &key)
            }
            _ => Ok(()),
        }
    }

    /// A claim that waits gets the best volume there is; volumes that name one of before are looked at.
    fn claim(&mut self, store: &mut Store, queue: &Queue<Key>, key: &ObjectKey) -> Result<(), StoreError> {
        let claim = store.get(CLAIMS, key)?;
        let class = claim.as_ref().map(|claim| text(&claim.value()["spec"], "storageClassName"));
        let class = match class.filter(|name| !name.is_empty()) {
            Some(name) => store.get(storage_class::STORAGE, &ObjectKey::cluster(name))?,
            None => None,
        };
        let (value, class) = (claim.as_ref().map(|claim| claim.value()), class.as_ref().map(|class| class.value()));
        let request = self.index.set_claim(key, value, class);
        let uid = claim.as_ref().map_or("", |claim| meta::text(claim.value(), "uid"));
        let (same, other): (Vec<_>, Vec<_>) = self.index.naming(key).into_iter().partition(|(_, named)| named == uid);
        // What names one of before may be released.
        let other = other.into_iter().filter(|(_, named)| !named.is_empty());
        other.for_each(|(volume, _)| queue.add(Key::Volume(volume)));
        let (Some(claim), Some(request)) = (claim, request) else { return Ok(()) };
        for (name, _) in same {
            // It was bound when the power went, and the claim does not know.
            if let Some(volume) = self.read(store, &name)?.filter(|volume| volume.value()["status"]["phase"] == "Bound")
            {
                return bind(store, &volume, &claim);
            }
        }
        while let Some(name) = self.index.best(&request) {
            let volume = self.read(store, &name)?;
            let fits = |volume: &Stored| Offer::of(volume.value()).is_some_and(|offer| request.is_met_by(&offer));
            if let Some(volume) = volume.filter(|volume| fits(volume)) {
                return bind(store, &volume, &claim);
            }
        }
        Ok(())
    }

    fn read(&mut self, store: &Store, name: &str) -> Result<Option<Arc<Stored>>, StoreError> {
        let volume = store.get(VOLUMES, &ObjectKey::cluster(name))?;
        self.index.set_volume(name, volume.as_ref().map(|volume| volume.value()));
        Ok(volume)
    }
}

/// Whether the only claim for which a volume was made is deleted, perhaps before they were bound.
fn is_orphan(store: &Store, volume: &Stored) -> Result<bool, StoreError> {
    let Some((key, uid)) = claim_of(volume.value()).filter(|(_, uid)| !uid.is_empty()) else { return Ok(false) };
    let phase = volume.value()["status"]["phase"].as_str().unwrap_or_default();
    let there = store.get(CLAIMS, &key)?.is_some_and(|claim| meta::text(claim.value(), "uid") == uid);
    Ok(!there && !matches!(phase, "Released" | "Failed"))
}

fn set_phase(store: &mut Store, volume: &Arc<Stored>, phase: &str) -> Result<(), StoreError> {
    let mut new = volume.value().clone();
    new.set_at(&["status", "phase"], phase.into());
    store.write(VOLUMES, new, Some(volume), None).map(drop)
}

fn bind(store: &mut Store, volume: &Arc<Stored>, claim: &Arc<Stored>) -> Result<(), StoreError> {
    let (mut pv, mut pvc) = (volume.value().clone(), claim.value().clone());
    pv.set_at(
        &["spec", "claimRef"],
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": claim.key.namespace, "name": claim.key.name, "uid": meta::text(&pvc, "uid"),
        }),
    );
    pv.set_at(&["status", "phase"], "Bound".into());
    pvc.set_at(&["spec", "volumeName"], volume.key.name.as_str().into());
    pvc.set(
        "status",
        json!({
            "phase": "Bound", "accessModes": pv["spec"]["accessModes"], "capacity": pv["spec"]["capacity"],
        }),
    );
    pvc.set_at(&["metadata", "annotations", "pv.kubernetes.io/bind-completed"], "yes".into());
    if pv != *volume.value() {
        store.write(VOLUMES, pv, Some(volume), None)?;
    }
    store.write(CLAIMS, pvc, Some(claim), None).map(drop)
}
