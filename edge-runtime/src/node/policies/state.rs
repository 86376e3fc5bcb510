//! NetworkPolicies: the pods of this node that they select, and the kernel's tables that follow. [`super::schedule`]
//! decides when to update the kernel; the rules are in [`crate::net::policy`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use edge_protocol::message::ObjectKey;

use super::done::Done;
use super::pods::{bridge_mac, local_pod};
use super::schedule::{Answered, Begin, Ended, Held, Schedule, Write, nobody};
use super::told::Told;
use crate::launch::Launch;
use crate::net::policy::view::{POLICY_PEERS, POLICY_VIEW};
use crate::net::policy::world::Name;
use crate::net::policy::{LocalPod, Peers, Policy, Tables, World, apply, tables};
use crate::node::context::Context;
use crate::node::sources::News;
use crate::pod::clock::Mono;
use crate::store::{Store, StoreError};
use crate::sys::vec_map::VecMap;

pub(in crate::node) struct Policies {
    enabled: bool,
    policies: BTreeMap<Name, Policy>,
    others: BTreeMap<Name, Peers>,
    /// Pods of this node by uid; empty without a policy.
    pods: VecMap<String, LocalPod>,
    /// Pods that are being connected, and their addresses.
    pub(super) coming: VecMap<String, Vec<IpAddr>>,
    schedule: Schedule,
    told: Told,
}

impl Policies {
    /// Reads the views of the store.
    ///
    /// # Errors
    /// SQLite fails.
    pub(in crate::node) fn open(enabled: bool, store: &Store) -> Result<Self, StoreError> {
        let mut policies = Self {
            enabled,
            policies: BTreeMap::new(),
            others: BTreeMap::new(),
            pods: VecMap::new(),
            coming: VecMap::new(),
            schedule: Schedule::default(),
            told: Told::default(),
        };
        if enabled {
            for key in store.held()?.into_iter().map(|digest| digest.key).filter(is_view) {
                let body = store.object(&key.kind, &key.namespace, &key.name)?;
                policies.put(&key, body);
            }
        }
        Ok(policies)
    }

    /// An object of the bridge has come, changed or gone; false if it is not about policies.
    pub(in crate::node) fn take(&mut self, cx: &Context, key: &ObjectKey) -> bool {
        if !is_view(key) {
            return false;
        }
        if self.enabled {
            match cx.store.object(&key.kind, &key.namespace, &key.name) {
                Ok(body) => self.put(key, body),
                // Rules stay as they are, and the policy with them.
                Err(error) => log::error!("{} {}/{}: {error}", key.kind, key.namespace, key.name),
            }
        }
        true
    }

    fn put(&mut self, key: &ObjectKey, body: Option<serde_json::Value>) {
        let name = (key.namespace.clone(), key.name.clone());
        self.schedule.changed();
        if key.kind == POLICY_VIEW {
            match body {
                Some(body) => drop(self.policies.insert(name, Policy::read(&body))),
                None => drop(self.policies.remove(&name)),
            }
            return;
        }
        match body.map(|body| Peers::read(&body)) {
            Some(Ok(peers)) => drop(self.others.insert(name, peers)),
            // Then none of these peers is let in.
            Some(Err(error)) => {
                log::error!("peers of policies {}/{} are left out: {error}", name.0, name.1);
                self.others.remove(&name);
            }
            None => drop(self.others.remove(&name)),
        }
    }

    /// After a pod's turn: whether it is another one for policies now.
    pub(in crate::node) fn look_at_pod(&mut self, cx: &Context, launch: &Launch, uid: &str) {
        if !self.policies.is_empty() && self.pods.get(uid) != local_pod(cx, launch, &self.coming, uid).as_ref() {
            self.schedule.changed();
        }
    }

    /// Whether the pod, which is about to be connected with these addresses, must wait for the kernel. The answer is
    /// [`Answer::Policies`].
    pub(in crate::node) fn holds_back(&mut self, uid: &str, ips: &[IpAddr]) -> bool {
        if self.policies.is_empty() || ips.is_empty() {
            return false;
        }
        self.coming.insert(uid.to_owned(), ips.to_vec());
        self.schedule.wait(uid);
        true
    }

    /// A chain whose existence shows that the kernel holds the desired state; `None` if tables should not exist, or
    /// during a change.
    pub(in crate::node) fn mark(&self) -> Option<&str> {
        self.schedule.mark()
    }

    /// Another program has deleted the tables.
    pub(in crate::node) fn lost(&mut self) {
        self.schedule.lost();
    }

    /// When [`Policies::step`] has something to do although nothing happens.
    pub(in crate::node) fn wake(&self) -> Option<Mono> {
        self.schedule.wake()
    }

    /// Updates the kernel if it is time. Called with each round of the loop. Returns the pods that wait no longer, and
    /// the error if the update failed.
    pub(super) fn step(&mut self, cx: &mut Context, launch: &Launch) -> Result<Answered, StoreError> {
        if !cx.resumed {
            return Ok(nobody());
        }
        let now = cx.mono();
        match self.schedule.begin(now, || cx.pods.starting() < cx.config.runtime.parallel()) {
            Begin::No => return Ok(nobody()),
            Begin::Refused(answered) => return Ok(answered),
            Begin::Yes => {}
        }
        let wanted = self.wanted(cx, launch);
        let denied = wanted.as_ref().map(|tables| tables.denied.clone()).unwrap_or_default();
        self.told.denied(cx, denied)?;
        let held = wanted.as_ref().map_or(Held::Nothing, |tables| Held::Tables(tables.mark.clone()));
        match self.schedule.write(held, now) {
            Write::Nothing(answered) => return Ok(answered),
            write => self.write(cx, launch, &write, wanted),
        }
        Ok(nobody())
    }

    /// Executes a change beside the loop.
    fn write(&self, cx: &Context, launch: &Launch, write: &Write, wanted: Option<Tables>) {
        let network = &launch.sandboxes.teardown.network;
        let (nft, settings) = (network.nft().to_owned(), network.settings().clone());
        match wanted {
            None => cx.background(async move {
                let done = apply::clear(&nft, &settings.bridge).await;
                News::PoliciesApplied(Done::Cleared(done.map_err(|error| error.to_string())))
            }),
            Some(tables) if *write == Write::Look => cx.background(async move {
                let found = apply::has(&settings.bridge, &settings.subnets, &tables.mark);
                News::PoliciesApplied(Done::Looked(found))
            }),
            Some(tables) => {
                let together = self.told.wants_neighbours();
                cx.background(async move {
                    let done = apply::replace(nft, tables, together).await;
                    let around = done.map(|around| around.map(|error| error.to_string()));
                    News::PoliciesApplied(Done::Replaced(around.map_err(|error| error.to_string())))
                });
            }
        }
    }

    /// Processes the result of the last step: the waiting pods, and their answers.
    pub(super) fn applied(&mut self, cx: &mut Context, done: Done) -> Result<Answered, StoreError> {
        let Ended { answered, notice } = self.schedule.ended(done, cx.mono());
        if let Some(notice) = notice {
            self.told.notice(cx, notice, !self.policies.is_empty())?;
        }
        Ok(answered)
    }

    fn wanted(&mut self, cx: &Context, launch: &Launch) -> Option<Tables> {
        // The record of a pod that was being connected has its result by now.
        self.coming.retain(|uid, _| cx.pods.get(uid).is_some_and(|entry| !entry.sandbox_ready()));
        if self.policies.is_empty() {
            self.pods.clear();
            return None;
        }
        let pods = cx.pods.iter().filter_map(|(uid, _)| Some((uid.clone(), local_pod(cx, launch, &self.coming, uid)?)));
        self.pods = pods.collect();
        let (settings, pods) =
            (launch.sandboxes.teardown.network.settings(), self.pods.values().cloned().collect::<Vec<_>>());
        tables(&World {
            bridge: &settings.bridge,
            mac: bridge_mac(&settings.bridge).unwrap_or_else(|| settings.hardware_address()),
            subnets: &settings.subnets,
            node: &cx.config.node_name,
            policies: &self.policies,
            others: &self.others,
            pods: &pods,
        })
    }
}

fn is_view(key: &ObjectKey) -> bool {
    [POLICY_VIEW, POLICY_PEERS].contains(&key.kind.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn put(policies: &mut Policies, name: &str, body: Option<serde_json::Value>) {
        let key = ObjectKey { kind: POLICY_VIEW.into(), namespace: "ns".into(), name: name.into() };
        policies.put(&key, body);
    }

    #[test]
    fn pod_waits_only_while_there_is_a_policy() {
        let mut policies = Policies::open(true, &Store::in_memory().unwrap()).unwrap();
        let ips: [IpAddr; 1] = ["10.0.0.2".parse().unwrap()];
        assert!(!policies.holds_back("a", &ips));
        put(&mut policies, "deny", Some(serde_json::json!({})));
        assert!(!policies.holds_back("on the node's network", &[]) && policies.holds_back("a", &ips));
        assert_eq!(policies.coming.keys().collect::<Vec<_>>(), ["a"]);
        put(&mut policies, "deny", None);
        assert!(!policies.holds_back("b", &ips));
        let Write::Clear = policies.schedule.write(Held::Nothing, Mono(0)) else { panic!("it is unknown") };
        let answered = policies.schedule.ended(Done::Cleared(Ok(())), Mono(0)).answered;
        assert_eq!(answered, (BTreeSet::from(["a".to_owned()]), Ok(())), "its answer comes with the next change");
    }

    #[test]
    fn another_pod_is_a_change_only_with_a_policy() {
        let mut policies = Policies::open(true, &Store::in_memory().unwrap()).unwrap();
        assert_eq!(policies.schedule.begin(Mono(0), || true), Begin::Yes);
        policies.holds_back("a", &["10.0.0.2".parse().unwrap()]);
        assert_eq!(policies.schedule.begin(Mono(0), || true), Begin::No);
        put(&mut policies, "deny", Some(serde_json::json!({})));
        assert_eq!(policies.schedule.begin(Mono(0), || true), Begin::Yes);
    }
}
