//! One pod's turn: the real reconcile and status, one commit, and a runtime that is a set of containers.

use std::time::Duration;

use edge_protocol::message::Report;
use edge_runtime::store::StoreError;
use sampan_pod::clock::Now;
use sampan_pod::event::{Exit, PodEvent};
use sampan_pod::reconcile::{World, reconcile};
use sampan_pod::refusal::Admission;
use sampan_pod::status::{HostFacts, publish};
use sampan_pod::step::Step;

use super::daemon::Entry;
use super::{Crash, Device};

impl Device {
    /// One reconciliation of one pod that needs it. False if none does.
    pub fn turn(&mut self, crash: Option<Crash>, now: Duration) -> Result<bool, StoreError> {
        let clock = self.now(now);
        let (Some(daemon), Some(store)) = (&mut self.daemon, &mut self.store) else { return Ok(false) };
        let due = |entry: &Entry| entry.dirty || entry.wake.is_some_and(|at| at <= clock.mono);
        let Some((uid, entry)) = daemon.pods.iter_mut().find(|(_, entry)| due(entry)) else { return Ok(false) };
        let uid = uid.clone();
        entry.dirty = false;
        entry.wake = None;
        let world = World {
            image: &|image| Some(format!("sha256:{image}")),
            admit: &|_| Admission::Admitted,
            resize: &|_| None,
            stop_locked: &|| false,
        };
        let plan = reconcile(&entry.pod, entry.record.clone(), &world, &clock);
        let (record, status) = publish(&entry.pod, plan.record, &HostFacts::default(), &clock);
        let mut reports = Vec::new();
        let status = serde_json::to_value(&status).expect("a status is JSON");
        let (namespace, name) = (record.namespace.clone(), record.name.clone());
        let object_gone = record.deletion.as_ref().is_some_and(|deletion| deletion.object_gone);
        if entry.reported != status && !object_gone {
            entry.reported = status.clone();
            self.versions += 1;
            let mut status = status;
            status["simVersion"] = self.versions.into();
            self.reported.insert(uid.clone(), self.versions);
            reports.push(Report::PodStatus {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.clone(),
                status,
            });
        }
        if plan.steps.contains(&Step::ReportGone) && !object_gone {
            reports.push(Report::PodGone { namespace, name, uid: uid.clone() });
        }
        let forget = plan.steps.contains(&Step::Forget);
        if entry.unsaved || entry.record != record || forget || !reports.is_empty() {
            store.write(|writer| {
                if forget {
                    writer.forget_pod(&uid)?
                } else {
                    writer.put_pod(&record)?
                }
                reports.iter().try_for_each(|report| writer.report(report).map(drop))
            })?;
        }
        entry.record = record;
        entry.unsaved = false;
        if !reports.is_empty() {
            self.offer()?;
        }
        if crash == Some(Crash::BeforeSteps) {
            self.crash(now);
            return Ok(true);
        }
        for step in plan.steps {
            self.execute(&uid, step, &clock);
            if crash == Some(Crash::AfterStep) {
                self.crash(now);
                return Ok(true);
            }
        }
        Ok(true)
    }

    pub(super) fn execute(&mut self, uid: &str, step: Step, clock: &Now) {
        let Some(daemon) = &mut self.daemon else { return };
        let Some(entry) = daemon.pods.get_mut(uid) else { return };
        match step {
            Step::PrepareSandbox => entry.tell(PodEvent::SandboxReady { ips: Vec::new() }, clock),
            Step::EnsureImage { container, reference, .. } => {
                let image_id = format!("sha256:{reference}");
                entry.tell(PodEvent::ImageReady { container, image_id }, clock);
            }
            Step::Start { container, id, .. } => {
                assert!(!self.removed.contains(uid), "pod {uid} was deleted, and is started");
                assert!(self.known.insert(id.clone()), "container {id} of pod {uid} is started twice");
                self.starts += 1;
                self.runtime.insert(id.clone(), uid.to_owned());
                entry.tell(PodEvent::Started { container, id, pid: 1, started_at: clock.wall }, clock);
            }
            Step::Kill { container, id, .. } => {
                self.runtime.remove(&id);
                let exit = Exit {
                    code: 0,
                    signal: None,
                    oom_killed: false,
                    unknown: false,
                    finished_at: clock.wall,
                    message: String::new(),
                };
                entry.tell(PodEvent::Exited { container, id, exit }, clock);
            }
            Step::RemoveContainer { container, attempt, id } => {
                self.runtime.remove(&id);
                entry.tell(PodEvent::Removed { container, attempt }, clock);
            }
            Step::Teardown => entry.tell(PodEvent::TornDown, clock),
            Step::Forget => drop(daemon.pods.remove(uid)),
            Step::WakeAt(at) => entry.wake = Some(at),
            Step::ReportGone | Step::Event(_) | Step::RunHook { .. } | Step::Resize { .. } => {}
        }
    }
}
