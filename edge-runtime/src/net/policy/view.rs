//! What the bridge tells of NetworkPolicies: each with its rules, and the addresses of pods of all nodes that its peers
//! may mean. Shapes only.
//!
//! In Kubernetes an omitted field of a peer or a port permits more than a given one. So no field is ignored by mistake:
//! a policy with an unknown field is not understood, and isolates its pods.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::blocks::Block;
use super::selector::Selector;
use crate::net::services::view::TargetPort;

/// Kinds of the objects in which they come.
pub const POLICY_VIEW: &str = "PolicyView";
pub const POLICY_PEERS: &str = "PolicyPeers";

/// Peers that are pods, of one policy: each is held against each pod.
const POD_PEERS: usize = 1000;
/// Peers, ports and exceptions of one policy.
const PARTS: usize = 20_000;

/// One policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    pub pod_selector: Selector,
    /// Permitted ingress; `None`: pods are not isolated for ingress.
    pub ingress: Option<Vec<Rule>>,
    /// Permitted egress; `None`: pods are not isolated for egress.
    pub egress: Option<Vec<Rule>>,
    /// Why it lets nothing through, if it is not understood.
    pub unreadable: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    pod_selector: Selector,
    ingress: Option<Vec<RuleView>>,
    egress: Option<Vec<RuleView>>,
}

/// Permits traffic with one of its peers, on one of its ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// `None` means all.
    pub ports: Option<Vec<Port>>,
    /// `None` means all.
    pub peers: Option<Vec<Peer>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleView {
    ports: Option<Vec<Port>>,
    peers: Option<Vec<PeerView>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Port {
    /// `TCP` if empty.
    pub protocol: String,
    /// `None` means all of the protocol.
    pub port: Option<TargetPort>,
    pub end_port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    Block { block: Block, except: Vec<Block> },
    Pods(PodPeer),
}

/// Pods by their labels and those of their namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct PodPeer {
    /// Id by which [`RemotePod::peers`] names this peer for pods of other nodes.
    pub id: String,
    /// `None` means all.
    pub namespaces: Option<BTreeSet<String>>,
    pub pod_selector: Selector,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PeerView {
    cidr: Option<String>,
    #[serde(default)]
    except: Vec<String>,
    id: Option<String>,
    namespaces: Option<BTreeSet<String>>,
    pod_selector: Option<Selector>,
}

/// Pods with the peers that they are, some of all there are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Peers {
    pub pods: Vec<RemotePod>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RemotePod {
    pub node: String,
    pub ips: Vec<IpAddr>,
    /// Ids of [`PodPeer`]s.
    pub peers: Vec<String>,
    /// Name, protocol, number.
    pub ports: Vec<(String, String, u16)>,
}

impl Policy {
    /// Parses the object's body. An unknown part isolates the pods that the policy seems to select, or all pods of its
    /// namespace.
    pub fn read(body: &Value) -> Self {
        let spec = &body["spec"];
        let told = spec["unreadable"].as_str().map(|why| Err(why.chars().take(200).collect()));
        let read = || {
            if !spec.is_object() || !is_shaped(spec) {
                return Err("a part of it is of another type".to_owned());
            }
            let spec = Spec::deserialize(spec).map_err(|error| error.to_string())?;
            let rules = |rules: Option<Vec<RuleView>>| {
                rules.map(|rules| rules.into_iter().map(RuleView::read).collect::<Result<_, _>>()).transpose()
            };
            let (ingress, egress) = (rules(spec.ingress)?, rules(spec.egress)?);
            let read = Self { pod_selector: spec.pod_selector, ingress, egress, unreadable: None };
            if read.pod_peers() > POD_PEERS || read.weight() > PARTS {
                return Err(format!("a node takes {POD_PEERS} peers that are pods, and {PARTS} parts in all"));
            }
            Ok(read)
        };
        told.unwrap_or_else(read).unwrap_or_else(|why| {
            let pod_selector = Selector::deserialize(&spec["podSelector"]).unwrap_or_default();
            Self::deny(pod_selector, why)
        })
    }

    fn all_rules(&self) -> impl Iterator<Item = &Rule> {
        self.ingress.iter().chain(&self.egress).flatten()
    }

    fn pod_peers(&self) -> usize {
        let peers = self.all_rules().flat_map(|rule| rule.peers.iter().flatten());
        peers.filter(|peer| matches!(peer, Peer::Pods(_))).count()
    }

    /// How much it asks of a node.
    pub fn weight(&self) -> usize {
        let of_peer = |peer: &Peer| match peer {
            Peer::Block { except, .. } => 1 + except.len(),
            Peer::Pods(_) => 1,
        };
        let of_rule = |rule: &Rule| {
            let peers: usize = rule.peers.iter().flatten().map(of_peer).sum();
            1 + peers + rule.ports.as_ref().map_or(0, Vec::len)
        };
        self.all_rules().map(of_rule).sum()
    }

    /// Lets nothing through.
    pub fn deny(pod_selector: Selector, why: String) -> Self {
        Self { pod_selector, ingress: Some(Vec::new()), egress: Some(Vec::new()), unreadable: Some(why) }
    }
}

/// Whether lists are where there may be lists: serde reads one in the place of an object, too, and an empty one as an object
/// that says nothing.
fn is_shaped(value: &Value) -> bool {
    const LISTS: [&str; 8] =
        ["ingress", "egress", "ports", "peers", "except", "namespaces", "matchExpressions", "values"];
    match value {
        Value::Object(fields) => fields.iter().all(|(field, value)| match value {
            Value::Array(values) => {
                LISTS.contains(&field.as_str()) && values.iter().all(|value| !value.is_array() && is_shaped(value))
            }
            value => is_shaped(value),
        }),
        _ => true,
    }
}

impl RuleView {
    fn read(self) -> Result<Rule, String> {
        let peers = self.peers.map(|peers| peers.into_iter().map(PeerView::read).collect::<Result<_, _>>());
        Ok(Rule { ports: self.ports, peers: peers.transpose()? })
    }
}

impl Port {
    pub fn is_named(&self) -> bool {
        matches!(self.port, Some(TargetPort::Name(_)))
    }
}

impl PeerView {
    fn read(self) -> Result<Peer, String> {
        match self {
            Self { cidr: Some(cidr), except, id: None, namespaces: None, pod_selector: None } => {
                let except = except.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
                Ok(Peer::Block { block: cidr.parse()?, except })
            }
            Self { cidr: None, except, id: Some(id), namespaces, pod_selector: Some(pod_selector) }
                if except.is_empty() =>
            {
                Ok(Peer::Pods(PodPeer { id, namespaces, pod_selector }))
            }
            _ => Err("a peer is neither a range of addresses nor pods".to_owned()),
        }
    }
}

impl Peers {
    /// Parses the object's body.
    ///
    /// # Errors
    /// A field has another type than here.
    pub fn read(body: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(body)
    }
}

#[cfg(test)]
mod tests;
