//! The Services of one namespace, as environments of pods need them: name, address and ports. One object for all of
//! them, so that a node holds no more, and other changes cause no traffic on the link.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use edge_protocol::json::SetField;
use edge_protocol::message::{Object, ObjectKey};
use edge_protocol::weight::weight;
use futures::TryStreamExt;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::news::{Subscription, What, watch_failure};
use crate::bridge::ApiAddress;
use crate::bridge::resource::resource;
use crate::bridge::slim::made_object;
use crate::bridge::told::groups::{API_NAMESPACE, API_SERVICE};
use crate::bridge::told::kinds::Kind;
use apimachinery::well_known::PAGE;

/// Limit of the memory for Services, in bytes: about 5,000 with one port, more than an environment has room for.
/// Further ones are omitted.
const ROOM: usize = 8 << 20;

/// Pause after each object, in multiples of the time that it took: it contains all Services, and many change together.
const REST: u32 = 20;
/// Limit of that pause.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Refusals in a row after which a node counts as one that may not read Services: some 12 seconds with the pauses of the
/// watch. An API server that has just started refuses requests that it will allow.
const REFUSALS: u32 = 5;

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

/// Follows until aborted. The key's name says which Services: all of the namespace, or the API's own. For the latter,
/// `api_address` is used instead, if it is set.
pub(super) async fn watch_service_links(client: Client, api_address: Option<ApiAddress>, to: Subscription) {
    let key = &to.key;
    let api: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &resource("v1", "Service", "services"));
    let config = match key.name.as_str() {
        API_SERVICE => watcher::Config::default().page_size(PAGE).fields(&format!("metadata.name={API_SERVICE}")),
        _ => watcher::Config::default().page_size(PAGE),
    };
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut services = Links::default();
    let mut listing = None;
    let mut said = None;
    let mut refusals = 0_u32;
    // Whether Services have changed since the last object, and when the next one may be made.
    let (mut changed, mut rest) = (false, Instant::now());
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            () = sleep_until(rest), if changed => {
                changed = false;
                let begun = Instant::now();
                let object = present(key, &services, api_address.as_ref());
                rest = begun + (begun.elapsed() * REST).min(LONGEST_REST);
                if said.as_ref() != Some(&object.digest) {
                    said = Some(object.digest.clone());
                    if to.tell(What::Present(object)).await.is_none() {
                        return;
                    }
                }
                continue;
            }
        };
        match event {
            Ok(None) => return,
            Ok(Some(Event::Init)) => listing = Some(Links::default()),
            Ok(Some(Event::InitApply(service))) => listing.get_or_insert_default().put(&service),
            Ok(Some(Event::InitDone)) => {
                services = listing.take().unwrap_or_default();
                (changed, refusals) = (true, 0);
            }
            Ok(Some(Event::Apply(service))) => {
                services.put(&service);
                changed = true;
            }
            Ok(Some(Event::Delete(service))) => {
                services.remove(&service);
                changed = true;
            }
            Err(error) => {
                log::warn!("watching the services of namespace {}: {error}", key.namespace);
                let what = match watch_failure(&error) {
                    // Known Services stay: a watch that goes on afterwards would not deliver them again.
                    What::Refused if said.is_some() => continue,
                    What::Refused => {
                        refusals = refusals.saturating_add(1);
                        after_refusals(refusals)
                    }
                    other => other,
                };
                if to.tell(what).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// What a watch that never delivered Services says after this number of refusals in a row. Pods run without these
/// variables if nodes may not read Services.
fn after_refusals(refusals: u32) -> What {
    if refusals < REFUSALS { What::Failed } else { What::Absent }
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

    #[test]
    fn first_refusals_do_not_withdraw_the_variables_that_a_node_has() {
        assert!((1..REFUSALS).all(|refusals| matches!(after_refusals(refusals), What::Failed)));
        assert!(matches!(after_refusals(REFUSALS), What::Absent));
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
        let service = |name: &str, ports: usize| -> DynamicObject {
            let ports: Vec<Value> = (0..ports).map(|port| json!({ "port": port })).collect();
            let spec = json!({"clusterIP": "10.0.0.7", "ports": ports});
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})).unwrap()
        };
        let mut links = Links::default();
        (0..100).for_each(|n| links.put(&service(&n.to_string(), 5000)));
        assert!(links.used <= ROOM && (1..10).contains(&links.all.len()), "{} of them", links.all.len());
        links.put(&service("0", 1));
        assert!(links.used <= ROOM - (2 << 20), "a smaller one gives its room back");
        (0..100).for_each(|n| links.remove(&service(&n.to_string(), 1)));
        assert_eq!((links.used, links.all.len()), (0, 0));
    }
}
