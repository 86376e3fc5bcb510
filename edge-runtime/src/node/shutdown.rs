//! Shutdown of the machine: pods stop in order of their priority within a budget, and the node reports it.
//! `edge-runtime shutdown` requests it (K8s pkg/kubelet/nodeshutdown, which uses logind instead).

pub(super) mod state;

use std::collections::VecDeque;
use std::time::Duration;

use super::Node;
use super::pods::Entry;
use crate::config::AtShutdown;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;
use crate::pod::record::{ContainerState, NodeEnd, PodRecord, SandboxState, StopReason};
use crate::pod::spec::{CRITICAL_PRIORITY, DEFAULT_GRACE_S, priority, termination_grace_s};
use crate::pod::step::StopSignal;
use crate::store::StoreError;

/// Made by the verb `shutdown` before it signals the daemon.
pub const MARK: &str = "shutdown";

const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Time from SIGKILL to the end of a process.
const LAST: Duration = Duration::from_secs(2);

/// Time for the link to send the last reports.
const FAREWELL: Duration = Duration::from_millis(500);

impl Node {
    /// Handles SIGTERM. Returns whether the node continues for a while to stop its pods.
    pub(super) fn stop_asked(&mut self) -> Result<bool, StoreError> {
        // The second signal means it.
        if self.shutdown.under_way || !self.cx.paths.run().join(MARK).exists() {
            return Ok(false);
        }
        let config = self.cx.config.shutdown;
        let [normal, critical] = in_order(self.cx.pods.iter());
        log::info!("the machine shuts down: stopping {} and then {} critical pods", normal.len(), critical.len());
        self.shutdown.under_way = true;
        self.shutdown.frozen = config.pods == AtShutdown::Resume;
        let [grace, critical_grace] =
            [*config.grace_seconds, *config.critical_grace_seconds].map(|seconds| Duration::from_secs(seconds.into()));
        self.shutdown.groups = VecDeque::from([(normal, grace), (critical, critical_grace)]);
        self.cx.node_event(false, "Shutdown", "Shutdown manager detected shutdown event")?;
        self.node_status.force();
        self.cx.look_now();
        self.stop_group();
        Ok(true)
    }

    /// Whether all pods have stopped or had their time; else when to look again.
    pub(super) fn shutdown_step(&mut self, now: Mono) -> Result<(), Option<Mono>> {
        if !self.shutdown.under_way {
            return Err(None);
        }
        loop {
            let Some((uids, _)) = self.shutdown.groups.front() else { return Ok(()) };
            let live: Vec<(String, String, String)> = uids.iter().flat_map(|uid| self.live(uid)).collect();
            let deadline = self.shutdown.deadline.unwrap_or(now);
            // A failing pod has ended after its teardown: only then its end can be reported.
            let failing = |uid: &String| {
                let entry = self.cx.pods.get(uid).filter(|_| !self.shutdown.frozen);
                entry.is_some_and(|entry| entry.record.sandbox.state != SandboxState::Gone)
            };
            let is_live = !live.is_empty();
            let is_there = is_live || uids.iter().any(failing);
            match next(is_live, is_there, self.shutdown.killed, now < deadline) {
                Next::Wait => return Err(Some(deadline)),
                Next::Kill => {
                    for (uid, container, id) in &live {
                        let which = (uid.as_str(), container.as_str(), id.as_str());
                        self.containers.kill(&self.cx, which, StopSignal::Kill, StopReason::PodTerminal);
                    }
                    self.shutdown.killed = true;
                    self.shutdown.deadline = Some(now.after(LAST));
                }
                Next::Group => {
                    self.shutdown.groups.pop_front();
                    self.stop_group();
                }
            }
        }
    }

    /// Sends pending reports while there is a link; the others wait in the store.
    pub(super) async fn leave(&mut self) -> Result<(), StoreError> {
        self.housekeeping()?;
        self.cx.delete_acknowledged()?;
        self.exit_sync.committed(self.cx.mono());
        self.exit_sync.sync_now(&mut self.cx, &self.containers.monitor)?;
        if self.cx.connection().is_some() {
            self.cx.outgoing.hurry();
            let _ = self.cx.outgoing.flush(|row| self.exit_sync.lets_leave(row), self.cx.link.as_ref(), self.cx.mono());
            smol::Timer::after(FAREWELL).await;
        }
        log::info!("all pods have stopped");
        Ok(())
    }

    /// Asks the containers of the first group to stop.
    fn stop_group(&mut self) {
        let Some((uids, grace)) = self.shutdown.groups.front().cloned() else { return };
        self.shutdown.killed = false;
        let grace_s = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        let own = |uid: &String| self.cx.pods.get(uid).map_or(DEFAULT_GRACE_S, |entry| termination_grace_s(&entry.pod));
        let longest = longest(uids.iter().map(own), grace);
        let last = if self.shutdown.frozen { Duration::ZERO } else { LAST };
        self.shutdown.deadline = Some(self.cx.mono().after(longest + last));
        for uid in uids {
            self.probes.stop(&uid);
            if self.shutdown.frozen {
                for (uid, container, id) in self.live(&uid) {
                    let signal = StopSignal::Stop { grace: longest };
                    self.containers.kill(&self.cx, (&uid, &container, &id), signal, StopReason::PodTerminal);
                }
            } else {
                let end = NodeEnd { grace_s, disruption: true };
                self.cx.tell(&uid, PodEvent::Evict { reason: REASON.into(), message: MESSAGE.into(), end });
            }
        }
    }

    /// Containers of the pod that have a process: uid, name, id.
    fn live(&self, uid: &str) -> Vec<(String, String, String)> {
        let records = self.cx.pods.get(uid).into_iter().map(|entry| &entry.record);
        let live = records.flat_map(with_process).filter(|(_, id)| !self.shutdown.ended.contains(*id));
        live.map(|(name, id)| (uid.to_owned(), name.to_owned(), id.to_owned())).collect()
    }
}

/// What to do about the first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Wait,
    /// Its time is over: SIGKILL.
    Kill,
    /// It has stopped, or cannot be stopped: the next one.
    Group,
}

/// `is_live`: a container has a process; `is_there`: something of its pods is not taken down.
fn next(is_live: bool, is_there: bool, was_killed: bool, is_in_time: bool) -> Next {
    if is_there && is_in_time {
        Next::Wait
    } else if is_live && !was_killed {
        Next::Kill
    } else {
        Next::Group
    }
}

/// Uids of the pods that stop first, and of the critical ones. A pod that has ended has nothing to stop.
fn in_order<'a>(pods: impl Iterator<Item = (&'a String, &'a Entry)>) -> [Vec<String>; 2] {
    let mut groups = [Vec::new(), Vec::new()];
    for (uid, entry) in pods.filter(|(_, entry)| entry.record.terminal.is_none()) {
        groups[usize::from(priority(&entry.pod) >= CRITICAL_PRIORITY)].push(uid.clone());
    }
    groups
}

/// Time for a group whose pods ask for these seconds. A pod that says less gets less, so the group need not wait for the
/// whole budget either.
fn longest(own: impl Iterator<Item = u32>, budget: Duration) -> Duration {
    own.map(|seconds| Duration::from_secs(seconds.into()).min(budget)).max().unwrap_or_default()
}

/// Containers of the pod that have a process: name and id.
fn with_process(record: &PodRecord) -> impl Iterator<Item = (&str, &str)> {
    record.containers.iter().filter_map(|(name, container)| match &container.state {
        ContainerState::Running { id, .. } | ContainerState::Stopping { id, .. } => Some((&**name, &**id)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use sampan_monitor::exit::ExitRecord;
    use serde_json::json;

    use super::super::bench::{Bench, pod, running};
    use super::super::pods::Pods;
    use super::*;
    use crate::monitor::client::MonitorEvent;
    use crate::pod::clock::Now;
    use crate::pod::record::{ContainerKind, ContainerRecord, PodSource, SignalState, Terminal};

    fn now() -> Now {
        Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() }
    }

    #[test]
    fn critical_pods_stop_last_and_ended_ones_not_at_all() {
        let mut pods = Pods::default();
        let specs = [
            ("a", json!({"priorityClassName": "system-node-critical"})),
            ("b", json!({})),
            ("c", json!({"priority": CRITICAL_PRIORITY})),
            ("d", json!({"priority": CRITICAL_PRIORITY - 1})),
            ("e", json!({"priority": -1})),
            ("ended", json!({})),
        ];
        for (uid, mut spec) in specs {
            spec["containers"] = json!([]);
            let pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            let mut record = PodRecord::new(uid, "ns", uid, PodSource::Api, &now());
            if uid == "ended" {
                record.terminal = Some(Terminal { succeeded: true, reason: String::new(), message: String::new() });
            }
            pods.insert(Entry::new(Rc::new(pod), record));
        }
        assert_eq!(in_order(pods.iter()), [vec!["b", "d", "e"], vec!["a", "c"]]);
        assert_eq!(in_order(Pods::default().iter()), [vec![""; 0], vec![""; 0]]);
    }

    #[test]
    fn group_waits_for_its_longest_pod_within_the_budget() {
        let longest = |own: &[u32], budget| longest(own.iter().copied(), Duration::from_secs(budget)).as_secs();
        assert_eq!(longest(&[], 20), 0, "an empty group costs no time");
        assert_eq!(longest(&[0, 0], 20), 0);
        assert_eq!((longest(&[3, 5], 20), longest(&[20, 5], 20), longest(&[21], 20)), (5, 20, 20));
        assert_eq!((longest(&[u32::MAX], 20), longest(&[30], 0)), (20, 0));
    }

    #[test]
    fn group_is_killed_once_and_then_left() {
        let [live, gone] = [true, false];
        assert_eq!(next(live, true, false, true), Next::Wait);
        assert_eq!(next(live, true, false, false), Next::Kill);
        assert_eq!(next(live, true, true, true), Next::Wait, "the kernel takes a moment");
        assert_eq!(next(live, true, true, false), Next::Group, "a process that cannot be killed holds up no other pod");
        assert_eq!(next(gone, true, false, true), Next::Wait, "its end is to be reported");
        assert_eq!(next(gone, true, false, false), Next::Group);
        assert_eq!(next(gone, false, false, true), Next::Group, "no need to wait for the deadline");
    }

    #[test]
    fn only_containers_with_a_process_are_stopped() {
        let wall = now().wall;
        let id = String::from;
        let stopping = |pid| ContainerState::Stopping {
            id: id("s"),
            pid,
            started_at: None,
            because: StopReason::Deleted,
            kill_at: Mono(0),
            spare_until: None,
            signal: SignalState::None,
        };
        let states = [
            ("a", ContainerState::Running { id: id("r"), pid: 1, started_at: wall, since: Mono(0) }),
            ("b", stopping(7)),
            ("c", stopping(0)),
            ("d", ContainerState::waiting()),
            ("e", ContainerState::Starting { id: id("x"), reason: id(""), message: id("") }),
        ];
        let mut record = PodRecord::new("u", "ns", "p", PodSource::Api, &now());
        assert_eq!(with_process(&record).count(), 0);
        for (name, state) in states {
            record.containers.insert(id(name), ContainerRecord { state, ..ContainerRecord::new(ContainerKind::App) });
        }
        assert_eq!(Vec::from_iter(with_process(&record)), [("a", "r"), ("b", "s"), ("c", "s")]);
    }

    /// A node with the pods `a`, which has a process, and `b`, which is critical. Its machine shuts down.
    fn shutting_down(pods: AtShutdown) -> (Bench, String) {
        let mut bench = Bench::new();
        Rc::make_mut(&mut bench.node.cx.config).shutdown.pods = pods;
        ["a", "b"].iter().for_each(|uid| bench.add(uid));
        let id = bench.container("a", running("a", 7));
        let mut critical = pod("b", "b");
        critical.spec.as_mut().unwrap().priority = Some(CRITICAL_PRIORITY);
        bench.node.cx.pods.get_mut("b").unwrap().pod = Rc::new(critical);
        let run = bench.node.cx.paths.run();
        std::fs::create_dir_all(&run).unwrap();
        assert!(!bench.node.stop_asked().unwrap(), "the daemon ends, and its pods go on");
        std::fs::write(run.join(MARK), "").unwrap();
        assert!(bench.node.stop_asked().unwrap());
        (bench, id)
    }

    #[test]
    fn second_signal_ends_the_daemon() {
        let (mut bench, _) = shutting_down(AtShutdown::Resume);
        assert!(!bench.node.stop_asked().unwrap());
    }

    #[test]
    fn pods_that_go_on_at_the_next_boot_keep_their_records() {
        let (mut bench, id) = shutting_down(AtShutdown::Resume);
        let before = ["a", "b"].map(|uid| bench.record(uid).clone());
        bench.node.settle("b").unwrap();
        assert!(!bench.node.cx.paths.pod("b").exists(), "no pod is begun");
        let exit = ExitRecord { id, code: 143, ..ExitRecord::default() };
        let now = bench.node.cx.mono();
        assert!(bench.node.shutdown_step(now).is_err(), "a process is there");
        bench.node.take_monitor(MonitorEvent::Exited(exit)).unwrap();
        assert_eq!(bench.node.shutdown_step(now), Ok(()));
        assert_eq!(["a", "b"].map(|uid| bench.record(uid).clone()), before);
    }

    #[test]
    fn process_that_does_not_stop_is_killed_and_left() {
        let (mut bench, _) = shutting_down(AtShutdown::Resume);
        let now = bench.node.cx.mono();
        let Err(Some(deadline)) = bench.node.shutdown_step(now) else { panic!("it is stopping") };
        assert!(deadline <= now.after(Duration::from_secs(20)) && !bench.node.shutdown.killed);
        assert_eq!(bench.node.shutdown_step(deadline), Err(Some(deadline.after(LAST))));
        assert!(bench.node.shutdown.killed);
        assert_eq!(bench.node.shutdown_step(deadline.after(LAST)), Ok(()));
    }

    #[test]
    fn pods_that_fail_end_in_order_and_report_it() {
        let (mut bench, _) = shutting_down(AtShutdown::Fail);
        let ended = |bench: &Bench, uid: &str| bench.record(uid).terminal.is_some();
        assert!(ended(&bench, "a") && !ended(&bench, "b"), "critical pods stop last");
        let end = bench.record("a").node_end.clone();
        assert_eq!(end, Some(NodeEnd { grace_s: 20, disruption: true }));
        let now = bench.node.cx.mono();
        bench.container("a", ContainerState::waiting());
        assert!(bench.node.shutdown_step(now).is_err(), "its end is not reported yet");
        bench.sandbox("a", SandboxState::Gone);
        assert!(bench.node.shutdown_step(now).is_err() && ended(&bench, "b"));
        bench.sandbox("b", SandboxState::Gone);
        assert_eq!(bench.node.shutdown_step(now), Ok(()));
    }
}
