//! Jobs: pods that must succeed a given number of times (K8s pkg/controller/job). Decisions only.

mod backoff;
mod context;
mod finish;
mod indexes;
mod manage;
mod marks;
mod pods;
mod policy;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod tests;
mod track;

use std::time::Duration;

use super::batch::{COMPLETE, Job, finished};
use super::claim::{claim, with_finalizer};
use super::index::controller_of;
use super::now::Now;
use super::plan::{Action, Deletion, Failure, Plan, Told, WRITES};
use super::pod::Pod;
use super::selector::selects;
use super::store::uid;
use super::world::{Kind, World};
use apimachinery::key::ObjectKey;
use context::{Context, Progress, number};
use finish::{Finish, SUSPENDED, set_condition};
use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
pub(super) use marks::is_tracked;
use marks::{TRACKING, untrack};
use track::{Tracked, filled};

/// The next step for a Job.
pub(crate) fn plan(world: &World, key: &ObjectKey, failure: Option<&Failure>, now: Now) -> Plan {
    let job = world.jobs.get(key);
    let freed = released(world, key, job);
    if !freed.is_empty() && failure.is_none() {
        return Plan::all_at_once(freed);
    }
    let Some((job, spec)) = job.and_then(|job| Some((job, job.spec.as_ref()?))) else { return Plan::default() };
    let known = matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed"));
    if finished(job.status.as_ref()).is_some() {
        return clean_up(job, spec, now);
    }
    if is_managed_elsewhere(job) || !known {
        return Plan::default();
    }
    let selected =
        |pod: &ObjectMeta| spec.selector.as_ref().is_some_and(|selector| selects(selector, pod.labels.as_ref()));
    let labels = spec.selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
    let pods = claim(&world.pods, Kind::Pod, (Kind::Job, &job.metadata), labels, selected, |_| true);
    if !pods.actions.is_empty() && failure.is_none() {
        return Plan::one_by_one(with_finalizer(pods.actions, TRACKING));
    }
    let template = world.template(Kind::Job, &job.metadata);
    Context::new((job, spec), template, pods.claimed, now).next(failure.is_none())
}

/// A finished Job is deleted with its pods after its `ttlSecondsAfterFinished` (K8s pkg/controller/ttlafterfinished).
fn clean_up(job: &Job, spec: &JobSpec, now: Now) -> Plan {
    let seconds = spec.ttl_seconds_after_finished.map(|seconds| u64::try_from(seconds).unwrap_or_default());
    let (Some(seconds), Some(ended), None) = (seconds, job.ended(), &job.metadata.deletion_timestamp) else {
        return Plan::default();
    };
    match Duration::from_secs(seconds).saturating_sub(now.age(ended)) {
        Duration::ZERO => Plan::one_by_one(vec![Action::delete_by(Kind::Job, &job.metadata, Deletion::Foreground)]),
        left => Plan::default().again(Some(left)),
    }
}

/// A pod with the finalizer of Jobs and without a controller loses it, unless a Job may adopt the pod.
pub(crate) fn orphan(world: &World, key: &ObjectKey) -> Plan {
    let Some(pod) = world.pods.get(key).filter(|pod| is_tracked(pod) && controller_of(&pod.metadata).is_none()) else {
        return Plan::default();
    };
    let takes = |job: &Job| {
        let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        finished(job.status.as_ref()).is_none()
            && job.metadata.deletion_timestamp.is_none()
            && selector.is_some_and(|selector| selects(selector, pod.metadata.labels.as_ref()))
    };
    if !pod.is_deleting() && world.jobs.in_namespace(&key.namespace).any(takes) {
        return Plan::default();
    }
    Plan::one_by_one(vec![untrack(pod)])
}

/// Removes the finalizers of pods that no Job counts any more: their Job is deleted, replaced by another with its name,
/// or finished.
fn released(world: &World, key: &ObjectKey, job: Option<&Job>) -> Vec<Action> {
    let counts = |owner: &str| {
        job.is_some_and(|job| {
            uid(&job.metadata) == owner && (is_managed_elsewhere(job) || finished(job.status.as_ref()).is_none())
        })
    };
    let free = |pod: &&Pod| {
        is_tracked(pod)
            && pod.metadata.namespace.as_deref() == Some(&key.namespace)
            && controller_of(&pod.metadata).is_some_and(|owner| {
                owner.name == key.name && owner.kind == "Job" && owner.api_version == Kind::Job.api_version()
            })
    };
    let left = world.pods.uids_of(key).filter(|owner| !counts(owner)).flat_map(|owner| world.pods.owned_by(owner));
    left.filter(free).take(WRITES).map(untrack).collect()
}

fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != "kubernetes.io/job-controller")
}

impl Context<'_> {
    /// The steps in their order: the first with actions is the next. After a failure pods are not changed.
    fn next(mut self, may_act: bool) -> Plan {
        if self.status.start_time.is_none() && !self.is_suspended() {
            self.status.start_time = Some(Time(self.now.clock));
        }
        let progress = self.progress();
        let mut finish = finish::decided(&self, &progress);
        let mut again = None;
        if finish.is_none() {
            again = finish::time_left(&self);
            if !self.is_deleting() {
                let plan = manage::step(&self, &progress);
                again = earlier(again, plan.again);
                if !plan.actions.is_empty() && may_act {
                    return plan.again(again);
                }
            }
            finish = finish::completed(&self, &progress);
        } else if finish.as_ref().is_some_and(|finish| finish.is_told) && may_act {
            let active = self.active();
            if !active.is_empty() {
                return manage::delete(&self, &active);
            }
        }
        self.count(&progress, finish.as_ref()).again(again)
    }

    /// Writes the pods to count, or removes the finalizers of counted ones.
    fn count(&self, progress: &Progress<'_>, finish: Option<&Finish>) -> Plan {
        let Tracked { mut status, counted, is_all } = track::track(self, progress, finish);
        let active = self.active();
        status.active = filled(number(active.len()));
        status.ready = Some(number(active.iter().filter(|pod| pod.is_ready()).count()));
        status.terminating = Some(self.terminating());
        let mut told = Vec::new();
        match finish {
            Some(finish) if !finish.is_told => {
                set_condition(self, &mut status, finish.interim(), true, (&finish.reason, &finish.message));
            }
            Some(finish) if is_all && active.is_empty() && self.terminating() == 0 => {
                told = self.end(&mut status, finish);
            }
            None if !self.is_deleting() => told.extend(self.tell_suspension(&mut status)),
            _ => {}
        }
        let old = self.job.status.clone().unwrap_or_default();
        if let Some(action) = Action::status(Kind::Job, &self.job.metadata, &old, &status) {
            return Plan::one_by_one(vec![action]).tell(told);
        }
        Plan::all_at_once(counted.into_iter().take(WRITES).map(untrack).collect())
    }

    /// The Job is over.
    fn end(&self, status: &mut JobStatus, finish: &Finish) -> Vec<Told> {
        set_condition(self, status, finish.terminal(), true, (&finish.reason, &finish.message));
        if finish.terminal() != COMPLETE {
            return vec![self.teller().warning(finish.event(), finish.message.clone())];
        }
        status.completion_time = Some(Time(self.now.clock));
        let mut told = Vec::new();
        if self.spec.completions.is_some_and(|wanted| status.succeeded.unwrap_or_default() > wanted) {
            let message = "Too many succeeded pods running after completion count reached";
            told.push(self.teller().warning("TooManySucceededPods", message));
        }
        told.push(self.teller().normal("Completed", "Job completed"));
        told
    }

    /// Writes whether it is suspended. Time in suspension does not count for the Job.
    fn tell_suspension(&self, status: &mut JobStatus) -> Option<Told> {
        let (reason, message) =
            if self.is_suspended() { ("JobSuspended", "Job suspended") } else { ("JobResumed", "Job resumed") };
        if !set_condition(self, status, SUSPENDED, self.is_suspended(), (reason, message)) {
            return None;
        }
        status.start_time = (!self.is_suspended()).then_some(Time(self.now.clock));
        let told = if self.is_suspended() { "Suspended" } else { "Resumed" };
        Some(self.teller().normal(told, message))
    }
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}
