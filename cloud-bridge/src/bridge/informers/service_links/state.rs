//! The Services that environments of pods show: what was read of them, and what nodes were told. Pure.

use std::collections::BTreeMap;

use edge_protocol::message::{Object, ObjectDigest, ObjectKey};
use edge_protocol::weight::weight;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use sampan_json::SetField;
use serde_json::{Value, json};

use crate::bridge::ApiAddress;
use crate::bridge::informers::news::What;
use crate::bridge::slim::made_object;
use crate::bridge::told::groups::{API_NAMESPACE, API_SERVICE};
use crate::bridge::told::kinds::Kind;

/// Limit of the memory for Services, in bytes: about 5,000 with one port, more than an environment has room for.
/// Further ones are omitted.
const ROOM: usize = 8 << 20;

/// Refusals in a row after which a node counts as one that may not read Services: some 12 seconds with the pauses of the
/// watch. An API server that has just started refuses requests that it will allow.
const REFUSALS: u32 = 5;

/// What was read of the Services, and the object that was sent last.
#[derive(Default)]
pub(super) struct State {
    services: Links,
    listing: Option<Links>,
    /// Whether Services have changed since the last object.
    changed: bool,
    refusals: u32,
    told: Option<ObjectDigest>,
}

impl State {
    pub(super) fn take(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.listing = Some(Links::default()),
            Event::InitApply(service) => self.listing.get_or_insert_default().put(&service),
            Event::InitDone => {
                self.services = self.listing.take().unwrap_or_default();
                (self.changed, self.refusals) = (true, 0);
            }
            Event::Apply(service) => {
                self.services.put(&service);
                self.changed = true;
            }
            Event::Delete(service) => {
                self.services.remove(&service);
                self.changed = true;
            }
        }
    }

    /// What nodes are told after a failure of the watch; `None`: nothing. Known Services stay: a watch that goes on
    /// afterwards would not deliver them again. Pods run without these variables if nodes may not read Services.
    pub(super) fn fail(&mut self, failure: What) -> Option<What> {
        match failure {
            What::Refused if self.told.is_some() => None,
            What::Refused => {
                self.refusals = self.refusals.saturating_add(1);
                Some(if self.refusals < REFUSALS { What::Failed } else { What::Absent })
            }
            other => Some(other),
        }
    }

    /// Whether an object must be made.
    pub(super) fn is_due(&self) -> bool {
        self.changed
    }

    /// The object as it is now; `None` if nodes have it. `api`: the address of the API, in place of that of its Service.
    pub(super) fn object(&mut self, key: &ObjectKey, api: Option<&ApiAddress>) -> Option<Object> {
        self.changed = false;
        let object = present(key, &self.services, api);
        let news = self.told.as_ref() != Some(&object.digest);
        self.told = Some(object.digest.clone());
        news.then_some(object)
    }
}

/// The kept parts of Services by name, and their size.
#[derive(Default)]
struct Links {
    all: BTreeMap<String, (Value, usize)>,
    used: usize,
}

impl Links {
    /// Keeps the new state of a Service, if it has an address and there is room.
    fn put(&mut self, service: &DynamicObject) {
        self.remove(service);
        let Some((name, link)) = link(service) else { return };
        let size = weight(&link.to_string());
        if self.used + size <= ROOM {
            self.used += size;
            self.all.insert(name, (link, size));
        } else {
            log::debug!("pods of {:?} get no variables of Service {name}: too many", service.metadata.namespace);
        }
    }

    fn remove(&mut self, service: &DynamicObject) {
        let gone = self.all.remove(service.metadata.name.as_deref().unwrap_or_default());
        self.used -= gone.map_or(0, |(_, size)| size);
    }
}

/// Name and body of a Service that has an address (K8s pkg/kubelet/envvars omits the others).
fn link(service: &DynamicObject) -> Option<(String, Value)> {
    let name = service.metadata.name.clone()?;
    let spec = &service.data["spec"];
    let address = spec["clusterIP"].as_str().filter(|ip| !ip.is_empty() && *ip != "None")?;
    let ports: Vec<Value> = spec["ports"].as_array().into_iter().flatten().map(port).collect();
    let link = json!({"name": name, "clusterIP": address, "ports": ports});
    Some((name, link))
}

fn port(port: &Value) -> Value {
    let mut link = json!({"port": port["port"]});
    for field in ["name", "protocol"] {
        if let Some(text) = port[field].as_str().filter(|text| !text.is_empty()) {
            link.set(field, text.into());
        }
    }
    link
}

fn present(key: &ObjectKey, services: &Links, api: Option<&ApiAddress>) -> Object {
    let mut links: Vec<Value> = services.all.values().map(|(link, _)| link.clone()).collect();
    let own = links.iter_mut().find(|link| key.namespace == API_NAMESPACE && link["name"] == API_SERVICE);
    if let (Some(own), Some((host, port))) = (own, api) {
        own.set("clusterIP", host.as_str().into());
        own.set("ports", json!([{"name": "https", "port": port, "protocol": "TCP"}]));
    }
    let body = json!({"kind": Kind::ServiceLinks.name(), "services": links});
    made_object(key.clone(), format!("services-{}", key.namespace), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_that_is_elsewhere_is_told_where_it_is() {
        let of = |namespace: &str| {
            let key = Kind::ServiceLinks.key(namespace, "all");
            let link = |name: &str| json!({"name": name, "clusterIP": "10.96.0.1", "ports": [{"port": 443}]});
            let all = ["kubernetes", "web"].map(|name| (name.to_owned(), (link(name), 0))).into();
            let services = Links { all, used: 0 };
            present(&key, &services, Some(&("192.0.2.7".into(), 6443))).body["services"].clone()
        };
        let told = of("default");
        assert_eq!((&told[0]["clusterIP"], &told[0]["ports"][0]["port"]), (&json!("192.0.2.7"), &json!(6443)));
        assert_eq!(told[1]["clusterIP"], "10.96.0.1");
        assert_eq!(of("mine")[0]["clusterIP"], "10.96.0.1", "somebody's own of that name");
    }

    fn service(name: &str, ports: usize) -> DynamicObject {
        let ports: Vec<Value> = (0..ports).map(|port| json!({ "port": port })).collect();
        let spec = json!({"clusterIP": "10.0.0.7", "ports": ports});
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})).unwrap()
    }

    #[test]
    fn object_is_made_after_a_list_and_after_real_changes() {
        let (key, mut state) = (Kind::ServiceLinks.key("shop", "all"), State::default());
        let names = |object: Object| object.body["services"].as_array().map_or(0, Vec::len);
        state.take(Event::Init);
        state.take(Event::InitApply(service("web", 1)));
        assert!(!state.is_due(), "half a list is none");
        state.take(Event::InitDone);
        assert!(state.is_due());
        assert_eq!(state.object(&key, None).map(names), Some(1));
        assert!(!state.is_due());
        state.take(Event::Apply(service("web", 1)));
        assert!(state.is_due() && state.object(&key, None).is_none(), "nothing that pods see has changed");
        state.take(Event::Delete(service("web", 1)));
        assert_eq!(state.object(&key, None).map(names), Some(0));
    }

    #[test]
    fn refusals_withdraw_no_variables_that_a_node_has() {
        let mut state = State::default();
        for _ in 1..REFUSALS {
            assert!(matches!(state.fail(What::Refused), Some(What::Failed)));
        }
        assert!(matches!(state.fail(What::Refused), Some(What::Absent)), "pods run without them");
        state.take(Event::Init);
        state.take(Event::InitDone);
        assert!(matches!(state.fail(What::Refused), Some(What::Failed)), "counted from the beginning");
        assert!(state.object(&Kind::ServiceLinks.key("shop", "all"), None).is_some());
        assert!(state.fail(What::Refused).is_none(), "it is known");
        assert!(matches!(state.fail(What::Failed), Some(What::Failed)));
    }

    #[test]
    fn only_services_with_an_address_are_told_and_no_more_of_them() {
        let service = |name: &str, spec: Value| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec})).unwrap()
        };
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}, {"port": 53}]);
        let found = link(&service("web", json!({"clusterIP": "10.0.0.7", "ports": ports, "selector": {"a": "b"}})));
        let wanted = json!({"name": "web", "clusterIP": "10.0.0.7",
            "ports": [{"port": 80, "name": "http", "protocol": "TCP"}, {"port": 53}]});
        assert_eq!(found, Some(("web".into(), wanted)));
        assert_eq!(link(&service("none", json!({"clusterIP": "None"}))), None);
        assert_eq!(link(&service("out", json!({"externalName": "a.b"}))), None);
    }

    #[test]
    fn links_of_services_take_a_bounded_room() {
        let mut links = Links::default();
        (0..100).for_each(|n| links.put(&service(&n.to_string(), 5000)));
        assert!(links.used <= ROOM && (1..10).contains(&links.all.len()), "{} of them", links.all.len());
        links.put(&service("0", 1));
        assert!(links.used <= ROOM - (2 << 20), "a smaller one gives its room back");
        (0..100).for_each(|n| links.remove(&service(&n.to_string(), 1)));
        assert_eq!((links.used, links.all.len()), (0, 0));
    }
}
