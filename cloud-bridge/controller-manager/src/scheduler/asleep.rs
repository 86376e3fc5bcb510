//! Pods that wait for a change, those with equal wishes together: a change is held against the wishes, not against each of
//! thousands of replicas. Pure.

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::pod::{Pod, PodKey};

/// How likely a change helps a waiting pod, like the queueing hints of kube-scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hint {
    No,
    /// It removes one obstacle of several that may be there.
    Perhaps,
    /// It makes room for this pod.
    Likely,
}

impl Hint {
    pub(super) fn likely_if(likely: bool) -> Self {
        if likely { Self::Likely } else { Self::No }
    }

    pub(super) fn perhaps_if(perhaps: bool) -> Self {
        if perhaps { Self::Perhaps } else { Self::No }
    }
}

/// What decides whether a change may help a pod.
#[derive(Debug, Clone)]
pub(super) struct Wishes {
    /// One of those that have them.
    pub(super) pod: Arc<Pod>,
    /// Whether only other pods excluded it from all nodes: more room on a node does not help.
    pub(super) kept_off_by_pods: bool,
}

impl Hash for Wishes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let pod = &self.pod;
        (&pod.key.0, pod.priority, self.kept_off_by_pods, &pod.labels, &pod.spec).hash(state);
    }
}

impl PartialEq for Wishes {
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (&*self.pod, &*other.pod);
        self.kept_off_by_pods == other.kept_off_by_pods
            && one.key.0 == two.key.0
            && (one.priority, one.never_preempts) == (two.priority, two.never_preempts)
            && same(one, two)
    }
}

impl Eq for Wishes {}

/// Whether nothing differs that decides where two pods of one namespace may be.
pub(super) fn same(one: &Pod, other: &Pod) -> bool {
    one.spec == other.spec
        && one.labels == other.labels
        && one.needs == other.needs
        && one.affinity == other.affinity
        && one.spread == other.spread
}

/// Which changes bring a pod's next try nearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Any that may help.
    Light,
    /// Only one that is likely to help.
    Deep,
}

#[derive(Debug, Default)]
struct Sleepers {
    light: BTreeSet<PodKey>,
    deep: BTreeSet<PodKey>,
}

impl Sleepers {
    fn of(&mut self, sleep: Sleep) -> &mut BTreeSet<PodKey> {
        match sleep {
            Sleep::Light => &mut self.light,
            Sleep::Deep => &mut self.deep,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Asleep(HashMap<Wishes, Sleepers>);

impl Asleep {
    pub(super) fn insert(&mut self, wishes: Wishes, key: PodKey, sleep: Sleep) {
        self.0.entry(wishes).or_default().of(sleep).insert(key);
    }

    pub(super) fn remove(&mut self, wishes: &Wishes, key: &PodKey) {
        if let Some(sleepers) = self.0.get_mut(wishes) {
            sleepers.light.remove(key);
            sleepers.deep.remove(key);
            if sleepers.light.is_empty() && sleepers.deep.is_empty() {
                self.0.remove(wishes);
            }
        }
    }

    /// The pods whose next try is nearer after a change, and how far it helps. `hint` is asked once for equal wishes.
    pub(super) fn woken(&self, hint: impl Fn(&Wishes) -> Hint) -> Vec<(PodKey, Hint)> {
        let mut woken = Vec::new();
        for (wishes, sleepers) in &self.0 {
            let helped = hint(wishes);
            if helped != Hint::No {
                woken.extend(sleepers.light.iter().map(|key| (key.clone(), helped)));
            }
            if helped == Hint::Likely {
                woken.extend(sleepers.deep.iter().map(|key| (key.clone(), helped)));
            }
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    fn key(name: &str) -> PodKey {
        ("ns".to_owned(), name.to_owned())
    }

    fn wishes(labels: serde_json::Value, kept_off_by_pods: bool) -> Wishes {
        Wishes { pod: Arc::new(Pod { key: key("any"), labels, ..Pod::default() }), kept_off_by_pods }
    }

    #[test]
    fn change_is_held_against_wishes_not_pods() {
        let mut asleep = Asleep::default();
        for at in 0..1000 {
            asleep.insert(wishes(json!({"app": "web"}), false), key(&format!("web-{at}")), Sleep::Light);
        }
        asleep.insert(wishes(json!({"app": "web"}), true), key("kept-off"), Sleep::Light);
        asleep.insert(wishes(json!({"app": "db"}), false), key("db"), Sleep::Deep);
        let looks = Cell::new(0);
        let woken = |asleep: &Asleep, helps: Hint| {
            let woken = asleep.woken(|wishes| {
                looks.set(looks.get() + 1);
                if wishes.pod.labels["app"] == "db" { helps } else { Hint::No }
            });
            woken.len()
        };
        assert_eq!((woken(&asleep, Hint::Perhaps), woken(&asleep, Hint::Likely)), (0, 1));
        assert_eq!(looks.get(), 6, "three wishes, twice");
        assert_eq!(asleep.woken(|wishes| Hint::likely_if(wishes.kept_off_by_pods)), [(key("kept-off"), Hint::Likely)]);
        asleep.remove(&wishes(json!({"app": "db"}), false), &key("db"));
        assert_eq!(woken(&asleep, Hint::Likely), 0);
    }
}
