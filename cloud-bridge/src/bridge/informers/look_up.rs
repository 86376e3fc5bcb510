//! Questions of nodes about objects that they hold, which the bridge asks the API with its own rights. Names are
//! validated, each question runs only once at a time, their number per node is limited, and they end with the
//! connection.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use edge_protocol::message::{ObjectKey, ObjectRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::answer::Answer;
use super::gone::IsGone;
use crate::bridge::clients::Clients;
use crate::bridge::told::kinds::{Kind, LookUp};
use crate::pki::identity::is_node_name;

/// Maximum for one node, which asks about 256 and waits for the answers. Further questions get no answer, which is
/// safe.
const MOST: usize = 512;
/// Maximum number of concurrent requests of one node to the API.
const TURNS: usize = 8;

/// Questions under way.
#[derive(Default)]
pub(super) struct LookUps(HashMap<String, OfNode>);

struct OfNode {
    asked: HashSet<ObjectRef>,
    turns: Arc<Semaphore>,
}

impl LookUps {
    /// Returns the question whether the object is deleted. `present`: whether the connection that asked still exists.
    pub(super) fn ask(
        &mut self,
        clients: &Clients,
        node: String,
        key: ObjectKey,
        uid: String,
        present: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Option<BoxFuture<'static, Answer>> {
        if !is_askable(&key) {
            log::debug!("node {node}: asks about an object that cannot be looked up");
            return None;
        }
        let object = ObjectRef { key: key.clone(), uid: uid.clone() };
        let turns = self.enter(&node, &object)?;
        let (client, own) = (clients.as_node(&node), clients.own().clone());
        let ask = async move {
            // The semaphore is never closed: it is held here.
            let _turn = turns.acquire_owned().await;
            let answer = match present() {
                true => IsGone { client, own, node: node.clone(), key, uid, wanted: present }.ask().await,
                false => Answer::Nothing,
            };
            Answer::LookedUp { node, object, answer: Box::new(answer) }
        };
        Some(ask.boxed())
    }

    fn enter(&mut self, node: &str, object: &ObjectRef) -> Option<Arc<Semaphore>> {
        let new = || OfNode { asked: HashSet::new(), turns: Arc::new(Semaphore::new(TURNS)) };
        let of_node = self.0.entry(node.to_owned()).or_insert_with(new);
        let room = of_node.asked.len() < MOST;
        (room && of_node.asked.insert(object.clone())).then(|| Arc::clone(&of_node.turns))
    }

    pub(super) fn answered(&mut self, node: &str, object: &ObjectRef) {
        let Some(of_node) = self.0.get_mut(node) else { return };
        of_node.asked.remove(object);
        if of_node.asked.is_empty() {
            self.0.remove(node);
        }
    }
}

/// Whether the object can be looked up: its kind is known, and names that become paths of requests are valid. All objects
/// of nodes in the API have DNS names.
fn is_askable(key: &ObjectKey) -> bool {
    let Some(kind) = Kind::of(key) else { return false };
    match kind.facts().look_up {
        LookUp::Pod | LookUp::Object | LookUp::Device => is_node_name(&key.namespace) && is_node_name(&key.name),
        LookUp::Cluster => key.namespace.is_empty() && is_node_name(&key.name),
        LookUp::Use | LookUp::Made => true,
        LookUp::Group => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: usize) -> ObjectRef {
        let key = ObjectKey { kind: "Pod".into(), namespace: "ns".into(), name: format!("p{number}") };
        ObjectRef { key, uid: "u".into() }
    }

    #[test]
    fn g17_questions_of_a_node_are_asked_once_and_bounded() {
        let mut look_ups = LookUps::default();
        assert!(look_ups.enter("a", &object(0)).is_some());
        assert!(look_ups.enter("a", &object(0)).is_none(), "it is under way");
        let asked = (0..10_000).filter(|number| look_ups.enter("a", &object(*number)).is_some()).count();
        assert_eq!(asked, MOST - 1);
        assert!(look_ups.enter("b", &object(0)).is_some(), "another node's are its own");
        look_ups.answered("a", &object(0));
        assert!(look_ups.enter("a", &object(0)).is_some());
        (0..MOST).for_each(|number| look_ups.answered("a", &object(number)));
        look_ups.answered("b", &object(0));
        assert!(look_ups.0.is_empty());
    }

    #[test]
    fn g27_names_that_would_change_a_path_are_none() {
        let key = |kind: &str, namespace: &str, name: &str| ObjectKey {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        assert!(is_askable(&key("Pod", "ns", "web-0.a")) && is_askable(&key("RuntimeClass", "", "quick")));
        assert!(is_askable(&key("CSIDriver", "", "nfs.csi.k8s.io")) && !is_askable(&key("CSIDriver", "", "../x")));
        assert!(!is_askable(&key("CSIDriver", "ns", "nfs.csi.k8s.io")));
        assert!(!is_askable(&key("Unknown", "ns", "x")) && !is_askable(&key("ServiceViews", "ns", "all")));
        for (namespace, name) in [
            ("ns", ""),
            ("", "x"),
            ("ns", "x/log?follow=true"),
            ("a/b", "x"),
            ("ns", "../x"),
            ("ns", "x%2f"),
            ("ns", "X"),
        ] {
            assert!(!is_askable(&key("Pod", namespace, name)), "{namespace}/{name}");
        }
    }

    #[test]
    fn odd_keys_are_looked_up_if_the_bridge_made_them() {
        let made = [("ServiceNamespace", "", "all"), ("PolicyPeers", "", "0-of-1"), ("PolicyView", "ns", "_more")];
        for (kind, namespace, name) in made {
            let key = ObjectKey { kind: kind.into(), namespace: namespace.into(), name: name.into() };
            assert!(is_askable(&key), "{kind} {namespace}/{name}");
        }
    }
}
