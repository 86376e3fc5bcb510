//! Load balancers for clusters without one: a Service of that type gets the addresses of the nodes of its pods, as with
//! k3s' servicelb, but without additional pods: nodes serve the addresses in a Service's status. This file reads, calls
//! [`plan`] and writes.

mod object;
mod plan;
mod slices;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;

use crate::watch;
use apimachinery::pace::sleep_until;
use object::{Node, Service, Slice};
use slices::{Key, Slices};

/// What could not be written is tried again after this.
const RETRY: Duration = Duration::from_secs(5);

/// Runs until dropped.
pub async fn run(client: Client) {
    let mut services = pin!(all::<Service>(&client));
    let mut slices = pin!(all::<Slice>(&client));
    let mut nodes = pin!(all::<Node>(&client));
    let mut balancer = Balancer::new(client);
    loop {
        let retry = balancer.retry;
        tokio::select! {
            Some(event) = services.next() => balancer.service(event),
            Some(event) = slices.next() => balancer.slice(event),
            Some(event) = nodes.next() => balancer.node(event),
            () = sleep_until(retry) => balancer.retry = None,
        }
        balancer.turn().await;
    }
}

fn all<T>(client: &Client) -> impl Stream<Item = Event<T>> + use<T>
where
    T: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    let events = watch::all::<T>(client);
    events.filter_map(async |event| event.inspect_err(|error| log::warn!("watching {}: {error}", T::kind(&()))).ok())
}

struct Balancer {
    client: Client,
    services: BTreeMap<Key, Service>,
    slices: Slices,
    nodes: BTreeMap<String, Node>,
    /// What lists under way have named.
    listed: [BTreeSet<Key>; 3],
    /// Which lists have ended: before all have, missing objects are unknown.
    known: [bool; 3],
    dirty: BTreeSet<Key>,
    retry: Option<Instant>,
}

/// Which list.
const SERVICES: usize = 0;
const SLICES: usize = 1;
const NODES: usize = 2;

impl Balancer {
    fn new(client: Client) -> Self {
        Self {
            client,
            services: BTreeMap::new(),
            slices: Slices::default(),
            nodes: BTreeMap::new(),
            listed: Default::default(),
            known: [false; 3],
            dirty: BTreeSet::new(),
            retry: None,
        }
    }

    fn service(&mut self, event: Event<Service>) {
        for (key, service) in self.changes(SERVICES, event, |balancer| balancer.services.keys().cloned().collect()) {
            match service {
                Some(service) => drop(self.services.insert(key.clone(), service)),
                None => drop(self.services.remove(&key)),
            }
            self.dirty.insert(key);
        }
    }

    fn slice(&mut self, event: Event<Slice>) {
        for (key, slice) in self.changes(SLICES, event, |balancer| balancer.slices.keys().cloned().collect()) {
            self.dirty.extend(self.slices.put(&key, slice));
        }
    }

    fn node(&mut self, event: Event<Node>) {
        let known = |balancer: &Self| balancer.nodes.keys().map(|name| (String::new(), name.clone())).collect();
        for ((_, name), node) in self.changes(NODES, event, known) {
            let (new, old) = (node.as_ref().map(Node::facts), self.nodes.get(&name).map(Node::facts));
            if new != old {
                self.dirty.extend(self.slices.services_on(&name).cloned());
            }
            match node {
                Some(node) => drop(self.nodes.insert(name, node)),
                None => drop(self.nodes.remove(&name)),
            }
        }
    }

    /// Splits an event into existing and deleted objects. `all` returns the known objects at the end of a list.
    fn changes<T: kube::Resource>(
        &mut self,
        list: usize,
        event: Event<T>,
        all: impl Fn(&Self) -> Vec<Key>,
    ) -> Vec<(Key, Option<T>)> {
        let key = |object: &T| {
            let meta = object.meta();
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        let keys = if matches!(event, Event::InitDone) { all(self) } else { Vec::new() };
        let (Some(listed), Some(known)) = (self.listed.get_mut(list), self.known.get_mut(list)) else {
            return Vec::new();
        };
        match event {
            Event::Init => {
                listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                listed.insert(key(&object));
                vec![(key(&object), Some(object))]
            }
            Event::InitDone => {
                *known = true;
                let listed = std::mem::take(listed);
                keys.into_iter().filter(|key| !listed.contains(key)).map(|key| (key, None)).collect()
            }
            Event::Apply(object) => vec![(key(&object), Some(object))],
            Event::Delete(object) => vec![(key(&object), None)],
        }
    }

    async fn turn(&mut self) {
        if self.known != [true; 3] || self.retry.is_some() {
            return;
        }
        while let Some(key) = self.dirty.pop_first() {
            let Some(service) = self.services.get(&key) else { continue };
            let Some(wanted) = plan::ingress(service, self.slices.of(&key), &self.nodes) else { continue };
            if let Err(error) = write(&self.client, service, &wanted).await {
                log::warn!("the addresses of the Service {}/{}: {error}", key.0, key.1);
                self.dirty.insert(key);
                self.retry = Some(Instant::now() + RETRY);
                return;
            }
        }
    }
}

async fn write(client: &Client, service: &Service, wanted: &[std::net::IpAddr]) -> kube::Result<()> {
    let meta = &service.metadata;
    let ingress: Vec<_> = wanted.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
    // On the version that was read: it may be another Service meanwhile.
    let patch = json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"loadBalancer": {"ingress": ingress}}});
    let api: Api<Service> = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or_default());
    let name = meta.name.as_deref().unwrap_or_default();
    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        // The watch is about to deliver the present state.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        result => result.map(drop),
    }
}
