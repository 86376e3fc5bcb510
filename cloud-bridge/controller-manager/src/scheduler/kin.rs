//! Pods that are on nodes, those together that no pod can tell apart and that say the same of others: what one pod wants of
//! others is held against replicas of a controller once. Pure.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::affinity::Scope;
use super::pod::Pod;

/// Equal for pods with the same labels and controller that say the same of others.
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

/// In the order of its key.
#[derive(Debug)]
struct ByKey(Arc<Pod>);

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ByKey {}

/// Pods of one namespace that are alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kin<'a> {
    /// Stands for each of them.
    pub(super) like: &'a Pod,
    pods: &'a BTreeSet<ByKey>,
}

impl<'a> Kin<'a> {
    pub(super) fn pods(&self) -> impl Iterator<Item = &'a Pod> + Send + use<'a> {
        self.pods.iter().map(|pod| &*pod.0)
    }
}

type Namespace = HashMap<Like, BTreeSet<ByKey>>;

#[derive(Debug, Default)]
pub(super) struct Kins(BTreeMap<String, Namespace>);

impl Kins {
    pub(super) fn insert(&mut self, pod: &Arc<Pod>) {
        let namespace = self.0.entry(pod.key.0.clone()).or_default();
        namespace.entry(Like(Arc::clone(pod))).or_default().insert(ByKey(Arc::clone(pod)));
    }

    pub(super) fn remove(&mut self, pod: &Arc<Pod>) {
        let Some(namespace) = self.0.get_mut(&pod.key.0) else { return };
        let like = Like(Arc::clone(pod));
        if let Some(pods) = namespace.get_mut(&like) {
            pods.remove(&ByKey(Arc::clone(pod)));
            if pods.is_empty() {
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
    namespace.iter().map(|(like, pods)| Kin { like: &like.0, pods })
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
        web.iter().for_each(|pod| kins.insert(pod));
        kins.insert(&pod("other", "web", "other set"));
        kins.insert(&pod("db", "db", "set"));
        let mut sizes: Vec<usize> = kins.of_namespace("ns").map(|kin| kin.pods().count()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 1, 100]);
        assert_eq!((kins.all().count(), kins.of_namespace("other").count()), (3, 0));
        web.iter().for_each(|pod| kins.remove(pod));
        assert_eq!(kins.of(&Scope::Named(["ns"].into())).count(), 2);
    }
}
