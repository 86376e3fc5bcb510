//! Service account tokens for the pods here: asked of the bridge, kept in the store, renewed before they end.
//! A token that has ended is used on until there is another: offline there may be none for weeks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use edge_protocol::message::{TokenAnswer, TokenRequest};
use k8s_openapi::api::core::v1::Pod;

use super::Node;
use crate::launch::sandbox::SandboxFailure;
use crate::pod::clock::{Mono, Now};
use crate::pod::event::PodEvent;
use crate::pod::record::{PodSource, SandboxState};
use crate::store::StoreError;
use crate::sys::random::random;
use crate::volume::error::TOKEN_MISSING;
use crate::volume::token::{self, Held, Wanted};

/// A new pod waits this long for its first tokens before its volumes are made without them, which fails and is told.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a refusal, doubled with each up to the second figure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));
/// Requests under way at once; the bridge takes a few more.
const UNDER_WAY: usize = 32;
/// A wall clock that jumps moves what is due: it is looked at again after this at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// One token of one pod.
#[derive(Default)]
struct Slot {
    held: Option<Held>,
    /// Spreads the refresh.
    random: u32,
    asked: Option<u64>,
    refusals: u32,
    not_before: Option<Mono>,
    problem: String,
}

/// All of them.
#[derive(Default)]
pub(super) struct Tokens {
    slots: BTreeMap<(String, Wanted), Slot>,
    last_id: u64,
    /// Pods whose volumes wait for their first tokens, and until when.
    waiting: BTreeMap<String, Mono>,
}

impl Slot {
    /// `None` while a request is under way.
    fn due(&self, now: &Now) -> Option<Mono> {
        if self.asked.is_some() {
            return None;
        }
        let refresh = self.held.as_ref().map(|held| {
            let left = held.refresh_at(self.random).duration_since(now.wall);
            now.mono.after(Duration::try_from(left).unwrap_or_default().min(LOOK_AGAIN))
        });
        // A look that comes before its time finds nothing due and looks again.
        let due = refresh.unwrap_or(now.mono);
        Some(self.not_before.map_or(due, |at| at.max(due)))
    }

    fn is_due(&self, now: &Now) -> bool {
        let fresh = self.held.as_ref().is_some_and(|held| now.wall < held.refresh_at(self.random));
        self.asked.is_none() && !fresh && self.not_before.is_none_or(|at| at <= now.mono)
    }
}

impl Tokens {
    /// Answers are lost with the connection that they were asked on.
    fn disconnected(&mut self) {
        self.slots.values_mut().for_each(|slot| slot.asked = None);
    }

    fn forget(&mut self, uid: &str) {
        self.slots.retain(|(owner, _), _| owner != uid);
        self.waiting.remove(uid);
    }

    fn lacks(&self, uid: &str) -> bool {
        self.slots.iter().any(|((owner, _), slot)| owner == uid && slot.held.is_none())
    }

    /// Whether an answer about a token that this pod lacks is to be expected.
    fn hopeful(&self, uid: &str) -> bool {
        let mut lacking = self.slots.iter().filter(|((owner, _), slot)| owner == uid && slot.held.is_none());
        lacking.all(|(_, slot)| slot.asked.is_some() || slot.not_before.is_none())
    }
}

impl Node {
    /// The tokens that this pod's volumes ask for, from now on.
    pub(super) fn want_tokens(&mut self, uid: &str, pod: &Pod) {
        let api = self.pods.get(uid).is_some_and(|entry| entry.record.source == PodSource::Api);
        let wanted = if api { token::wanted(pod) } else { BTreeSet::new() };
        self.tokens.slots.retain(|(owner, which), _| owner != uid || wanted.contains(which));
        for which in wanted {
            let key = (uid.to_owned(), which);
            if self.tokens.slots.contains_key(&key) {
                continue;
            }
            let held = self.store.token(uid, &key.1).unwrap_or_else(|error| {
                log::error!("{error}");
                None
            });
            let slot = Slot { held, random: random(), ..Slot::default() };
            self.tokens.slots.insert(key, slot);
        }
    }

    pub(super) fn forget_tokens(&mut self, uid: &str) {
        self.tokens.forget(uid);
    }

    pub(super) fn tokens_disconnected(&mut self) {
        self.tokens.disconnected();
    }

    /// Asks for what is due; says when to come again. Also ends the waiting of pods whose tokens did not come.
    pub(super) fn renew_tokens(&mut self) -> Option<Mono> {
        if self.tokens.slots.is_empty() {
            return None;
        }
        let now = self.clock.now();
        if let Some(link) = self.link.as_ref().filter(|link| link.is_connected()) {
            let mut under_way = self.tokens.slots.values().filter(|slot| slot.asked.is_some()).count();
            for ((uid, wanted), slot) in self.tokens.slots.iter_mut().filter(|(_, slot)| slot.is_due(&now)) {
                let Some(entry) = self.pods.get(uid).filter(|entry| entry.record.terminal.is_none()) else { continue };
                if under_way >= UNDER_WAY {
                    break;
                }
                let id = self.tokens.last_id + 1;
                let request = TokenRequest {
                    namespace: entry.record.namespace.clone(),
                    pod: entry.record.name.clone(),
                    uid: uid.clone(),
                    audience: wanted.audience.clone(),
                    expiration_seconds: wanted.seconds,
                };
                if link.request_token(id, request) {
                    self.tokens.last_id = id;
                    slot.asked = Some(id);
                    under_way += 1;
                } else {
                    "the bridge issues no tokens (an older version?)".clone_into(&mut slot.problem);
                    slot.not_before = Some(now.mono.after(AGAIN.1));
                }
            }
        }
        self.end_waiting(now.mono);
        // Offline there is nothing to wake for: the connection's arrival is news.
        let connected = self.link.as_ref().is_some_and(crate::link::LinkHandle::is_connected);
        let slots = self.tokens.slots.values().filter(|_| connected).filter_map(|slot| slot.due(&now));
        slots.filter(|at| *at > now.mono).chain(self.tokens.waiting.values().copied()).min()
    }

    pub(super) fn token_answered(&mut self, id: u64, answer: TokenAnswer) -> Result<(), StoreError> {
        let now = self.clock.now();
        let found = self.tokens.slots.iter_mut().find(|(_, slot)| slot.asked == Some(id));
        let Some(((uid, wanted), slot)) = found else { return Ok(()) };
        slot.asked = None;
        let held = match answer {
            TokenAnswer::Issued { token, issued, expires } => match (issued.parse(), expires.parse()) {
                (Ok(issued), Ok(expires)) => Ok(Held { token, issued, expires }),
                _ => Err(format!("its times {issued:?} and {expires:?} cannot be read")),
            },
            TokenAnswer::Refused { reason } => Err(reason),
            TokenAnswer::Unknown => Err("the bridge's answer is not understood".to_owned()),
        };
        let (uid, wanted) = (uid.clone(), wanted.clone());
        match held {
            Ok(held) => {
                // Durable first: what a pod has read once it must find again after a power cut.
                self.store.write_durable(|writer| writer.put_token(&uid, &wanted, &held))?;
                *slot = Slot { held: Some(held), random: random(), ..Slot::default() };
                if !self.tokens.lacks(&uid) {
                    self.tell(&uid, PodEvent::DependencyChanged);
                }
                self.refresh_volumes(&uid);
            }
            Err(reason) => {
                log::warn!("pod {uid}: no service account token: {reason}");
                let pause = AGAIN.0.saturating_mul(1 << slot.refusals.min(16)).min(AGAIN.1);
                slot.refusals += 1;
                slot.not_before = Some(now.mono.after(pause));
                slot.problem = reason;
            }
        }
        self.end_waiting(now.mono);
        Ok(())
    }

    /// Whether the pod's volumes have to wait for tokens that are on their way. If so the answer to
    /// `PrepareSandbox` comes later.
    pub(super) fn awaits_tokens(&mut self, uid: &str) -> bool {
        let connected = self.link.as_ref().is_some_and(crate::link::LinkHandle::is_connected);
        if !connected || !self.tokens.lacks(uid) || !self.tokens.hopeful(uid) {
            return false;
        }
        let until = self.clock.now().mono.after(PATIENCE);
        self.tokens.waiting.insert(uid.to_owned(), until);
        true
    }

    /// A pod that could not be prepared; for want of a token the message says why there is none.
    pub(super) fn without_volumes(&self, uid: &str, failure: SandboxFailure) -> PodEvent {
        let SandboxFailure { reason, mut message } = failure;
        if message.ends_with(TOKEN_MISSING)
            && let Some(why) = self.token_problem(uid)
        {
            message = format!("{message}: {why}");
        }
        PodEvent::SandboxFailed { reason: reason.to_owned(), message }
    }

    /// Why a token that the pod lacks is not there.
    fn token_problem(&self, uid: &str) -> Option<String> {
        let lacking = self.tokens.slots.iter().find(|((owner, _), slot)| owner == uid && slot.held.is_none());
        let (_, slot) = lacking?;
        Some(match (slot.problem.is_empty(), &self.link) {
            (false, _) => slot.problem.clone(),
            (true, Some(link)) if link.is_connected() => "no answer from the bridge yet".to_owned(),
            _ => "no connection to the bridge".to_owned(),
        })
    }

    fn end_waiting(&mut self, now: Mono) {
        let over = |uid: &String, until: Mono| until <= now || !self.tokens.lacks(uid) || !self.tokens.hopeful(uid);
        let over: Vec<String> =
            self.tokens.waiting.iter().filter(|(uid, until)| over(uid, **until)).map(|(uid, _)| uid.clone()).collect();
        for uid in over {
            self.tokens.waiting.remove(&uid);
            let Some(entry) = self.pods.get(&uid) else { continue };
            if entry.record.sandbox.state == SandboxState::Preparing {
                let pod = std::rc::Rc::clone(&entry.pod);
                if let Some(answer) = self.prepare_sandbox(&uid, &pod) {
                    self.tell(&uid, answer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(wall: &str) -> Now {
        Now { wall: wall.parse().expect("a time"), mono: Mono(1_000), boot_id: "b".into() }
    }

    #[test]
    fn g26_a_token_is_used_past_its_end_until_there_is_another() {
        let time = |text: &str| text.parse().expect("a time");
        let held =
            Held { token: "t".into(), issued: time("2026-01-01T00:00:00Z"), expires: time("2026-01-01T01:00:00Z") };
        let key = ("uid".to_owned(), Wanted { audience: String::new(), seconds: 3600 });
        let mut tokens = Tokens::default();
        tokens.slots.insert(key.clone(), Slot { held: Some(held.clone()), ..Slot::default() });
        // A clock in 1970 asks for nothing; one far ahead asks, and neither throws anything away.
        for (wall, due) in
            [("1970-01-01T00:01:00Z", false), ("2026-01-01T00:30:00Z", false), ("2036-01-01T00:00:00Z", true)]
        {
            assert_eq!(tokens.slots[&key].is_due(&now(wall)), due, "{wall}");
            assert!(!tokens.lacks("uid"), "no pod waits for one that it has");
        }
        let slot = tokens.slots.get_mut(&key).expect("there");
        (slot.asked, slot.refusals, slot.not_before) = (Some(1), 3, Some(Mono(9_000)));
        tokens.disconnected();
        assert_eq!(tokens.slots[&key].held.as_ref().map(|held| &held.token), Some(&held.token), "nor does a refusal");
        assert!(!tokens.slots[&key].is_due(&now("2036-01-01T00:00:00Z")), "asked again after the pause");
        tokens.forget("uid");
        assert!(tokens.slots.is_empty(), "it goes with its pod");
    }
}
