//! ServiceCIDRs that are being deleted: one stays, with a reason, while a Service has an address that no other range
//! contains (K8s pkg/controller/servicecidrs). Allocators do not use it any more after its deletion has started.

use std::net::IpAddr;
use std::sync::Arc;

use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use crate::kinds::cidr;
use crate::kinds::service_cidr::{FINALIZER, STORAGE, ranges, terminating};
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::Stored;
use apimachinery::json::text;
use apimachinery::meta;

const SERVICES: &str = "services";

/// There are few: its one key is all of them.
#[derive(Default)]
pub(super) struct ServiceCidrs;

impl Controller for ServiceCidrs {
    type Key = ();

    const NAME: &'static str = "letting ranges of Services go";

    fn storages(_: &Inner) -> Vec<String> {
        vec![STORAGE.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<()>) {
        let address = |service: &Stored| text(&service.value()["spec"], "clusterIP").to_owned();
        let gave_back = || seen.before.map(address).is_some_and(|had| seen.after.map(address) != Some(had));
        if seen.storage == STORAGE || seen.storage == SERVICES && gave_back() {
            queue.add(());
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, ()>, _: &()) -> ApiResult<()> {
        let all = turn.store.list(STORAGE, None, None, None)?;
        let (going, staying): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| meta::deleting(one.value()));
        if going.is_empty() {
            return Ok(());
        }
        let held: Vec<IpAddr> = {
            let taken = turn.inner.held.taken();
            let addresses = taken.of_services().map(IpAddr::V4);
            addresses.filter(|address| !staying.iter().any(|one| has(one, *address))).collect()
        };
        for one in going {
            let (mut new, finalizers) = (one.value().clone(), meta::finalizers(one.value()));
            if held.iter().any(|address| has(&one, *address)) {
                let Some(told) = terminating(&new) else { continue };
                turn.store.write(STORAGE, told, Some(&one), None)?;
            } else if finalizers.iter().any(|name| name == FINALIZER) {
                let left: Vec<String> = finalizers.into_iter().filter(|name| name != FINALIZER).collect();
                meta::set_finalizers(&mut new, &left);
                if left.is_empty() {
                    turn.store.delete(STORAGE, &one)?;
                } else {
                    turn.store.write(STORAGE, new, Some(&one), None)?;
                }
            }
        }
        Ok(())
    }
}

fn has(cidr: &Arc<Stored>, address: IpAddr) -> bool {
    ranges(cidr.value()).any(|range| cidr::read(range).is_ok_and(|range| range.contains(address)))
}
