//! The `proxy` subresource of Services: which pod is asked (K8s pkg/registry/core/service/storage/storage.go
//! `ResourceLocation`).

use std::sync::Arc;

use serde_json::Value;

use super::pod::{Proxied, global_unicast, place_of, scheme_name_port};
use crate::registry::context::Context;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Stored;
use apimachinery::flow::Flow;
use apimachinery::json::{integer, items, text};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use kubelet_api::streaming::proxy::Port;

const ENDPOINTS: &str = "endpoints";
const PODS: &str = "pods";

/// What `services/NAME/proxy` means: one of the ready pods behind a port, any of them.
pub(crate) fn proxied(ctx: &Context<'_>, flow: &Flow) -> ApiResult<Proxied> {
    let id = &ctx.path.name;
    let invalid = || ApiError::bad_request(format!("invalid service request {id:?}"));
    let (scheme, name, port) = scheme_name_port(id).ok_or_else(invalid)?;
    let store = ctx.store();
    let port = match port.parse::<i64>() {
        Ok(number) => {
            let service = store.get(&ctx.resource.storage, &ctx.key_of(name))?;
            let service = service.ok_or_else(|| ApiError::not_found(&ctx.resource, name))?;
            let named =
                items(&service.value()["spec"], "ports").iter().find(|one| integer(one, "port") == Some(number));
            let none = || ApiError::unavailable(format!("no service port {number} found for service {name:?}"));
            text(named.ok_or_else(none)?, "name").to_owned()
        }
        Err(_) => port.to_owned(),
    };
    let endpoints = store.get(ENDPOINTS, &ctx.key_of(name))?;
    let none = |what: &str| ApiError::unavailable(format!("no endpoints available for service {what:?}"));
    let endpoints = endpoints.ok_or_else(|| none(name))?;
    let mut choices = choices(endpoints.value(), &port);
    while !choices.is_empty() {
        let at = usize::try_from(meta::random_number()).unwrap_or_default() % choices.len();
        let (pod, ip, number) = choices.swap_remove(at);
        let key = ObjectKey { namespace: endpoints.key.namespace.clone(), name: pod };
        if let Some(pod) = store.get(PODS, &key)?.filter(|pod| has(pod, &ip)) {
            let node = pod.value()["spec"]["nodeName"].as_str().unwrap_or_default();
            return Ok(Proxied { pod: place_of(&pod, node, flow), port: Port { number, tls: scheme == "https" } });
        }
    }
    Err(none(id))
}

/// The name of a pod, its address and the number of the port that is called so there.
fn choices(endpoints: &Value, port: &str) -> Vec<(String, String, u16)> {
    let mut choices = Vec::new();
    for subset in items(endpoints, "subsets") {
        let named = items(subset, "ports").iter().find(|one| text(one, "name") == port);
        let number = named.and_then(|one| integer(one, "port")).and_then(|number| u16::try_from(number).ok());
        let Some(number) = number.filter(|number| *number > 0) else { continue };
        // Only pods are asked: another address may be anything, anywhere.
        let pods = items(subset, "addresses").iter().filter(|address| text(&address["targetRef"], "kind") == "Pod");
        choices.extend(
            pods.map(|address| {
                (text(&address["targetRef"], "name").to_owned(), text(address, "ip").to_owned(), number)
            }),
        );
    }
    choices
}

fn has(pod: &Arc<Stored>, ip: &str) -> bool {
    let own = items(&pod.value()["status"], "podIPs").iter().any(|one| text(one, "ip") == ip);
    own && ip.parse().is_ok_and(global_unicast)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_pod_is_asked_at_a_loopback_or_link_local_address() {
        let is_asked = |ip: &str| global_unicast(ip.parse().unwrap());
        assert!(["10.0.0.1", "fd00::1", "::ffff:10.0.0.1"].into_iter().all(is_asked));
        for ip in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::ffff:169.254.169.254", "224.0.0.1"] {
            assert!(!is_asked(ip), "{ip}");
        }
    }

    #[test]
    fn ready_pods_that_have_the_port_are_asked() {
        let pod = |name: &str, ip: &str| json!({"ip": ip, "targetRef": {"kind": "Pod", "name": name}});
        let endpoints = json!({"subsets": [
            {"addresses": [pod("a", "10.0.0.1"), {"ip": "10.9.9.9"}], "notReadyAddresses": [pod("b", "10.0.0.2")],
                "ports": [{"name": "web", "port": 8080}, {"name": "other", "port": 1}]},
            {"addresses": [pod("c", "10.0.0.3")], "ports": [{"name": "web", "port": 9090}]},
            {"addresses": [pod("d", "10.0.0.4")], "ports": [{"name": "web", "port": 0}, {"port": 80}]},
        ]});
        let own = |name: &str, ip: &str, port| (name.to_owned(), ip.to_owned(), port);
        assert_eq!(choices(&endpoints, "web"), [own("a", "10.0.0.1", 8080), own("c", "10.0.0.3", 9090)]);
        assert_eq!(choices(&endpoints, ""), [own("d", "10.0.0.4", 80)]);
        assert!(choices(&json!({"subsets": [{"addresses": 1, "ports": {}}, 7]}), "").is_empty());
    }
}
