//! Groups of equal pods on nodes: pods in a group have the same labels and the same terms about others, so that the
//! terms of one pod are compared once with all replicas of a controller. Pure.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::affinity::Scope;
use super::pod::Pod;

/// Equal for pods with the same labels and controller and the same terms about others.
#[derive(Debug)]
struct Like(Arc<Pod>);

impl Hash for Like {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.labels, &self.0.owner).hash(state);
    }
}

impl PartialEq for Like {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&*self.0, &*other.0);
        one.owner == other.owner && one.labels == other.labels && one.affinity == other.affinity
    }
}

impl Eq for Like {}

/// Pods of one namespace that are alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kin<'a> {
    /// Represents each of them.
    pub(super) like: &'a Pod,
    nodes: &'a Nodes,
}

impl<'a> Kin<'a> {
    /// The pods on each node that has any, by its name.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&'a str, &'a [Arc<Pod>])> + Send + use<'a> {
        self.nodes.iter().map(|(node, pods)| (&**node, pods.as_slice()))
    }
}

type Nodes = BTreeMap<Arc<str>, Vec<Arc<Pod>>>;
type Namespace = HashMap<Like, Nodes>;

#[derive(Debug, Default)]
pub(super) struct Kins(BTreeMap<String, Namespace>);

impl Kins {
    pub(super) fn insert(&mut self, node: &Arc<str>, pod: &Arc<Pod>) {
        let namespace = self.0.entry(pod.key.0.clone()).or_default();
        let nodes = namespace.entry(Like(Arc::clone(pod))).or_default();
        nodes.entry(Arc::clone(node)).or_default().push(Arc::clone(pod));
    }

    pub(super) fn remove(&mut self, node: &str, pod: &Arc<Pod>) {
        let Some(namespace) = self.0.get_mut(&pod.key.0) else { return };
        let like = Like(Arc::clone(pod));
        if let Some(nodes) = namespace.get_mut(&like) {
            if let Some(pods) = nodes.get_mut(node) {
                pods.retain(|one| one.key != pod.key);
                if pods.is_empty() {
                    nodes.remove(node);
                }
            }
            if nodes.is_empty() {
                namespace.remove(&like);
            }
        }
        if namespace.is_empty() {
            self.0.remove(&pod.key.0);
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Kin<'_>> + Send {
        self.0.values().flat_map(of)
    }

    pub(super) fn of_namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = Kin<'a>> + Send + use<'a> {
        self.0.get(namespace).into_iter().flat_map(of)
    }

    /// Those of these namespaces.
    pub(super) fn of<'a>(&'a self, scope: &Scope<'a>) -> Box<dyn Iterator<Item = Kin<'a>> + Send + 'a> {
        match scope {
            Scope::All => Box::new(self.all()),
            Scope::Named(names) => Box::new(names.clone().into_iter().flat_map(move |name| self.of_namespace(name))),
        }
    }
}

fn of(namespace: &Namespace) -> impl Iterator<Item = Kin<'_>> + Send {
    namespace.iter().map(|(like, nodes)| Kin { like: &like.0, nodes })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, app: &str, owner: &str) -> Arc<Pod> {
        let key = ("ns".to_owned(), name.to_owned());
        Arc::new(Pod { key, labels: json!({"app": app}), owner: owner.to_owned(), ..Pod::default() })
    }

    #[test]
    fn replicas_are_kin_and_pods_of_others_are_not() {
        let mut kins = Kins::default();
        let web: Vec<_> = (0..100).map(|at| pod(&format!("web-{at}"), "web", "set")).collect();
        let (one, two) = (Arc::from("one"), Arc::from("two"));
        let on = |at: usize| if at < 60 { &one } else { &two };
        web.iter().enumerate().for_each(|(at, pod)| kins.insert(on(at), pod));
        kins.insert(&one, &pod("other", "web", "other set"));
        kins.insert(&one, &pod("db", "db", "set"));
        let sizes = |kin: Kin<'_>| kin.nodes().map(|(node, pods)| (node.to_owned(), pods.len())).collect::<Vec<_>>();
        let mut all: Vec<_> = kins.of_namespace("ns").map(sizes).collect();
        all.sort_unstable();
        let alone = vec![("one".to_owned(), 1)];
        assert_eq!(all, [alone.clone(), alone, vec![("one".to_owned(), 60), ("two".to_owned(), 40)]]);
        assert_eq!((kins.all().count(), kins.of_namespace("other").count()), (3, 0));
        web.iter().enumerate().for_each(|(at, pod)| kins.remove(on(at), pod));
        assert_eq!(kins.of(&Scope::Named(["ns"].into())).count(), 2);
    }
}
