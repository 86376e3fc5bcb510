//! Service account tokens for the pods here: asked of the bridge, kept in the store, renewed before they end.
//! A token that has ended is used on until there is another: offline there may be none for weeks.

mod slot;

use std::collections::BTreeSet;
use std::time::Duration;

use edge_protocol::message::{TokenAnswer, TokenRequest};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use self::slot::{AGAIN, Slot};
use super::context::Context;
use crate::pod::clock::{Mono, Now};
use crate::pod::event::PodEvent;
use crate::pod::record::PodSource;
use crate::pod::token::{self, Held, Wanted};
use crate::store::StoreError;
use crate::sys::random::random;
use crate::sys::vec_map::VecMap;
use crate::volume::csi_pod;

/// Maximum wait of a new pod for its first tokens. After it the set-up of its volumes fails and is reported.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests under way at once; the bridge takes a few more.
const UNDER_WAY: usize = 32;

/// Tokens by pod uid; no pod without one. Each pod has a map of its own, so that a pod with thousands of tokens moves no
/// other's.
type Slots = VecMap<String, VecMap<Wanted, Slot>>;

/// All of them.
#[derive(Default)]
pub(super) struct Tokens {
    slots: Slots,
    /// Tokens that came and are not in the store yet: those that come together share a sync.
    came: Vec<(String, Wanted, Held)>,
    last_id: u64,
    /// Pods whose volumes wait for their first tokens, and until when.
    waiting: VecMap<String, Mono>,
    /// The time as the bridge said it, and when: tokens are good by its clock, as certificates are.
    told: Option<(Timestamp, Mono)>,
}

/// Every token, with the uid of its pod.
fn each(slots: &mut Slots) -> impl Iterator<Item = (&String, &Wanted, &mut Slot)> {
    slots.iter_mut().flat_map(|(uid, of)| of.iter_mut().map(move |(wanted, slot)| (uid, wanted, slot)))
}

impl Tokens {
    /// The bridge has said what time it is.
    pub(super) fn time_told(&mut self, told: Option<Timestamp>, mono: Mono) {
        self.told = told.map(|told| (told, mono)).or(self.told);
    }

    /// The time by the bridge's clock, if it has said it.
    fn true_time(&self, now: Now) -> Now {
        let told = self.told.and_then(|(told, at)| told.checked_add(now.mono.since(at)).ok());
        Now { wall: told.unwrap_or(now.wall), ..now }
    }

    /// Answers are lost with the connection that they were asked on.
    pub(super) fn disconnected(&mut self) {
        each(&mut self.slots).for_each(|(_, _, slot)| slot.asked = None);
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.slots.remove(uid);
        self.waiting.remove(uid);
    }

    /// Tokens of a pod that are for the API itself.
    pub(super) fn of_the_api(&self, uid: &str) -> impl Iterator<Item = &str> {
        let all = self.slots.get(uid).into_iter().flat_map(VecMap::iter);
        let of_the_api = all.filter(|(wanted, _)| wanted.audience.is_empty());
        of_the_api.filter_map(|(_, slot)| slot.held.as_ref()).map(|held| held.token.as_str())
    }

    fn lacking(&self, uid: &str) -> impl Iterator<Item = &Slot> {
        self.slots.get(uid).into_iter().flat_map(VecMap::values).filter(|slot| slot.held.is_none())
    }

    fn lacks(&self, uid: &str) -> bool {
        self.lacking(uid).next().is_some()
    }

    /// Whether an answer about a token that this pod lacks is still expected.
    fn can_still_come(&self, uid: &str) -> bool {
        self.lacking(uid).all(|slot| slot.asked.is_some() || slot.not_before.is_none())
    }

    /// The tokens that this pod's volumes ask for, from now on.
    pub(super) fn want(&mut self, cx: &Context, uid: &str, pod: &Pod) {
        let api = cx.pods.get(uid).is_some_and(|entry| entry.record.source == PodSource::Api);
        let mut wanted = if api { token::wanted(pod) } else { BTreeSet::new() };
        if api && cx.config.plugins.csi {
            csi_pod::wanted_tokens(pod, &cx.objects(), &mut wanted);
        }
        let mut slots = self.slots.remove(uid).unwrap_or_default();
        slots.retain(|which, _| wanted.contains(which));
        for which in wanted {
            if slots.contains_key(&which) {
                continue;
            }
            let held = cx.store.token(uid, &which).unwrap_or_else(|error| {
                log::error!("{error}");
                None
            });
            let slot = Slot { held, random: random(), ..Slot::default() };
            slots.insert(which, slot);
        }
        if !slots.is_empty() {
            self.slots.insert(uid.to_owned(), slots);
        }
    }

    /// Asks for what is due. Returns true if something was.
    pub(super) fn renew(&mut self, cx: &Context) -> bool {
        let now = self.true_time(cx.clock.now());
        let mut asked = false;
        if let Some(link) = cx.connection() {
            let mut under_way = each(&mut self.slots).filter(|(_, _, slot)| slot.asked.is_some()).count();
            for (uid, wanted, slot) in each(&mut self.slots).filter(|(_, _, slot)| slot.is_due(&now)) {
                let Some(entry) = cx.pods.get(uid).filter(|entry| entry.record.terminal.is_none()) else { continue };
                if under_way >= UNDER_WAY {
                    break;
                }
                let id = self.last_id + 1;
                let request = TokenRequest {
                    namespace: entry.record.namespace.clone(),
                    pod: entry.record.name.clone(),
                    uid: uid.clone(),
                    audience: wanted.audience.clone(),
                    expiration_seconds: wanted.seconds,
                };
                if link.request_token(id, request) {
                    self.last_id = id;
                    slot.asked = Some(id);
                    under_way += 1;
                    asked = true;
                } else {
                    "the bridge issues no tokens (an older version?)".clone_into(&mut slot.problem);
                    slot.not_before = Some(now.mono.after(AGAIN.1));
                }
            }
        }
        asked
    }

    /// When to come again.
    pub(super) fn wake(&self, cx: &Context) -> Option<Mono> {
        if self.slots.is_empty() && self.waiting.is_empty() {
            return None;
        }
        let now = self.true_time(cx.clock.now());
        // Offline there is nothing to wake for: the connection's arrival is news.
        let connected = cx.connection().is_some();
        let slots = self.slots.values().flat_map(VecMap::values).filter(|_| connected);
        let slots = slots.filter_map(|slot| slot.due(&now));
        let end = |(uid, until): (&String, &Mono)| {
            if self.has_waited(uid, *until, now.mono) { now.mono } else { *until }
        };
        slots.filter(|at| *at > now.mono).chain(self.waiting.iter().map(end)).min()
    }

    /// Takes the bridge's answer to a request. [`Tokens::keep`] stores what came.
    pub(super) fn answered(&mut self, id: u64, answer: TokenAnswer, now: Mono) {
        let found = each(&mut self.slots).find(|(_, _, slot)| slot.asked == Some(id));
        let Some((uid, wanted, slot)) = found else { return };
        let held = match answer {
            TokenAnswer::Issued { token, issued, expires } => match (issued.parse(), expires.parse()) {
                (Ok(issued), Ok(expires)) => Ok(Held { token, issued, expires }),
                _ => Err(format!("its times {issued:?} and {expires:?} cannot be read")),
            },
            TokenAnswer::Refused { reason } => Err(reason),
            TokenAnswer::Unknown => Err("the bridge's answer is not understood".to_owned()),
        };
        match held {
            Ok(held) => self.came.push((uid.clone(), wanted.clone(), held)),
            Err(reason) => {
                log::warn!("pod {uid}: no service account token: {reason}");
                slot.asked = None;
                slot.refused(reason, now);
            }
        }
    }

    /// Stores the tokens that came. Returns the pods whose volumes are to have them.
    ///
    /// # Errors
    /// The store cannot be written: no pod has seen one of them.
    pub(super) fn keep(&mut self, cx: &mut Context) -> Result<BTreeSet<String>, StoreError> {
        let mut pods = BTreeSet::new();
        let mut came = std::mem::take(&mut self.came);
        // Tokens go with their pod.
        came.retain(|(uid, wanted, _)| self.slots.get(uid).is_some_and(|of| of.contains_key(wanted)));
        if came.is_empty() {
            return Ok(pods);
        }
        // Durable first: what a pod has read once it must find again after a power cut.
        cx.store.write_durable(|writer| {
            came.iter().try_for_each(|(uid, wanted, held)| writer.put_token(uid, wanted, held))
        })?;
        let now = cx.mono();
        for (uid, wanted, held) in came {
            if let Some(slot) = self.slots.get_mut(&uid).and_then(|of| of.get_mut(&wanted)) {
                *slot = Slot { held: Some(held), came: Some(now), random: random(), ..Slot::default() };
            }
            pods.insert(uid);
        }
        for uid in pods.iter().filter(|uid| !self.lacks(uid)) {
            cx.tell(uid, PodEvent::DependencyChanged);
        }
        Ok(pods)
    }

    /// Whether the pod's volumes have to wait for tokens that are on their way. Then [`Tokens::next_waited`] returns the
    /// pod later.
    pub(super) fn awaits(&mut self, cx: &Context, uid: &str) -> bool {
        if cx.connection().is_none() || !self.lacks(uid) || !self.can_still_come(uid) {
            return false;
        }
        let until = cx.mono().after(PATIENCE);
        self.waiting.insert(uid.to_owned(), until);
        true
    }

    /// Why a token that the pod lacks is not there.
    pub(super) fn problem(&self, cx: &Context, uid: &str) -> Option<String> {
        let slot = self.lacking(uid).next()?;
        Some(match cx.connection() {
            _ if !slot.problem.is_empty() => slot.problem.clone(),
            Some(_) => "no answer from the bridge yet".to_owned(),
            None => "no connection to the bridge".to_owned(),
        })
    }

    /// Takes a pod that waits no longer: its tokens are there, or will not come. One at a time: containers of the first
    /// can start while the next is prepared.
    pub(super) fn next_waited(&mut self, now: Mono) -> Option<String> {
        let over = self.waiting.iter().find(|(uid, until)| self.has_waited(uid, **until, now));
        let uid = over.map(|(uid, _)| uid.clone())?;
        self.waiting.remove(&uid);
        Some(uid)
    }

    fn has_waited(&self, uid: &str, until: Mono, now: Mono) -> bool {
        until <= now || !self.lacks(uid) || !self.can_still_come(uid)
    }
}

#[cfg(test)]
mod tests;
