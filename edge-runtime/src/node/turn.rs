//! One turn of a pod: news into the record, decision, commit, execution, until nothing more follows at once.
//! The order is the point: nothing is done that was not committed first.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::message::Report;
use serde_json::Value;

use super::admit::Admission;
use super::containers::ContainerRef;
use super::pulls::{Waiter, secrets};
use super::sources::HookRef;
use super::{Node, plugins, resize};
use crate::pod::clock::{Mono, Now};
use crate::pod::event::{PodEvent, StartFailure};
use crate::pod::reconcile::{self, World};
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::status;
use crate::pod::step::{EventDraft, Step};
use crate::store::StoreError;
use crate::volume::stop_lock;

/// More rounds than any pod needs before it must wait: a guard against an endless loop of decisions.
const MAX_ROUNDS: usize = 64;

impl Node {
    /// One pod's turn, with what follows from it for others. Its reports leave now, and not after the next pod's turn.
    ///
    /// # Errors
    /// Same as [`Node::settle`].
    pub(super) fn take_turn(&mut self, uid: &str, now: Mono) -> Result<(), StoreError> {
        self.settle(uid)?;
        self.services.look_at_pod(&self.cx, &self.launch, uid);
        self.policies.look_at_pod(&self.cx, &self.launch, uid);
        self.local_api.look_at_pod(&self.cx, &self.tokens, uid);
        self.idle.disturb(now);
        self.send_reports(now);
        Ok(())
    }

    /// Brings one pod as far as it gets without waiting.
    ///
    /// # Errors
    /// The store cannot be written: nothing was executed that it does not know.
    pub(super) fn settle(&mut self, uid: &str) -> Result<(), StoreError> {
        if self.shutdown.is_frozen() || !self.crash_loop.begin(uid) {
            return Ok(());
        }
        let done = self.settle_rounds(uid);
        self.crash_loop.end(uid);
        done?;
        self.exit_sync.turn_committed(uid, self.cx.mono());
        Ok(())
    }

    /// Says which pods are left as they are.
    pub(super) fn tell_skipped(&mut self) -> Result<(), StoreError> {
        for uid in self.crash_loop.skipped() {
            let message = "the node's daemon died three times while it attended to this pod, which is left as it is \
                           until it changes or the machine boots again";
            log::error!("pod {uid}: {message}");
            self.cx.pod_event(&uid, &EventDraft::pod(true, "PodSkipped", message.to_owned()))?;
        }
        Ok(())
    }

    fn settle_rounds(&mut self, uid: &str) -> Result<(), StoreError> {
        for _ in 0..MAX_ROUNDS {
            let now = self.cx.clock.now();
            let Some(steps) = self.decide_and_commit(uid, &now)? else { return Ok(()) };
            self.follow_cpus();
            let answers = self.execute(uid, steps, &now)?;
            if answers.is_empty() {
                self.probes.sync(&self.cx, uid);
                self.hooks.sync(&self.cx.pods, uid);
                return Ok(());
            }
            for answer in answers {
                self.cx.tell(uid, answer);
            }
        }
        log::error!("pod {uid}: no rest after {MAX_ROUNDS} rounds; trying again in a second");
        if let Some(entry) = self.cx.pods.get_mut(uid) {
            entry.wake = Some(self.cx.clock.now().mono.after(Duration::from_secs(1)));
        }
        Ok(())
    }

    fn decide_and_commit(&mut self, uid: &str, now: &Now) -> Result<Option<VecDeque<Step>>, StoreError> {
        let Some(entry) = self.cx.pods.get(uid) else { return Ok(None) };
        let (pod, was_admitted) = (entry.pod.clone(), entry.record.admitted);
        let admission = Admission {
            cx: &self.cx,
            launch: &self.launch,
            pressure: self.eviction.pressure,
            shutting_down: self.shutdown.is_under_way(),
        };
        let world = World {
            image: &|reference| self.cx.image_for(reference, &secrets::of_pod(&self.cx, &pod).found),
            admit: &|pod| admission.admit(pod),
            resize: &|pod| admission.no_room(pod),
            stop_locked: &|| stop_lock::is_held(&self.cx.paths, uid),
        };
        let plan = reconcile::reconcile(&pod, entry.record.clone(), &world, now);
        let (record, mut status) = status::publish(&pod, plan.record, &self.cx.host, now);
        plugins::status::add(&mut status, uid, &self.launch.containers.plugins);
        let status = serde_json::to_value(&status).unwrap_or(Value::Null);
        if !was_admitted && super::cpus::wants(&record) {
            self.launch.containers.cpus.take(&pod);
        }

        let reports = self.reports(uid, &record, status, &plan.steps, now);
        let Some(entry) = self.cx.pods.get(uid) else { return Ok(None) };
        let changed = entry.unsaved || entry.record != record;
        let forget = plan.steps.contains(&Step::Forget);
        if changed || forget || !reports.is_empty() {
            let settled = self.cx.settled_reports();
            let ids = self.cx.store.write(|writer| {
                settled.iter().try_for_each(|row| writer.acknowledged(*row))?;
                if forget {
                    writer.forget_pod(uid)?;
                } else if changed {
                    writer.put_pod(&record)?;
                }
                reports.iter().map(|report| writer.report(report)).collect::<Result<Vec<_>, _>>()
            })?;
            let ends = self.tells_of_an_end(uid, &record, &reports);
            self.exit_sync.reports_committed(uid, &ids, ends, now.mono);
            self.cx.queue_reports(ids.into_iter().zip(reports).collect());
        }
        if let Some(entry) = self.cx.pods.get_mut(uid) {
            entry.record = record;
            entry.unsaved = false;
            entry.wake = None;
        }
        Ok(Some(plan.steps.into()))
    }

    /// Whether the reports contain an end that no earlier report has.
    fn tells_of_an_end(&mut self, uid: &str, record: &PodRecord, reports: &[Report]) -> bool {
        self.cx.pods.get_mut(uid).is_some_and(|entry| tells_of_an_end(&mut entry.told_ends, record.ends(), reports))
    }

    /// Reports of this turn for the cloud: status if it changed, events, the end.
    fn reports(&mut self, uid: &str, record: &PodRecord, status: Value, steps: &[Step], now: &Now) -> Vec<Report> {
        let mut reports = Vec::new();
        let Some(entry) = self.cx.pods.get_mut(uid) else { return reports };
        let notes = std::mem::take(&mut entry.notes);
        let api_uid = match record.source {
            PodSource::Api => Some(record.uid.clone()),
            PodSource::Static => entry.mirror_uid.clone(),
        };
        let decided = steps.iter().filter_map(|step| match step {
            Step::Event(draft) => Some(draft),
            _ => None,
        });
        for draft in notes.iter().chain(decided) {
            let event = super::events::about_pod(record, api_uid.as_deref(), draft, &self.cx.config.node_name, now);
            if let Some(event) = self.cx.correlated(event) {
                reports.push(Report::Event { event });
            }
        }
        let Some(entry) = self.cx.pods.get_mut(uid) else { return reports };
        let gone = steps.contains(&Step::ReportGone);
        let is_static = record.source == PodSource::Static;
        // A mirror exists while a process of its pod runs: deleting it earlier would report the end too early.
        let mirror_gone = (is_static && steps.contains(&Step::Forget)).then(|| {
            let (namespace, name) = (record.namespace.clone(), record.name.clone());
            Report::MirrorGone { namespace, name, static_uid: record.uid.clone() }
        });
        let object_gone = !is_static && record.deletion.as_ref().is_some_and(|deletion| deletion.object_gone);
        let Some(api_uid) = api_uid.filter(|_| !object_gone) else {
            reports.extend(mirror_gone);
            return reports;
        };
        if entry.tells(&status, record, gone, now.mono) {
            let (namespace, name) = (record.namespace.clone(), record.name.clone());
            reports.push(Report::PodStatus { namespace, name, uid: api_uid.clone(), status });
        }
        if gone {
            let (namespace, name) = (record.namespace.clone(), record.name.clone());
            reports.push(Report::PodGone { namespace, name, uid: api_uid });
        }
        reports.extend(mirror_gone);
        reports
    }

    /// Does the steps in order; gives the answers that are there at once.
    fn execute(&mut self, uid: &str, steps: VecDeque<Step>, now: &Now) -> Result<Vec<PodEvent>, StoreError> {
        let mut answers = Vec::new();
        for step in steps {
            let Some(entry) = self.cx.pods.get(uid) else { return Ok(answers) };
            let pod = Rc::clone(&entry.pod);
            if !matches!(step, Step::Event(_) | Step::WakeAt(_)) {
                log::debug!("pod {}/{}: {step:?}", entry.record.namespace, entry.record.name);
            }
            match step {
                Step::PrepareSandbox => answers.extend(self.prepare_sandbox(uid, &pod)),
                Step::EnsureImage { container, reference, policy, for_volume } => {
                    let waiter = Waiter { uid: uid.to_owned(), container, for_volume, reference, asked: now.mono };
                    answers.extend(self.pulls.ensure(&mut self.cx, &pod, waiter, policy));
                }
                Step::Start { container, attempt, id, image_id } => {
                    answers.extend(self.start_container(
                        &pod,
                        ContainerRef { uid: uid.to_owned(), container, attempt },
                        &id,
                        &image_id,
                    ));
                }
                // It has no process yet.
                Step::Kill { container, id, .. } if self.plugins.stop(&id) => {
                    let (failure, message) = (StartFailure::Device, "stopped before its start".to_owned());
                    answers.push(PodEvent::StartFailed { container, id, failure, message });
                }
                Step::Kill { container, id, signal, because } => {
                    self.containers.kill(&self.cx, (uid, &container, &id), signal, because);
                }
                Step::RunHook { container, id, hook, limit } => {
                    let which = HookRef { uid: uid.to_owned(), container, id, hook };
                    answers.extend(self.hooks.run(&self.cx, &self.probes, &pod, which, limit));
                }
                Step::Resize { containers } => {
                    answers.extend(resize::begin(&mut self.cx, &self.launch.containers, uid, &pod, containers))
                }
                Step::RemoveContainer { container, attempt, id } => {
                    self.remove_container(ContainerRef { uid: uid.to_owned(), container, attempt }, &id);
                }
                Step::Teardown => answers.extend(self.teardown(uid)),
                Step::Forget => self.forget(uid),
                Step::WakeAt(at) => {
                    if let Some(entry) = self.cx.pods.get_mut(uid) {
                        entry.wake = Some(at.max(now.mono));
                    }
                }
                // Both went out with the commit.
                Step::ReportGone | Step::Event(_) => {}
            }
        }
        Ok(answers)
    }
}

/// Whether the reports contain an end that no earlier report has. `told`: number of ends in the last reported status.
fn tells_of_an_end(told: &mut u64, ends: u64, reports: &[Report]) -> bool {
    let mut tells = false;
    for report in reports {
        match report {
            Report::PodStatus { .. } => tells |= std::mem::replace(told, ends) != ends,
            Report::PodGone { .. } => tells = true,
            _ => {}
        }
    }
    tells
}

#[cfg(test)]
mod tests;
