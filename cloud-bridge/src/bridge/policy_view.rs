//! A NetworkPolicy as a node sees it, and the pods that its peers select. Pure.
//!
//! A node resolves its own pods. For a peer with selectors it therefore needs the selector of pods, the matching
//! namespaces, and the addresses of pods of other nodes. All nodes get the same: policies without any address, and pods
//! in portions by their nodes, each with the peers that select it. So a new or deleted pod changes one portion, for any
//! number of policies and nodes.
//!
//! In Kubernetes, a missing field of a policy often means "all". So a field that is not understood makes the whole
//! policy unreadable, and a node isolates its pods (K8s staging/src/k8s.io/api/networking/v1/types.go).

mod checked;

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::selector::{selects, selects_by};
use edge_protocol::message::Object;
use edge_protocol::weight::weight;
use kube::api::DynamicObject;
use ring::digest;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::peer_pod::PeerPod;
use super::slim::made_object;
use super::told::kinds::Kind;
use crate::pki::encoding::hex;
use checked::{array, is_empty, is_selector, known, port, selector};

/// Maximum length of a policy's text, in bytes; the API accepts objects of 1.5 MiB.
const TEXT: usize = 1 << 20;
const TOO_LARGE: &str = "it is larger than a node takes";
/// Average number of pods in a portion, and maximum number of portions.
const PORTION: usize = 64;
const PORTIONS: usize = 256;

/// The view of a policy.
#[derive(Default)]
pub(super) struct PolicyText {
    pub(super) view: Option<Object>,
    /// Its peers, by their ids.
    pub(super) peers: BTreeMap<String, PeerSelector>,
}

/// A selection of pods by their labels and those of their namespaces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PeerSelector {
    /// `None` means all.
    namespaces: Option<BTreeSet<String>>,
    pods: Value,
    /// Whether the numbers of its pods' named ports are needed.
    pub(super) named: bool,
    /// Size in bytes.
    pub(super) size: usize,
}

impl PeerSelector {
    pub(super) fn is(&self, pod: &PeerPod) -> bool {
        self.namespaces.as_ref().is_none_or(|namespaces| namespaces.contains(&pod.namespace))
            && selects_by(&self.pods, |key| pod.label(key))
    }
}

/// The view of a policy; `namespaces` are all namespaces, with their labels.
pub(super) fn policy_view(policy: &DynamicObject, namespaces: &BTreeMap<String, Value>) -> PolicyText {
    let own = policy.metadata.namespace.clone().unwrap_or_default();
    let (Some(name), Some(uid)) = (policy.metadata.name.clone(), policy.metadata.uid.clone()) else {
        return PolicyText::default();
    };
    let from = &policy.data["spec"];
    let mut reader = Reader { own: &own, namespaces, peers: BTreeMap::new(), room: TEXT };
    let spec = reader
        .spec(from)
        .and_then(|spec| if spec.to_string().len() > TEXT { Err(TOO_LARGE.to_owned()) } else { Ok(spec) });
    let spec = spec.unwrap_or_else(|why| {
        reader.peers.clear();
        let mut spec = json!({ "unreadable": why });
        if is_selector(&from["podSelector"]) {
            spec.set("podSelector", from["podSelector"].clone());
        }
        spec
    });
    let key = Kind::PolicyView.key(own.as_str(), name);
    let view = made_object(key, uid, json!({ "kind": Kind::PolicyView.name(), "spec": spec }));
    PolicyText { view: Some(view), peers: reader.peers }
}

struct Reader<'a> {
    own: &'a str,
    namespaces: &'a BTreeMap<String, Value>,
    peers: BTreeMap<String, PeerSelector>,
    /// Bytes left for further peers: each may name all namespaces.
    room: usize,
}

impl Reader<'_> {
    fn spec(&mut self, from: &Value) -> Result<Value, String> {
        known(from, &["podSelector", "policyTypes", "ingress", "egress"])?;
        let mut spec = json!({ "podSelector": selector(&from["podSelector"])?.unwrap_or_else(|| json!({})) });
        let (mut ingress, mut egress) = (true, array(&from["egress"])?.is_some());
        if let Some(types) = array(&from["policyTypes"])? {
            (ingress, egress) = (false, false);
            for one in types {
                match one.as_str() {
                    Some("Ingress") => ingress = true,
                    Some("Egress") => egress = true,
                    _ => return Err("a policyType is neither Ingress nor Egress".to_owned()),
                }
            }
        }
        for (wanted, direction, peers) in [(ingress, "ingress", "from"), (egress, "egress", "to")] {
            if wanted {
                let mut rules = Vec::new();
                for rule in array(&from[direction])?.into_iter().flatten() {
                    self.rule(rule, peers, &mut rules)?;
                }
                spec.set(direction, rules.into());
            }
        }
        Ok(spec)
    }

    fn rule(&mut self, from: &Value, peers: &str, rules: &mut Vec<Value>) -> Result<(), String> {
        known(from, &["ports", peers])?;
        let ports = array(&from["ports"])?;
        let ports: Option<Vec<Value>> =
            ports.map(|ports| ports.iter().map(port).collect::<Result<_, _>>()).transpose()?;
        let named = |port: &Value| port["port"].is_string();
        let names = peers == "to" && ports.iter().flatten().any(named);
        let peers = match array(&from[peers])? {
            None => None,
            Some(peers) => Some(peers.iter().map(|one| self.peer(one, names)).collect::<Result<Vec<_>, _>>()?),
        };
        let mut put = |ports: Option<Vec<Value>>, peers: Option<Vec<Value>>| {
            let mut rule = json!({});
            for (field, values) in [("ports", ports), ("peers", peers)] {
                if let Some(values) = values {
                    rule.set(field, values.into());
                }
            }
            rules.push(rule);
        };
        if !names || peers.is_some() {
            put(ports, peers);
            return Ok(());
        }
        // Only pods have named ports: all pods, if the rule has no peers.
        let (named, numbers): (Vec<Value>, Vec<Value>) = ports.into_iter().flatten().partition(named);
        let all = self.pods(None, json!({}), true)?;
        put(Some(named), Some(vec![all]));
        if !numbers.is_empty() {
            put(Some(numbers), None);
        }
        Ok(())
    }

    fn peer(&mut self, from: &Value, named: bool) -> Result<Value, String> {
        known(from, &["ipBlock", "podSelector", "namespaceSelector"])?;
        let (pods, spaces) = (selector(&from["podSelector"])?, selector(&from["namespaceSelector"])?);
        let block = &from["ipBlock"];
        match (pods, spaces) {
            (None, None) if block.is_object() => {
                known(block, &["cidr", "except"])?;
                let except = array(&block["except"])?.cloned().unwrap_or_default();
                Ok(json!({ "cidr": block["cidr"], "except": except }))
            }
            (None, None) => Err("a peer is nobody".to_owned()),
            _ if !block.is_null() => Err("a peer is a range of addresses and pods".to_owned()),
            (pods, None) => {
                let own = BTreeSet::from([self.own.to_owned()]);
                self.pods(Some(own), pods.unwrap_or_else(|| json!({})), named)
            }
            (pods, Some(spaces)) => {
                let all = spaces.as_object().is_some_and(|spaces| spaces.values().all(is_empty));
                let matching = self.namespaces.iter().filter(|(_, labels)| selects(&spaces, labels));
                let matching = (!all).then(|| matching.map(|(name, _)| name.clone()).collect());
                self.pods(matching, pods.unwrap_or_else(|| json!({})), named)
            }
        }
    }

    fn pods(&mut self, namespaces: Option<BTreeSet<String>>, pods: Value, named: bool) -> Result<Value, String> {
        let mut view = json!({ "podSelector": pods });
        if let Some(namespaces) = &namespaces {
            view.set("namespaces", json!(namespaces));
        }
        let text = view.to_string();
        self.room = self.room.checked_sub(text.len()).ok_or_else(|| TOO_LARGE.to_owned())?;
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        let id = hex(digest.as_ref().get(..10).unwrap_or_default());
        view.set("id", id.as_str().into());
        let size = weight(&text);
        let peer = self.peers.entry(id).or_insert(PeerSelector { namespaces, pods, named, size });
        peer.named |= named;
        Ok(view)
    }
}

/// Pods as nodes get them, in portions by their nodes; each with the ids of the peers that select it. The portions are
/// computed lazily.
pub(super) fn peer_views<'a, S: AsRef<str> + 'a>(
    namespace: &str,
    pods: impl ExactSizeIterator<Item = (&'a PeerPod, &'a [S])>,
    named: impl Fn(&str) -> bool,
) -> impl Iterator<Item = Object> {
    let count = (pods.len() / PORTION).next_power_of_two().min(PORTIONS);
    let mut portions: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (pod, peers) in pods {
        let digest = digest::digest(&digest::SHA256, pod.node.as_bytes());
        let portion = digest.as_ref().first().map_or(0, |byte| usize::from(*byte)) % count;
        portions.entry(portion).or_default().push((pod, peers));
    }
    let view = move |(pod, peers): (&PeerPod, &[S])| {
        let ids: Vec<&str> = peers.iter().map(AsRef::as_ref).collect();
        let mut view = json!({ "node": pod.node, "ips": pod.ips, "peers": ids });
        if ids.iter().any(|id| named(id))
            && let Some(ports) = pod.ports()
        {
            view.set("ports", ports);
        }
        view
    };
    portions.into_iter().map(move |(portion, pods)| {
        let name = format!("{portion}-of-{count}");
        let uid = format!("policy-peers-{namespace}-{name}");
        let key = Kind::PolicyPeers.key(namespace, name);
        let pods: Vec<Value> = pods.into_iter().map(&view).collect();
        made_object(key, uid, json!({ "kind": Kind::PolicyPeers.name(), "pods": pods }))
    })
}

#[cfg(test)]
mod tests;
