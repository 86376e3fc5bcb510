//! One task per probed container attempt, on the loop's own executor.
//!
//! A task sleeps between probes and reports only changes. It compares with the verdict that the loop has stored, and
//! every [`Supervisor::sync`] updates that, so a lost verdict is reported again.

mod target;

use std::cell::Cell;
use std::future::Future;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::sys::tasks::Tasks;
use crate::sys::vec_map::VecMap;
use async_executor::Task;

use super::hook::{self, HookCall, HookDone};
use super::http::tls_config;
use super::run::{ExecProbe, Means, Subject, round};
use super::worker::{Outcome, Settings, Worker};
use crate::clock::Clock;
use crate::counters;
use crate::pod::event::ProbeKind;

pub use target::{ProbeEvent, ProbeSpec, ProbeTarget};

/// A failure that repeats is put into words again after this long.
const REPEAT_EVENT: Duration = Duration::from_secs(300);

/// Pause before a verdict that the loop did not process is reported again.
const INSIST: Duration = Duration::from_secs(5);

/// Owner of all probe tasks. Dropping it, or leaving a target out of a sync, ends the tasks.
pub struct Supervisor {
    executor: Tasks,
    shared: Rc<Shared>,
    /// Running probes by pod uid and container name.
    running: VecMap<String, VecMap<String, Running>>,
}

struct Shared {
    means: Means,
    tell: Rc<dyn Fn(ProbeEvent)>,
}

struct Running {
    id: String,
    address: IpAddr,
    ending: bool,
    known: Rc<Known>,
    _task: Task<()>,
}

impl Running {
    fn serves(&self, target: &ProbeTarget) -> bool {
        (&self.id, self.address, self.ending) == (&target.id, target.address, target.ending)
    }
}

/// The verdicts as the loop remembers them.
#[derive(Default)]
struct Known([Cell<Option<bool>>; 3]);

impl Known {
    fn of(&self, kind: ProbeKind) -> &Cell<Option<bool>> {
        &self.0[kind as usize]
    }
}

impl Supervisor {
    /// `tell` must not block: it queues into the loop.
    pub fn new(executor: Tasks, exec: ExecProbe, tell: Rc<dyn Fn(ProbeEvent)>) -> Self {
        let means = Means { exec, tls: tls_config() };
        Self { executor, shared: Rc::new(Shared { means, tell }), running: VecMap::new() }
    }

    /// Makes the running tasks match `desired` for one pod: starts tasks for new attempts and stops those of ended
    /// ones.
    pub fn sync(&mut self, pod_uid: &str, desired: &[ProbeTarget]) {
        let mut old = self.running.remove(pod_uid).unwrap_or_default();
        let mut new = VecMap::new();
        for target in desired.iter().filter(|t| !t.probes.is_empty()) {
            let kept = old.remove(&target.container).filter(|r| r.serves(target));
            let running = kept.unwrap_or_else(|| self.start(target));
            for spec in &target.probes {
                running.known.of(spec.kind).set(spec.known);
            }
            new.insert(target.container.clone(), running);
        }
        if !new.is_empty() {
            self.running.insert(pod_uid.to_owned(), new);
        }
    }

    /// Runs a lifecycle hook with the means of the probes. Dropping the future ends the hook.
    pub fn hook(&self, call: HookCall) -> impl Future<Output = HookDone> + use<> {
        let shared = Rc::clone(&self.shared);
        async move { hook::run(&call, &shared.means).await }
    }

    fn start(&self, target: &ProbeTarget) -> Running {
        let known = Rc::new(Known::default());
        let job = Job { target: target.clone(), known: Rc::clone(&known), shared: Rc::clone(&self.shared) };
        let task = self.executor.spawn(async move { job.run().await });
        Running { id: target.id.clone(), address: target.address, ending: target.ending, known, _task: task }
    }
}

/// All probes of one container attempt.
struct Job {
    target: ProbeTarget,
    known: Rc<Known>,
    shared: Rc<Shared>,
}

impl Job {
    /// The startup probe first and alone; the others once it has succeeded.
    async fn run(&self) {
        let mut startup = None;
        if let Some(spec) = self.spec(ProbeKind::Startup).filter(|s| s.known != Some(true)) {
            let success = self.watch(spec, self.now()).await;
            startup = Some(self.insist(spec.kind, success));
            if !success {
                return self.insist(spec.kind, success).await;
            }
        }
        // One moment for both: probes of one period then need one wake-up.
        let now = self.now();
        let watch = |kind| async move {
            if let Some(spec) = self.spec(kind) {
                let success = self.watch(spec, now).await;
                self.insist(kind, success).await;
            }
        };
        let others = smol::future::zip(watch(ProbeKind::Readiness), watch(ProbeKind::Liveness));
        match startup {
            Some(startup) => drop(smol::future::zip(startup, others).await),
            None => drop(others.await),
        }
    }

    /// Tells a last verdict again until the loop has taken it: no later probe would.
    async fn insist(&self, kind: ProbeKind, success: bool) {
        loop {
            smol::Timer::after(INSIST).await;
            if self.known.of(kind).get() == Some(success) {
                return;
            }
            self.tell(kind, Some(success), None);
        }
    }

    fn tell(&self, kind: ProbeKind, verdict: Option<bool>, event: Option<(&'static str, String)>) {
        let ProbeTarget { pod_uid, container, id, .. } = self.target.clone();
        (self.shared.tell)(ProbeEvent { pod_uid, container, id, kind, verdict, event });
    }

    fn spec(&self, kind: ProbeKind) -> Option<&ProbeSpec> {
        self.target.probes.iter().find(|s| s.kind == kind)
    }

    /// The present, and the attempt's age.
    fn now(&self) -> (Instant, Duration) {
        (Instant::now(), Clock::mono().since(self.target.started))
    }

    /// Probes until there is nothing more to find out; true if that ended with a success.
    async fn watch(&self, spec: &ProbeSpec, (now, age): (Instant, Duration)) -> bool {
        let settings = Settings::of(&spec.probe);
        let target = &self.target;
        let subject = Subject { id: &target.id, container: &target.container, address: target.address };
        let mut worker = Worker::new(spec.kind, settings);
        let mut said: Option<(String, Instant)> = None;
        let spread = target.id.get(..8).and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or_default();
        let mut due = now + settings.first_pause(age, spec.known.is_some(), spread);
        loop {
            smol::Timer::at(due).await;
            let outcome = round(&spec.probe, &subject, settings.timeout, &self.shared.means).await;
            count(spec.kind, &outcome);
            let conclusion = worker.take(&outcome);
            let is_news =
                |text: &String| said.as_ref().is_none_or(|(old, at)| old != text || at.elapsed() >= REPEAT_EVENT);
            let event = conclusion.event.filter(|(_, text)| is_news(text));
            match &event {
                Some((_, text)) => said = Some((text.clone(), Instant::now())),
                None if matches!(outcome, Outcome::Success) && conclusion.verdict == Some(true) => said = None,
                None => {}
            }
            // A liveness probe counts as successful at first, so its first success changes nothing.
            let known = self.known.of(spec.kind).get().or((spec.kind == ProbeKind::Liveness).then_some(true));
            let verdict = conclusion.verdict.filter(|v| known != Some(*v));
            if verdict.is_some() || event.is_some() {
                self.tell(spec.kind, verdict, event);
            }
            if conclusion.done {
                return conclusion.verdict == Some(true);
            }
            // Like a ticker: a slow probe skips rounds and does not shift them.
            let now = Instant::now();
            while due <= now {
                due += settings.period;
            }
        }
    }
}

/// Counts an outcome by the metrics' names of kinds and results.
fn count(kind: ProbeKind, outcome: &Outcome) {
    let result = match outcome {
        Outcome::Success | Outcome::Warning(_) => 0,
        Outcome::Failure(_) => 1,
        Outcome::Error(_) => 2,
    };
    let [startup, readiness, liveness] = &counters::PROBES;
    let results = match kind {
        ProbeKind::Startup => startup,
        ProbeKind::Readiness => readiness,
        ProbeKind::Liveness => liveness,
    };
    results[result].one();
}

#[cfg(test)]
mod tests;
