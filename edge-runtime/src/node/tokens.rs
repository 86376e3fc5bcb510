//! Service account tokens for the pods here: asked of the bridge, kept in the store, renewed before they end.
//! A token that has ended is used on until there is another: offline there may be none for weeks.

use std::collections::BTreeSet;
use std::time::Duration;

use edge_protocol::message::{TokenAnswer, TokenRequest};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::context::Context;
use crate::pod::clock::{Mono, Now};
use crate::pod::event::PodEvent;
use crate::pod::record::PodSource;
use crate::pod::token::{self, Held, Wanted};
use crate::store::StoreError;
use crate::sys::random::random;
use crate::sys::vec_map::VecMap;

/// Maximum wait of a new pod for its first tokens. After it the set-up of its volumes fails and is reported.
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
    /// When it arrived, if it did in this process: its age by the monotonic clock.
    came: Option<Mono>,
    /// Spreads the refresh.
    random: u32,
    asked: Option<u64>,
    refusals: u32,
    not_before: Option<Mono>,
    problem: String,
}

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

impl Slot {
    /// `None` while a request is under way.
    fn due(&self, now: &Now) -> Option<Mono> {
        if self.asked.is_some() {
            return None;
        }
        let refresh = self.held.as_ref().map(|held| {
            let refresh = held.refresh_at(self.random);
            let left = |from: Timestamp| Duration::try_from(refresh.duration_since(from)).unwrap_or_default();
            match self.came {
                Some(came) => came.after(left(held.issued)),
                // If the clock is behind, the age is unknown.
                None if now.wall < held.issued => now.mono,
                None => now.mono.after(left(now.wall).min(LOOK_AGAIN)),
            }
        });
        // A look that comes before its time finds nothing due and looks again.
        let due = refresh.unwrap_or(now.mono);
        Some(self.not_before.map_or(due, |at| at.max(due)))
    }

    fn refused(&mut self, reason: String, now: Mono) {
        let pause = AGAIN.0.saturating_mul(1 << self.refusals.min(16)).min(AGAIN.1);
        self.refusals += 1;
        self.not_before = Some(now.after(pause));
        self.problem = reason;
    }

    fn is_due(&self, now: &Now) -> bool {
        self.due(now).is_some_and(|at| at <= now.mono)
    }
}

/// Every token, with the uid of its pod.
fn each(slots: &mut Slots) -> impl Iterator<Item = (&String, &Wanted, &mut Slot)> {
    slots.iter_mut().flat_map(|(uid, of)| of.iter_mut().map(move |(wanted, slot)| (uid, wanted, slot)))
}

impl Tokens {
    /// The bridge has said what time it is.
    pub(super) fn time_told(&mut self, now_ms: Option<u64>, mono: Mono) {
        let told = now_ms.and_then(|ms| i64::try_from(ms).ok()).and_then(|ms| Timestamp::from_millisecond(ms).ok());
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
        let wanted = if api { token::wanted(pod) } else { BTreeSet::new() };
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
        let key = key("");
        let mut tokens = Tokens::default();
        put(&mut tokens, "uid", key.clone(), Slot { held: Some(held.clone()), ..Slot::default() });
        // By a clock that cannot be right it is asked for, and nothing is thrown away.
        for (wall, due) in
            [("1970-01-01T00:01:00Z", true), ("2026-01-01T00:30:00Z", false), ("2036-01-01T00:00:00Z", true)]
        {
            assert_eq!(slot_of(&tokens, &key).is_due(&now(wall)), due, "{wall}");
            assert!(!tokens.lacks("uid"), "no pod waits for one that it has");
        }
        let slot = tokens.slots.get_mut("uid").and_then(|of| of.get_mut(&key)).expect("there");
        (slot.asked, slot.refusals, slot.not_before) = (Some(1), 3, Some(Mono(9_000)));
        tokens.disconnected();
        assert_eq!(
            slot_of(&tokens, &key).held.as_ref().map(|held| &held.token),
            Some(&held.token),
            "nor does a refusal"
        );
        assert!(!slot_of(&tokens, &key).is_due(&now("2036-01-01T00:00:00Z")), "asked again after the pause");
        tokens.forget("uid");
        assert!(tokens.slots.is_empty(), "it goes with its pod");
    }

    #[test]
    fn token_is_renewed_while_the_clock_is_behind() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        let held =
            Held { token: "t".into(), issued: time("2026-01-01T00:00:00Z"), expires: time("2026-01-01T01:00:00Z") };
        let key = key("");
        let slot = Slot { held: Some(held.clone()), came: Some(Mono(1_000)), ..Slot::default() };
        let at = |wall: &str, minutes: u64| Now { mono: Mono(1_000 + minutes * 60_000), ..now(wall) };
        for wall in ["1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z"] {
            assert!(!slot.is_due(&at(wall, 47)), "{wall}: it has come to this process");
            assert!(slot.is_due(&at(wall, 48)), "{wall}");
        }
        // A token from the store, by the bridge's clock.
        let mut tokens = Tokens::default();
        put(&mut tokens, "uid", key.clone(), Slot { held: Some(held), ..Slot::default() });
        let ms = |text: &str| u64::try_from(time(text).as_millisecond()).ok();
        tokens.time_told(ms("2026-01-01T00:10:00Z"), Mono(1_000));
        let behind = tokens.true_time(at("2026-01-01T00:01:00Z", 30));
        assert_eq!((behind.wall, slot_of(&tokens, &key).is_due(&behind)), (time("2026-01-01T00:40:00Z"), false));
        assert!(slot_of(&tokens, &key).is_due(&tokens.true_time(at("2026-01-01T00:01:00Z", 40))));
    }

    fn key(audience: &str) -> Wanted {
        Wanted { audience: audience.to_owned(), seconds: 3600 }
    }

    /// Token of the pod `uid`.
    fn slot_of<'a>(tokens: &'a Tokens, wanted: &Wanted) -> &'a Slot {
        tokens.slots.get("uid").and_then(|of| of.get(wanted)).expect("there")
    }

    fn put(tokens: &mut Tokens, uid: &str, wanted: Wanted, slot: Slot) {
        tokens.slots.get_or_default(uid.to_owned()).insert(wanted, slot);
    }

    fn held() -> Held {
        let time = |text: &str| text.parse().expect("a time");
        Held { token: "t".into(), issued: time("2026-01-01T00:00:00Z"), expires: time("2026-01-01T01:00:00Z") }
    }

    #[test]
    fn refused_token_is_requested_less_and_less_often() {
        let mut slot = Slot::default();
        assert!(slot.is_due(&now("2026-01-01T00:00:00Z")), "one that is not there is due at once");
        for pause in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            slot.refused("why".into(), Mono(1_000));
            assert_eq!(slot.due(&now("2026-01-01T00:00:00Z")), Some(Mono(1_000 + pause * 1_000)), "{pause} s");
        }
        slot.refusals = u32::MAX - 1;
        slot.refused("why".into(), Mono(1_000));
        assert_eq!(slot.not_before, Some(Mono(301_000)));
        slot.asked = Some(1);
        assert_eq!(slot.due(&now("2026-01-01T00:00:00Z")), None, "the answer is on its way");
    }

    #[test]
    fn refusal_never_brings_a_renewal_forward() {
        let slot =
            Slot { held: Some(held()), came: Some(Mono(1_000)), not_before: Some(Mono(3_000)), ..Slot::default() };
        let due = 1_000 + 48 * 60_000;
        assert_eq!(slot.due(&now("2026-01-01T00:00:00Z")), Some(Mono(due)));
        let late = Slot { not_before: Some(Mono(due + 1)), ..slot };
        assert_eq!(late.due(&now("2026-01-01T00:00:00Z")), Some(Mono(due + 1)));
    }

    #[test]
    fn stored_token_is_looked_at_every_hour_because_the_clock_may_jump() {
        let slot = Slot {
            held: Some(Held { expires: "2026-01-03T00:00:00Z".parse().expect("a time"), ..held() }),
            ..Slot::default()
        };
        assert_eq!(slot.due(&now("2026-01-01T00:00:00Z")), Some(Mono(1_000 + 3_600_000)));
        assert_eq!(slot.due(&now("2026-01-01T23:59:59Z")), Some(Mono(2_000)));
        assert_eq!(slot.due(&now("2026-01-02T00:00:00Z")), Some(Mono(1_000)), "after a day at the latest");
    }

    #[test]
    fn pod_waits_for_its_tokens_only_while_they_can_come() {
        let mut tokens = Tokens::default();
        let waits = |tokens: &mut Tokens, at| {
            tokens.waiting.insert("a".into(), Mono(6_000));
            let over = tokens.next_waited(Mono(at));
            assert_eq!(over.is_none(), tokens.waiting.contains_key("a"), "once");
            over.is_none()
        };
        assert!(!waits(&mut tokens, 0), "it lacks none");
        put(&mut tokens, "a", key(""), Slot { asked: Some(1), ..Slot::default() });
        put(&mut tokens, "other", key(""), Slot { not_before: Some(Mono(9_000)), ..Slot::default() });
        assert!(waits(&mut tokens, 0) && waits(&mut tokens, 5_999));
        assert!(!waits(&mut tokens, 6_000), "not for ever");
        put(&mut tokens, "a", key("vault"), Slot { held: Some(held()), ..Slot::default() });
        assert!(waits(&mut tokens, 0), "the other one is still missing");
        put(&mut tokens, "a", key("refused"), Slot { not_before: Some(Mono(9_000)), ..Slot::default() });
        assert!(!waits(&mut tokens, 0), "one will not come in time");
        tokens.waiting.insert("a".into(), Mono(6_000));
        tokens.forget("a");
        assert_eq!(tokens.next_waited(Mono(9_000)), None);
        assert!(tokens.slots.keys().eq(["other"]));
    }

    #[test]
    fn pods_that_waited_are_prepared_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(folder.path());
        let mut tokens = Tokens::default();
        assert_eq!(tokens.wake(&cx), None);
        let late = cx.mono().after(PATIENCE);
        for uid in ["a", "b"] {
            tokens.waiting.insert(uid.to_owned(), late);
        }
        put(&mut tokens, "b", key(""), Slot { asked: Some(1), ..Slot::default() });
        assert!(tokens.wake(&cx).is_some_and(|at| at < late), "one has all of its tokens");
        assert_eq!(tokens.next_waited(Mono(0)).as_deref(), Some("a"));
        assert_eq!((tokens.next_waited(Mono(0)), tokens.wake(&cx)), (None, Some(late)));
        assert_eq!(tokens.next_waited(late).as_deref(), Some("b"));
    }

    #[test]
    fn tokens_that_come_together_are_stored_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut tokens = Tokens::default();
        for (id, uid) in (0..).zip(["a", "b", "gone", "refused"]) {
            put(&mut tokens, uid, key(""), Slot { asked: Some(id), ..Slot::default() });
        }
        let issued = || TokenAnswer::Issued {
            token: "t".into(),
            issued: "2026-01-01T00:00:00Z".into(),
            expires: "2026-01-01T01:00:00Z".into(),
        };
        (0..3).for_each(|id| tokens.answered(id, issued(), Mono(0)));
        tokens.answered(3, TokenAnswer::Refused { reason: "why".into() }, Mono(0));
        tokens.forget("gone");
        assert!(tokens.lacks("a") && !tokens.can_still_come("refused"), "no pod has one before it is stored");
        cx.store.refuse_writes(true);
        assert!(tokens.keep(&mut cx).is_err() && tokens.lacks("a"));
        cx.store.refuse_writes(false);
        (0..3).for_each(|id| tokens.answered(id, issued(), Mono(0)));
        assert!(tokens.keep(&mut cx).unwrap().iter().eq(["a", "b"]));
        assert!(cx.store.is_synced() && !tokens.lacks("a") && !tokens.lacks("b"));
        assert!(cx.store.token("b", &key("")).unwrap().is_some());
        assert!(cx.store.token("gone", &key("")).unwrap().is_none(), "its pod is gone");
        assert!(tokens.keep(&mut cx).unwrap().is_empty(), "once");
    }

    #[test]
    fn pods_with_many_tokens_do_not_hold_up_the_node() {
        let mut tokens = Tokens::default();
        for uid in ["c", "b", "a"] {
            (0..40_000).for_each(|number| put(&mut tokens, uid, key(&format!("{number:05}")), Slot::default()));
        }
        // In one map of all pods they would move 1 TB, which takes longer than a suite may.
        tokens.forget("b");
        let pods: BTreeSet<&String> = each(&mut tokens.slots).map(|(uid, _, _)| uid).collect();
        assert!(pods.into_iter().eq(["a", "c"]));
        assert!(tokens.lacks("a") && !tokens.lacks("b"));
    }

    #[test]
    fn pod_has_a_slot_for_each_token_that_its_volumes_ask_for_now() {
        use crate::node::pods::Entry;
        use crate::pod::record::PodRecord;
        use serde_json::json;
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let pod = |audiences: &[&str]| -> Pod {
            let source = |audience: &&str| json!({"serviceAccountToken": {"path": audience, "audience": audience, "expirationSeconds": 3600}});
            let sources: Vec<_> = audiences.iter().map(source).collect();
            let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
            serde_json::from_value(json!({"spec": {"containers": [], "volumes": volumes}})).unwrap()
        };
        for (uid, source) in [("api", PodSource::Api), ("static", PodSource::Static)] {
            let record = PodRecord::new(uid, "ns", uid, source, &cx.clock.now());
            cx.pods.insert(Entry::new(std::rc::Rc::default(), record));
        }
        let stored = key("stored");
        cx.store.write(|writer| writer.put_token("api", &stored, &held())).unwrap();
        let mut tokens = Tokens::default();
        tokens.want(&cx, "static", &pod(&["a"]));
        assert!(tokens.slots.is_empty(), "it has no service account");
        tokens.want(&cx, "api", &pod(&["a", "stored"]));
        let of_api = |tokens: &Tokens| -> Vec<(String, bool, u32)> {
            let of = tokens.slots.get("api").expect("there");
            of.iter().map(|(wanted, slot)| (wanted.audience.clone(), slot.held.is_none(), slot.refusals)).collect()
        };
        let one = |audience: &str, lacks: bool, refusals: u32| (audience.to_owned(), lacks, refusals);
        assert_eq!(of_api(&tokens), [one("a", true, 0), one("stored", false, 0)], "one is in the store");
        each(&mut tokens.slots).for_each(|(_, _, slot)| slot.refusals = 7);
        tokens.want(&cx, "api", &pod(&["a", "b"]));
        assert_eq!(of_api(&tokens), [one("a", true, 7), one("b", true, 0)], "what it still wants stays as it is");
        tokens.want(&cx, "api", &pod(&[]));
        assert!(tokens.slots.is_empty());
    }
}
