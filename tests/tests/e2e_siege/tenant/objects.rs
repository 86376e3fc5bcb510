//! Many objects, up to the quota and without one; owners, and the deletion of their dependents.

use serde_json::{Value, json};

use super::{JSON, Tenant, named, path};
use crate::siege::Attack;

/// Number of names of one kind: more than the quota, so that some are refused.
const NAMES: usize = 1_000;

fn service(name: &str) -> Value {
    let ports: Vec<Value> = (0..50).map(|at| json!({"name": format!("p{at}"), "port": 1000 + at})).collect();
    json!({"metadata": {"name": name}, "spec": {"selector": {"app": "x"}, "ports": ports}})
}

fn slice(name: &str) -> Value {
    let endpoints: Vec<Value> =
        (0..1_000).map(|at| json!({"addresses": [format!("192.0.{}.{}", at / 250, at % 250)]})).collect();
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{"name": "a", "port": 80}]})
}

fn policy(name: &str) -> Value {
    let peers: Vec<Value> = (0..200).map(|at| json!({"ipBlock": {"cidr": format!("10.{at}.0.0/16")}})).collect();
    let peers: Vec<Value> = peers.into_iter().chain((0..50).map(|_| json!({"namespaceSelector": {}}))).collect();
    json!({"metadata": {"name": name}, "spec": {"podSelector": {}, "ingress": [{"from": peers}]}})
}

fn event(name: &str, about: &str) -> Value {
    json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "evil", "name": about},
        "reason": "Flood", "message": "x".repeat(1_000), "type": "Normal"})
}

/// A ConfigMap with these owners.
fn owned(name: &str, owners: &[(String, String)], finalizers: &[&str]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, uid)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
        })
        .collect();
    json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}})
}

pub(super) fn attacks(tenant: &Tenant) -> Vec<Attack<'_>> {
    let simple = |name: &'static str, collection: &'static [&'static str], body: fn(&str) -> Value| {
        tenant.making(name, collection, move |asker, random| {
            let name = named(random, NAMES);
            match asker.post(&path(collection[0]), &body(&name)) {
                Some(409) => {
                    let label = json!({"metadata": {"labels": {"l": named(random, 50)}}}).to_string();
                    let object = format!("{}/{name}", path(collection[0]));
                    asker.ask("PATCH", &object, "application/merge-patch+json", label.as_bytes())
                }
                other => other,
            }
        })
    };
    vec![
        simple("many ConfigMaps", &["configmaps"], |name| json!({"metadata": {"name": name}, "data": {"a": "b"}})),
        simple("many Secrets", &["secrets"], |name| json!({"metadata": {"name": name}, "stringData": {"a": "b"}})),
        simple("many Services", &["services"], service),
        simple("many EndpointSlices", &["discovery.k8s.io/v1/endpointslices"], slice),
        simple("many NetworkPolicies", &["networking.k8s.io/v1/networkpolicies"], policy),
        simple(
            "many Leases",
            &["coordination.k8s.io/v1/leases"],
            |name| json!({"metadata": {"name": name}, "spec": {"holderIdentity": "x"}}),
        ),
        tenant.making("events", &["events"], |asker, random| {
            asker.post(&path("events"), &event(&named(random, 100_000), &named(random, 100)))
        }),
        tenant.making("objects that come and go", &["configmaps"], |asker, random| {
            let name = named(random, 20);
            asker.post(&path("configmaps"), &json!({"metadata": {"name": name}}));
            asker.ask("DELETE", &format!("{}/{name}", path("configmaps")), "", b"")
        }),
        tenant.making("chains of owners", &["configmaps"], |asker, random| {
            let mut owner = Vec::new();
            for at in 0..20 {
                let name = format!("c{}-{at}", random.below(1_000_000));
                let body = owned(&name, &owner, &[]).to_string();
                let (_, answer) = asker.answer("POST", &path("configmaps"), JSON, body.as_bytes())?;
                let made: Value = serde_json::from_slice(&answer).ok()?;
                owner.push((name, made["metadata"]["uid"].as_str()?.to_owned()));
            }
            let policy = json!({"propagationPolicy": random.one(&["Foreground", "Background", "Orphan"])}).to_string();
            asker.ask("DELETE", &format!("{}/{}", path("configmaps"), owner[0].0), JSON, policy.as_bytes())
        }),
        tenant.making("owners that never were", &["configmaps"], |asker, random| {
            let owners: Vec<(String, String)> =
                (0..20).map(|_| (named(random, 99), format!("u{}", random.below(1 << 40)))).collect();
            asker.post(&path("configmaps"), &owned(&named(random, 1_000_000), &owners, &[]))
        }),
        tenant.repeated("tokens", |asker, _| {
            asker.post(&format!("{}/default/token", path("serviceaccounts")), &json!({"spec": {}}))
        }),
    ]
}
