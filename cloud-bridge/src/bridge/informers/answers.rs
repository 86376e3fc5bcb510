//! Applies answers of the API to questions about single objects and nodes.

use std::sync::Arc;

use edge_protocol::message::ObjectKey;
use futures::FutureExt;

use super::Informers;
use super::answer::{Admission, Answer};
use super::gone::IsGone;
use crate::bridge::told::kinds::Kind;
use crate::bridge::world::{Effect, World};

impl Informers {
    pub(super) fn ask_if_gone(&mut self, node: String, key: ObjectKey, uid: String) {
        let question = self.is_gone(node, key, uid);
        self.questions.push(question.ask().boxed());
    }

    fn is_gone(&self, node: String, key: ObjectKey, uid: String) -> IsGone<impl Fn() -> bool + Send + Sync + use<>> {
        let (client, own, wanted) = (self.clients.as_node(&node), self.clients.own().clone(), self.known(&node));
        IsGone { client, own, node, key, uid, wanted }
    }

    /// Returns a check whether the node is still known.
    fn known(&self, node: &str) -> impl Fn() -> bool + Send + Sync + use<> {
        let (nodes, node) = (Arc::clone(&self.nodes), node.to_owned());
        move || nodes.get(&node).is_some()
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        let effects = match answer {
            Answer::Found(pod) => return self.pod(*pod, World::pod_found),
            Answer::Replaced { node, key, uid, by } => {
                let effects = self.world.pod_gone(&node, &key, &uid);
                self.apply(effects);
                return self.pod(*by, World::pod_found);
            }
            Answer::Tolerations(patches) => {
                return patches.into_iter().for_each(|(key, patch)| self.patch_tolerations(key, patch));
            }
            Answer::Seeds { all, round } => {
                self.seeding = false;
                self.seed();
                all.into_iter().flat_map(|(node, pods, at)| self.world.seed(&node, round, pods, at)).collect()
            }
            Answer::Gone { node, key, uid } if Kind::Pod.is(&key) => self.world.pod_gone(&node, &key, &uid),
            Answer::Gone { node, key, uid } => vec![Effect::Remove { node, key, uid }],
            // The watch does not show yet that no pod names it, or a new pod names it.
            Answer::Useless { node, key, uid } if self.world.uses(&node, &key) => {
                let question = self.is_gone(node, key, uid);
                return self.questions.push(question.ask_again().boxed());
            }
            Answer::Useless { node, key, uid } => vec![Effect::Withdraw { node, key, uid }],
            Answer::Unlisted { node, key, uid } => self.world.unlisted(&node, &key, &uid),
            Answer::Admission(Admission { node, key, may_read: true, .. }) => {
                self.admissions.forget(&node, &key);
                self.world.admitted(&node, &key)
            }
            Answer::Admission(refused) => {
                let (effects, again) = self.world.not_admitted(&refused.node, &refused.key);
                if again {
                    self.questions.push(self.admissions.ask_again(&self.clients, refused));
                } else {
                    self.admissions.forget(&refused.node, &refused.key);
                }
                effects
            }
            Answer::LookedUp { node, object, answer } => {
                self.look_ups.answered(&node, &object);
                return self.answer(*answer);
            }
            Answer::Again(effect) => self.world.still_needed(effect).into_iter().collect(),
            Answer::Nothing => Vec::new(),
        };
        self.apply(effects);
    }
}
