//! The controllers against a model of the API: watches that lag, writes that fail, a program that is killed between any two
//! writes, nodes that start, end and lose pods. One seed is one course of events.

mod model;
mod patch;

use std::time::Duration;

use apimachinery::key::ObjectKey;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::engine::{End, Engine, Now};
use super::options::Options;
use super::plan::{Action, Failure};
use super::turn::Turn;
use super::world::{Kind, Task, Watched};
pub(crate) use model::Model;
pub(crate) use patch::is_empty;

/// A small generator (splitmix64): the same course for the same seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "ns".to_owned(), name: name.to_owned() }
}

/// A course of events: the API, the controllers on it, and chance.
pub(crate) struct Course {
    pub(crate) model: Model,
    pub(crate) chance: Chance,
    engine: Engine,
    pub(crate) options: Options,
    /// No kills, failures or delays: the desired state must be reached.
    pub(crate) calm: bool,
    check: fn(&Model, &Action),
}

impl Course {
    /// Starts with an empty API. `check` has the invariants after each write.
    pub(crate) fn new(seed: u64, check: fn(&Model, &Action)) -> Self {
        let options = Options::default();
        let engine = Engine::new(&options);
        let mut course = Self { model: Model::default(), chance: Chance(seed), engine, options, calm: false, check };
        course.restart();
        course
    }

    fn now(&self) -> Now {
        Now { passed: Duration::from_secs(self.model.now.unsigned_abs()), clock: self.model.clock() }
    }

    /// Restarts the program: its state comes from new lists.
    pub(crate) fn restart(&mut self) {
        self.engine = Engine::new(&self.options);
        self.model.forget_news();
        let now = self.now();
        for &kind in Kind::ALL {
            self.engine.watched(Watched::read(kind, Event::Init).unwrap(), now);
            for object in self.model.of(kind) {
                self.engine.watched(Watched::read(kind, Event::InitApply(object.clone())).unwrap(), now);
            }
            self.engine.watched(Watched::read(kind, Event::InitDone).unwrap(), now);
        }
    }

    /// Delivers up to this number of pending events, of any watches.
    fn hear(&mut self, most: usize) {
        for _ in 0..most {
            let telling = self.model.telling();
            let Some(count) = std::num::NonZero::new(telling.len()) else { return };
            let kind = telling[usize::try_from(self.chance.below(count.get() as u64)).unwrap()];
            let Some((gone, object)) = self.model.next_news(kind) else { return };
            let event = if gone { Event::Delete(object) } else { Event::Apply(object) };
            let now = self.now();
            self.engine.watched(Watched::read(kind, event).unwrap(), now);
        }
    }

    /// Lets time pass and the controllers work: as much as is due, or, unless calm, up to a kill.
    pub(crate) fn step(&mut self, seconds: i64) {
        self.model.now += seconds;
        for _ in 0..400 {
            let most = if self.calm { usize::MAX } else { usize::try_from(self.chance.below(4)).unwrap() };
            self.hear(most);
            let Some(task) = self.engine.next(self.now()) else {
                if self.model.telling().is_empty() {
                    return;
                }
                continue;
            };
            let Some(end) = self.sync(&task) else {
                self.restart();
                continue;
            };
            let now = self.now();
            self.engine.end(task, end, Duration::ZERO, now);
        }
    }

    /// Processes this many keys.
    pub(crate) fn turns(&mut self, count: usize) {
        self.hear(usize::MAX);
        for _ in 0..count {
            let Some(task) = self.engine.next(self.now()) else { return };
            let end = self.sync(&task).unwrap_or(End::Failed);
            let now = self.now();
            self.engine.end(task, end, Duration::ZERO, now);
        }
    }

    /// The turn of one key; `None` if the program was killed in it.
    fn sync(&mut self, task: &Task) -> Option<End> {
        let mut turn = Turn::default();
        for owner in self.engine.unread(task, self.now()) {
            let scale = self.model.scales.get(&owner.name).copied().ok_or_else(|| "the server has none".to_owned());
            self.engine.read(owner, scale, self.now());
        }
        loop {
            let now = self.now();
            let plan = turn.cut(self.engine.plan(task, None, now).expect("no panic"));
            let mut changed = false;
            for action in &plan.actions {
                if !self.calm && self.chance.one_in(40) {
                    return None;
                }
                if !self.calm && self.chance.one_in(30) {
                    let failure = Failure { code: 500, message: "no".to_owned(), ..Failure::default() }.of(action);
                    self.engine.plan(task, Some(&failure), now);
                    return Some(End::Failed);
                }
                let result = self.model.do_action(action);
                if result.is_ok() && !action.is_read() {
                    (self.check)(&self.model, action);
                }
                match result {
                    // A write whose answer is lost is still executed; the watch delivers it later.
                    Ok(_) if !self.calm && self.chance.one_in(50) => {
                        self.hear(usize::MAX);
                        return Some(End::Unanswered);
                    }
                    Ok(outcome) => changed |= self.engine.written(action, outcome, now),
                    Err(failure) => {
                        let failure = failure.of(action);
                        if failure.code == 403 {
                            self.tell_failure(task, &failure);
                        }
                        return Some(End::Failed);
                    }
                }
            }
            if let Some(end) = turn.end(&plan, changed) {
                return Some(end);
            }
            let most = if self.calm { usize::MAX } else { usize::try_from(self.chance.below(3)).unwrap() };
            self.hear(most);
        }
    }

    /// Reports a failure, with any result.
    fn tell_failure(&mut self, task: &Task, failure: &Failure) {
        let now = self.now();
        let plan = self.engine.plan(task, Some(failure), now).expect("no panic");
        for action in &plan.actions {
            if let Ok(outcome) = self.model.do_action(action) {
                self.engine.written(action, outcome, now);
            }
        }
    }

    /// Simulates nodes and the scheduler: each pod may take its next step.
    pub(crate) fn nodes(&mut self) {
        for key in self.model.names(Kind::Pod) {
            if !self.calm && !self.chance.one_in(2) {
                continue;
            }
            let pod = &self.model.objects[&(Kind::Pod, key.clone())];
            let Some(node) = self.model.node_of(pod) else { continue };
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                self.model.end(Kind::Pod, &key);
                continue;
            }
            let fails = !self.calm && self.chance.one_in(25);
            let stamp = self.model.clock().to_string();
            let phase = pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
            self.model.change(Kind::Pod, &key, |pod| {
                pod["spec"]["nodeName"] = node.into();
                if fails {
                    pod["status"] = json!({"phase": "Failed"});
                } else if phase != "Failed" && phase != "Running" {
                    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": stamp}]);
                    pod["status"] = json!({"phase": "Running", "conditions": ready});
                }
            });
        }
    }

    /// How long the controllers wait, if nothing happens.
    pub(crate) fn waits(&self) -> Option<Duration> {
        Some(self.engine.deadline()?.saturating_sub(self.now().passed))
    }

    /// Runs until nothing happens any more.
    pub(crate) fn settle(&mut self) {
        self.calm = true;
        for _ in 0..60 {
            self.nodes();
            self.step(5);
        }
    }
}

/// The uids of the objects that are controlled by this uid.
pub(crate) fn owned<'a>(model: &'a Model, kind: Kind, uid: &'a Value) -> impl Iterator<Item = &'a Value> {
    model.of(kind).filter(move |one| one["metadata"]["ownerReferences"][0]["uid"] == *uid)
}

/// Simulates the garbage collector: claims are deleted with the last of their owners.
pub(crate) fn collect_garbage(course: &mut Course) {
    for name in course.model.names(Kind::PersistentVolumeClaim) {
        let claim = &course.model.objects[&(Kind::PersistentVolumeClaim, name.clone())];
        let owners = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let is_there = |uid: &Value| course.model.objects.values().any(|object| object["metadata"]["uid"] == *uid);
        if !owners.is_empty() && !owners.iter().any(|owner| is_there(&owner["uid"])) {
            course.model.remove(Kind::PersistentVolumeClaim, &name);
        }
    }
}

/// The seeds of a test: 60, or as many as `SAMPAN_SEEDS` says.
pub(crate) fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("SAMPAN_SEEDS").ok().and_then(|text| text.parse().ok());
    0..count.unwrap_or(60)
}

/// Names the seed when a test fails in it.
pub(crate) struct Named(pub(crate) u64);

impl Drop for Named {
    #[expect(clippy::print_stderr, reason = "a test says how it is repeated")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}
