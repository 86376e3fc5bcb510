//! The known objects, the queue, and the next step for a key: everything about controllers except executing the steps.
//! Pure; the simulation runs it against a model of the API.

use std::time::Duration;

use apimachinery::panics;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::back_off::BackOff;
use super::disruption::{self, Scales};
use super::endpoints::{self, Pace, is_paced};
pub(crate) use super::now::Now;
use super::options::Options;
use super::plan::{Action, Failure, Outcome, Plan};
use super::pod_gc::{self, PodGc};
use super::queue::{Queue, RETRY};
use super::world::{Change, Kind, Task, Watched, World};
use super::{cron_job, daemon_set, deployment, ephemeral, job, protection, provision, replica_set, stateful_set, wake};
use crate::rate::Rate;

/// Maximum delay of a key that must be processed again.
const LOOK_AGAIN: Duration = Duration::from_secs(86_400);
/// Time to wait for the watch after a write without an answer: otherwise a successful write could be repeated.
const UNANSWERED: Duration = Duration::from_secs(2);

/// Maximum pause of a key with more writes than fit into a turn.
const MORE_MAX: Duration = Duration::from_secs(1);
/// Maximum pause of a key that never finishes, so that it costs little.
const RESTLESS_MAX: Duration = Duration::from_mins(1);

/// A turn that takes at least this long is followed by a pause of this multiple of its length, with this maximum.
const LONG: Duration = Duration::from_millis(1);
const REST: u32 = 4;
const REST_MAX: Duration = Duration::from_secs(1);

/// Time that one write takes of a namespace in the long run, and number of writes that it may do at once.
const WRITES: (Duration, u32) = (Duration::from_millis(20), 256);

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) world: World,
    queue: Queue<Task>,
    /// Recent failures of workloads' pods.
    back_off: BackOff,
    pod_gc: PodGc,
    /// What custom controllers want, for budgets.
    scales: Scales,
    /// Recent writes of endpoints.
    pace: Pace,
    /// Recent writes for each namespace.
    rate: Rate,
}

impl Engine {
    /// Knows nothing yet.
    pub(crate) fn new(options: &Options) -> Self {
        let pod_gc = PodGc::new(options.terminated_pod_gc_threshold);
        let (world, queue, back_off) = (World::default(), Queue::default(), BackOff::default());
        let (scales, pace, rate) = (Scales::default(), Pace::default(), Rate::new(WRITES.0, WRITES.1));
        Self { world, queue, back_off, pod_gc, scales, pace, rate }
    }

    /// Handles an event of a watch.
    pub(crate) fn watched(&mut self, watched: Watched, now: Now) {
        let changes = self.world.watched(watched, now);
        self.wake(changes, now);
    }

    /// Stores the result of a write, so that the next step need not wait for the watch. Returns whether it changed
    /// anything; for an object that was read for its template, whether it has one.
    pub(crate) fn written(&mut self, action: &Action, outcome: Outcome, now: Now) -> bool {
        self.back_off.written(action, now.passed);
        let mut changed = false;
        let changes = match outcome {
            Outcome::Is(answer) => {
                if action.is_read() {
                    changed = self.world.hold(answer.held);
                }
                answer.object.map(|object| self.world.watched(object, now)).unwrap_or_default()
            }
            Outcome::Removed | Outcome::Gone => {
                let removed = action.removes().and_then(|uid| self.world.removed(action.kind, &action.key, uid));
                removed.into_iter().collect()
            }
        };
        changed |= !changes.is_empty();
        self.wake(changes, now);
        changed
    }

    fn wake(&mut self, changes: impl IntoIterator<Item = Change>, now: Now) {
        for change in changes {
            self.back_off.seen(&self.world, &change, now.passed);
            for task in wake::tasks(&self.world, &change) {
                match wake::delay(&task, &change) {
                    Some(delay) => self.queue.add_at(now.passed + delay, task),
                    None => self.queue.add(task),
                }
            }
            for task in protection::tasks(&self.world, &change) {
                self.queue.add(task);
            }
            for task in ephemeral::tasks(&self.world, &change) {
                self.queue.add(task);
            }
            for (task, delay) in provision::tasks(&self.world, &change) {
                self.queue.add_at(now.passed + delay, task);
            }
            for task in endpoints::tasks(&self.world, &change) {
                self.queue.add_at(self.pace.due(&task, now.passed), task);
            }
        }
    }

    /// Whether all objects are known: with incomplete knowledge no step is safe. A list that begins comes before the
    /// next write.
    pub(crate) fn is_complete(&self) -> bool {
        self.world.is_complete()
    }

    /// Time of the next key. `None` before all lists are complete: otherwise controllers would create pods that exist.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.world.is_complete() { self.queue.deadline() } else { None }
    }

    /// The next key, if one is due and its namespace may write.
    pub(crate) fn next(&mut self, now: Now) -> Option<Task> {
        while self.world.is_complete() {
            let task = self.queue.next(now.passed)?;
            let until = self.rate.until(&task.1.namespace, now.passed).filter(|_| makes_pods(task.0));
            let Some(until) = until else { return Some(task) };
            self.queue.rest(now.passed, task.clone(), until);
            self.queue.add_at(until, task);
        }
        None
    }

    /// Counts the writes of a plan against the rate of its namespace, refused ones too.
    pub(crate) fn wrote(&mut self, task: &Task, plan: &Plan, now: Now) {
        if makes_pods(task.0) {
            let writes = plan.actions.iter().filter(|action| !action.is_read()).count();
            self.rate.spend(&task.1.namespace, writes, now.passed);
        }
    }

    /// The controllers whose scale must be read before this key is processed.
    pub(crate) fn unread(&self, task: &Task, now: Now) -> Vec<OwnerReference> {
        match task.0 {
            Kind::PodDisruptionBudget => disruption::unread(&self.world, &self.scales, &task.1, now),
            _ => Vec::new(),
        }
    }

    /// Stores the scale of a controller.
    pub(crate) fn read(&mut self, owner: OwnerReference, scale: Result<i64, String>, now: Now) {
        self.scales.read(owner.uid, scale, now.passed);
    }

    /// Returns the next plan of the key's controller. With a failure: the plan that reports it. `None` if it panicked.
    pub(crate) fn plan(&mut self, task: &Task, failure: Option<&Failure>, now: Now) -> Option<Plan> {
        let name = format!("{:?} {}/{}", task.0, task.1.namespace, task.1.name);
        let mut plan = panics::shield(name, || self.next_step(task, failure, now))?;
        if is_paced(task) && !plan.actions.is_empty() {
            match self.pace.due(task, now.passed).saturating_sub(now.passed) {
                Duration::ZERO => self.pace.writes(task, now.passed),
                early => plan = Plan::default().again(Some(early)),
            }
        }
        if let Some(after) = plan.again {
            // An early evaluation does no harm; times in objects may exceed the range of the clock.
            self.queue.add_at(now.passed + after.min(LOOK_AGAIN), task.clone());
        }
        Some(plan)
    }

    fn next_step(&mut self, task: &Task, failure: Option<&Failure>, now: Now) -> Plan {
        let (kind, key) = task;
        if *kind == Kind::Node {
            self.pod_gc.look(&self.world, key, now);
        }
        match kind {
            Kind::ReplicaSet => replica_set::plan(&self.world, &self.back_off, key, failure, now),
            Kind::ReplicationController => {
                replica_set::plan_replication_controller(&self.world, &self.back_off, key, failure, now)
            }
            Kind::Deployment => deployment::plan(&self.world, key, failure, now.clock),
            Kind::PodDisruptionBudget => disruption::plan(&self.world, &self.scales, key, now),
            Kind::DaemonSet => daemon_set::plan(&self.world, &self.back_off, key, failure, now),
            Kind::Job => job::plan(&self.world, key, failure, now),
            Kind::CronJob => cron_job::plan(&self.world, key, now),
            Kind::Pod if key.name.is_empty() => pod_gc::of_terminated(&self.world, &self.pod_gc),
            Kind::Pod => match job::orphan(&self.world, key) {
                plan if plan.actions.is_empty() => match pod_gc::of_pod(&self.world, key) {
                    plan if plan.actions.is_empty() => ephemeral::plan(&self.world, key, failure),
                    plan => plan,
                },
                plan => plan,
            },
            Kind::Node => pod_gc::of_node(&self.world, &self.pod_gc, key, now),
            Kind::StatefulSet => stateful_set::plan(&self.world, &self.back_off, key, failure, now),
            Kind::Service => endpoints::plan_slices(&self.world, key, failure),
            Kind::Endpoints => endpoints::plan_endpoints(&self.world, key, failure),
            Kind::PersistentVolumeClaim => match protection::of_claim(&self.world, key) {
                plan if plan.actions.is_empty() => provision::plan(&self.world, key, failure),
                plan => plan,
            },
            Kind::PersistentVolume => protection::of_volume(&self.world, key),
            Kind::ControllerRevision | Kind::EndpointSlice | Kind::StorageClass => Plan::default(),
        }
    }

    /// Ends the turn of a key. `took`: time of its controller. Expensive keys are evaluated less often: each change of
    /// one of a thousand pods requests an evaluation of all of them.
    pub(crate) fn end(&mut self, task: Task, end: End, took: Duration, now: Now) {
        self.world.let_go();
        if took >= LONG {
            self.queue.rest(now.passed, task.clone(), now.passed + (took * REST).min(REST_MAX));
        }
        match end {
            End::Done => self.queue.succeeded(&task),
            End::More => self.queue.more(now.passed, task, MORE_MAX),
            End::Restless => self.queue.more(now.passed, task, RESTLESS_MAX),
            End::Failed | End::Idle => {
                let retry = if is_paced(&task) { endpoints::RETRY } else { RETRY };
                self.queue.failed(now.passed, task, retry);
            }
            End::Unanswered => self.queue.add_at(now.passed + UNANSWERED, task),
        }
    }
}

/// Whether users decide how many writes a key causes. Endpoints have a pace of their own, and what pods and nodes need is
/// never late.
const fn makes_pods(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::CronJob
            | Kind::DaemonSet
            | Kind::Deployment
            | Kind::Job
            | Kind::ReplicaSet
            | Kind::ReplicationController
            | Kind::StatefulSet
    )
}

/// Result of the turn of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// There is nothing more to do.
    Done,
    /// There may be more; others run first.
    More,
    /// The key has needed more steps than the limit, and may never end.
    Restless,
    Failed,
    /// The write changed nothing: it would be repeated forever.
    Idle,
    /// Whether a write was done is not known.
    Unanswered,
}

#[test]
fn endpoints_and_budgets_of_a_busy_namespace_do_not_wait() {
    for kind in [Kind::Service, Kind::Endpoints, Kind::PodDisruptionBudget, Kind::Pod, Kind::Node] {
        assert!(!makes_pods(kind), "{kind:?}");
    }
    assert!(makes_pods(Kind::Job) && makes_pods(Kind::ReplicaSet));
}
