//! The volumes that a node may mount: its Node names them in `status.volumesInUse` and in `status.volumesAttached` (K8s
//! pkg/volume/util/operationexecutor, `GenerateVerifyControllerAttachedVolumeFunc`). A controller that detaches a volume
//! removes it from `volumesAttached` first, and then reads `volumesInUse` again. So an object with both shows that the
//! volume stays until the node says that it no longer uses it. An older object must not show that after the node has
//! said so. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::known::{Hash, hash_of};

/// Maximum number of volumes of a node: as many as it mounts.
const MOST: usize = 1_024;
/// How names of CSI volumes begin in a Node (K8s pkg/volume/util, `GetUniqueVolumeName`).
const PLUGIN: &str = "kubernetes.io/csi/";

/// Volumes by node; no node without one.
#[derive(Debug, Default)]
pub(super) struct Listed(HashMap<Box<str>, Volumes>);

#[derive(Debug, Default)]
struct Volumes {
    /// Version of the newest object.
    version: u64,
    /// The volumes that it has in both lists.
    both: BTreeSet<Hash>,
    /// The volumes that the node has ceased to use, and the version at which the API knows it: objects before do not count.
    ceased: BTreeMap<Hash, Option<u64>>,
}

impl Volumes {
    fn count(&self) -> BTreeSet<Hash> {
        self.both.iter().filter(|hash| !self.ceased.contains_key(*hash)).copied().collect()
    }

    /// Forgets what the newest object knows.
    fn settle(&mut self) {
        let newest = self.version;
        self.ceased.retain(|_, written| written.is_none_or(|version| version > newest));
    }
}

impl Listed {
    pub(super) fn has(&self, node: &str, hash: &Hash) -> bool {
        self.0.get(node).is_some_and(|volumes| volumes.both.contains(hash) && !volumes.ceased.contains_key(hash))
    }

    /// A Node as the watch delivers it. Returns the volumes with changes, as all of these functions do.
    pub(super) fn saw<'a>(
        &mut self,
        node: &str,
        version: &str,
        in_use: impl Iterator<Item = &'a str>,
        attached: impl Iterator<Item = &'a str>,
    ) -> Vec<Hash> {
        let attached: HashSet<&str> = attached.filter(|name| name.starts_with(PLUGIN)).collect();
        let both = in_use.filter(|name| attached.contains(name)).take(MOST);
        let both: BTreeSet<Hash> = both.filter_map(|name| hash_in(node, name)).collect();
        if both.is_empty() && !self.0.contains_key(node) {
            return Vec::new();
        }
        self.change(node, |volumes| {
            volumes.both = both;
            volumes.version = number_of(version);
            volumes.settle();
        })
    }

    /// A node reports the volumes that it uses: a list of names.
    pub(super) fn reported(&mut self, node: &str, in_use: &Value) -> Vec<Hash> {
        if !self.0.contains_key(node) {
            return Vec::new();
        }
        let names = in_use.as_array().into_iter().flatten().filter_map(Value::as_str);
        let used: HashSet<Hash> = names.filter_map(|name| hash_in(node, name)).collect();
        self.change(node, |volumes| {
            for hash in volumes.both.iter().filter(|hash| !used.contains(*hash)) {
                volumes.ceased.entry(*hash).or_insert(None);
            }
        })
    }

    /// The API knows the last report, at this version.
    pub(super) fn written(&mut self, node: &str, version: u64) -> Vec<Hash> {
        if !self.0.contains_key(node) {
            return Vec::new();
        }
        self.change(node, |volumes| {
            volumes.ceased.values_mut().for_each(|written| *written = written.or(Some(version)));
            volumes.settle();
        })
    }

    pub(super) fn gone(&mut self, node: &str) -> Vec<Hash> {
        self.0.remove(node).map(|volumes| volumes.count().into_iter().collect()).unwrap_or_default()
    }

    /// Forgets all nodes except these.
    pub(super) fn retain(&mut self, is: impl Fn(&str) -> bool) -> Vec<Hash> {
        let gone: Vec<Box<str>> = self.0.keys().filter(|node| !is(node)).cloned().collect();
        gone.iter().flat_map(|node| self.gone(node)).collect()
    }

    fn change(&mut self, node: &str, change: impl FnOnce(&mut Volumes)) -> Vec<Hash> {
        let volumes = self.0.entry(node.into()).or_default();
        let before = volumes.count();
        change(volumes);
        let changed = before.symmetric_difference(&volumes.count()).copied().collect();
        if volumes.both.is_empty() && volumes.ceased.is_empty() {
            self.0.remove(node);
        }
        changed
    }
}

/// A resource version as a number (they are comparable: K8s KEP-5504). All others are the oldest.
pub(super) fn number_of(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

fn hash_in(node: &str, name: &str) -> Option<Hash> {
    let (driver, handle) = name.strip_prefix(PLUGIN)?.split_once('^')?;
    Some(hash_of(node, driver, handle))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: &str = "kubernetes.io/csi/d^a";
    const B: &str = "kubernetes.io/csi/d^b^c";

    fn hash(node: &str, handle: &str) -> Hash {
        hash_of(node, "d", handle)
    }

    fn saw(listed: &mut Listed, version: u64, in_use: &[&str], attached: &[&str]) -> usize {
        listed.saw("n", &version.to_string(), in_use.iter().copied(), attached.iter().copied()).len()
    }

    #[test]
    fn volume_counts_while_the_node_has_it_in_both_lists() {
        let mut listed = Listed::default();
        assert_eq!(saw(&mut listed, 1, &[A], &[]), 0);
        assert_eq!(saw(&mut listed, 2, &[], &[A, B]), 0, "it may be detached at any moment");
        assert!(listed.0.is_empty(), "nothing is kept");
        assert_eq!(saw(&mut listed, 3, &[A, B, "x"], &[A, B, "x"]), 2);
        assert!(listed.has("n", &hash("n", "a")) && listed.has("n", &hash("n", "b^c")));
        assert!(!listed.has("m", &hash("m", "a")) && !listed.has("n", &hash("m", "a")));
        assert_eq!(saw(&mut listed, 4, &[A, B], &[B]), 1, "a controller detaches it");
        assert!(!listed.has("n", &hash("n", "a")));
        assert!(listed.retain(|node| node == "n").is_empty());
        assert_eq!(listed.retain(|_| false), [hash("n", "b^c")]);
        assert!(listed.0.is_empty());
    }

    #[test]
    fn old_object_does_not_show_that_a_volume_stays() {
        let mut listed = Listed::default();
        saw(&mut listed, 1, &[A], &[A]);
        assert!(listed.reported("n", &json!([A])).is_empty());
        assert_eq!(listed.reported("n", &json!([])), [hash("n", "a")], "at once, before it is written");
        assert_eq!(saw(&mut listed, 2, &[A], &[A]), 0, "written by another client meanwhile");
        assert!(listed.reported("n", &json!([A])).is_empty(), "it is used again");
        assert!(listed.written("n", 4).is_empty());
        assert_eq!(saw(&mut listed, 3, &[A], &[A]), 0);
        assert!(!listed.has("n", &hash("n", "a")));
        assert_eq!(saw(&mut listed, 5, &[A], &[A]), 1, "and still attached");
        assert!(listed.has("n", &hash("n", "a")));
        // The watch is faster than the answer.
        listed.reported("n", &Value::Null);
        assert_eq!(saw(&mut listed, 7, &[A], &[A]), 0);
        assert_eq!(listed.written("n", 6), [hash("n", "a")]);
        listed.reported("n", &json!([]));
        saw(&mut listed, 8, &[], &[]);
        listed.written("n", 8);
        assert!(listed.0.is_empty(), "nothing is kept");
    }

    #[test]
    fn memory_of_a_node_is_bounded() {
        let mut listed = Listed::default();
        let names: Vec<String> = (0..2 * MOST).map(|at| format!("{PLUGIN}d^{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(saw(&mut listed, 1, &names, &names), MOST);
        assert_eq!(listed.reported("n", &json!([])).len(), MOST);
        saw(&mut listed, 2, &names[MOST..], &names);
        assert_eq!(listed.0["n"].both.len(), MOST);
        assert_eq!(listed.gone("n").len(), MOST);
    }
}
