//! Views of Services and endpoints as the bridge sends them, and what follows from a changed one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use edge_protocol::message::ObjectKey;

use super::Services;
use crate::net::services::view::{ENDPOINT_VIEW, SERVICE_NAMESPACE, SERVICE_VIEW};
use crate::net::services::{EndpointView, ServiceView};
use crate::node::context::Context;
use crate::store::{Store, StoreError};
use crate::sys::gather::Gather;

impl Services {
    /// Reads the views of the store.
    ///
    /// # Errors
    /// SQLite fails.
    pub(super) fn read_views(&mut self, store: &Store) -> Result<(), StoreError> {
        for key in store.held()?.into_iter().map(|digest| digest.key).filter(is_view) {
            let body = store.object(&key.kind, &key.namespace, &key.name)?;
            self.put(&key, body);
        }
        Ok(())
    }

    /// An object of the bridge has come, changed or gone; false if it is not about Services.
    pub(in crate::node) fn take(&mut self, cx: &Context, key: &ObjectKey) -> bool {
        if !is_view(key) {
            return false;
        }
        if self.enabled {
            match cx.store.object(&key.kind, &key.namespace, &key.name) {
                Ok(body) => self.put(key, body),
                // The Service stays as it is.
                Err(error) => log::error!("{} {}/{}: {error}", key.kind, key.namespace, key.name),
            }
        }
        true
    }

    pub(super) fn put(&mut self, key: &ObjectKey, body: Option<serde_json::Value>) {
        let name = (key.namespace.clone(), key.name.clone());
        let unreadable = |error| {
            let ObjectKey { kind, namespace, name } = key;
            log::error!("{kind} {namespace}/{name} is left out: {error}");
        };
        if key.kind == SERVICE_NAMESPACE {
            match body {
                Some(_) => self.followed.insert(key.namespace.clone()),
                None => self.followed.remove(&key.namespace),
            };
            self.names_changed = true;
            return;
        }
        if key.kind == SERVICE_VIEW {
            let view = body.and_then(|body| ServiceView::read(&body).map_err(unreadable).ok());
            let of = |view: &Option<ServiceView>| -> [BTreeSet<IpAddr>; 2] {
                let inside = view.iter().flat_map(ServiceView::ips).into_set();
                [inside, view.iter().flat_map(ServiceView::outside).copied().into_set()]
            };
            let [new, new_outside] = of(&view);
            let old = match view {
                Some(view) => self.views.insert(name.clone(), view),
                None => self.views.remove(&name),
            };
            let [old, old_outside] = of(&old);
            let ips: BTreeSet<IpAddr> = (&new ^ &old).into_iter().chain(new_outside).chain(old_outside).into_set();
            if !ips.is_empty() {
                self.look_at_outside(&ips);
            }
        } else {
            let view = body.and_then(|body| EndpointView::read(&body).map_err(unreadable).ok());
            match view {
                Some(view) => drop(self.others.insert(name.clone(), view)),
                None => drop(self.others.remove(&name)),
            }
        }
        self.left_out.changed(&name, !self.views.contains_key(&name));
        self.untold.add([name.clone()]);
        self.dirty.insert(name);
        self.names_changed = true;
    }
}

fn is_view(key: &ObjectKey) -> bool {
    [SERVICE_VIEW, ENDPOINT_VIEW, SERVICE_NAMESPACE].contains(&key.kind.as_str())
}
