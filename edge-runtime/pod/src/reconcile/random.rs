//! Random histories of one pod on an honest node that answers late, crashes and reboots.
//!
//! Held throughout: one process per container name, no attempt started twice, attempts only rise. Held in the end:
//! a deleted pod is forgotten, and any other has all it wants, or has ended, or has set itself a time to wake.

use sampan_json::SetField;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::event::{ImageFailure, PodEvent, ProbeKind, StartFailure};
use super::super::record::{ContainerKind, ContainerState, NodeEnd, Resources, SandboxState};
use super::super::step::{Step, StopSignal};
use super::super::testing::{Sim, exit, pod};

#[derive(Clone, Debug)]
enum Act {
    /// The oldest or another step under way is answered.
    Answer {
        which: usize,
        ok: bool,
    },
    Exit {
        which: usize,
        code: i32,
    },
    Probe {
        which: usize,
        kind: u8,
        success: bool,
    },
    Wait {
        s: u64,
    },
    /// The daemon dies; a start under way had (or had not) made its process.
    Crash {
        started: bool,
    },
    Reboot,
    NewImage,
    /// The spec of the first container asks for this much processor.
    NewCpu {
        milli: u32,
    },
    Dependency,
    Delete {
        grace_s: u32,
    },
    Tombstone,
    Fail,
    /// A process takes the stop lock, or gives it back.
    Lock {
        held: bool,
    },
    Release,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        12 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(which, ok)| Act::Answer { which, ok }),
        5 => (any::<usize>(), prop_oneof![Just(0), Just(1)]).prop_map(|(which, code)| Act::Exit { which, code }),
        4 => (any::<usize>(), 0..3u8, any::<bool>()).prop_map(|(which, kind, success)| Act::Probe { which, kind, success }),
        4 => (0..400u64).prop_map(|s| Act::Wait { s }),
        2 => any::<bool>().prop_map(|started| Act::Crash { started }),
        1 => Just(Act::Reboot),
        1 => Just(Act::NewImage),
        2 => (1..4u32).prop_map(|milli| Act::NewCpu { milli }),
        1 => Just(Act::Dependency),
        1 => (0..40u32).prop_map(|grace_s| Act::Delete { grace_s }),
        1 => Just(Act::Tombstone),
        1 => Just(Act::Fail),
        2 => any::<bool>().prop_map(|held| Act::Lock { held }),
        1 => Just(Act::Release),
    ];
    prop::collection::vec(act, 1..60)
}

fn spec(policy: &str, image: &str, init: bool, sidecar: bool, late_image: bool, hooks: bool) -> Value {
    let mut inits = Vec::new();
    if sidecar {
        let probe = json!({"exec": {"command": ["x"]}});
        inits.push(json!({"name": "side", "image": "img:1", "restartPolicy": "Always", "startupProbe": probe}));
    }
    if init {
        inits.push(json!({"name": "init", "image": "init:1"}));
    }
    let second = if late_image { "far/away:1" } else { "img:1" };
    let hook = json!({"sleep": {"seconds": 1}});
    let lifecycle = if hooks { json!({"postStart": hook, "preStop": hook}) } else { json!({}) };
    for sidecar in inits.iter_mut().filter(|c| c["name"] == "side") {
        sidecar.set("lifecycle", lifecycle.clone());
    }
    json!({
        "restartPolicy": policy, "initContainers": inits,
        "containers": [
            {"name": "a", "image": image, "lifecycle": lifecycle}, {"name": "b", "image": second},
        ],
    })
}

/// The node: what runs, and which steps have not been answered.
struct World {
    sim: Sim,
    under_way: Vec<Step>,
    running: BTreeMap<String, String>,
    /// Ids that have ever had a process.
    used: BTreeSet<String>,
    attempts: BTreeMap<String, u32>,
    forgotten: bool,
}

impl World {
    fn new(sim: Sim) -> Self {
        let (running, attempts) = Default::default();
        let mut world = Self { sim, under_way: Vec::new(), running, used: BTreeSet::new(), attempts, forgotten: false };
        world.sim.turn();
        world.take_steps();
        world
    }

    fn take_steps(&mut self) {
        for step in std::mem::take(&mut self.sim.last_steps) {
            match step {
                Step::Start { ref container, attempt, ref id, .. } => {
                    assert!(!self.running.contains_key(container), "{container} would run twice");
                    assert!(!self.used.contains(id), "attempt {attempt} of {container} is started again");
                    let before = self.attempts.insert(container.clone(), attempt);
                    assert!(before.is_none_or(|b| b <= attempt), "attempts of {container} fall");
                    self.under_way.push(step);
                }
                Step::Kill { ref container, ref id, .. } => {
                    let starting = self.under_way.iter().any(|s| matches!(s, Step::Start { id: i, .. } if i == id));
                    if self.running.get(container) == Some(id) || starting {
                        self.under_way.push(step);
                    }
                }
                Step::PrepareSandbox => {
                    assert!(self.running.is_empty(), "a sandbox is made under running containers");
                    self.under_way.push(step);
                }
                Step::Teardown => {
                    assert!(self.running.is_empty(), "teardown under running containers");
                    self.under_way.push(step);
                }
                Step::EnsureImage { .. }
                | Step::RemoveContainer { .. }
                | Step::RunHook { .. }
                | Step::Resize { .. } => {
                    self.under_way.push(step);
                }
                Step::Forget => {
                    assert!(self.running.is_empty(), "forgotten while something runs");
                    self.forgotten = true;
                }
                Step::ReportGone | Step::WakeAt(_) | Step::Event(_) => {}
            }
        }
    }

    fn tell(&mut self, event: PodEvent) {
        self.sim.tell(event);
        self.take_steps();
    }

    fn answer(&mut self, index: usize, ok: bool) {
        let message = || "no".to_owned();
        match self.under_way.remove(index) {
            Step::PrepareSandbox if ok => self.tell(PodEvent::SandboxReady { ips: Vec::new() }),
            Step::PrepareSandbox => {
                self.tell(PodEvent::SandboxFailed { reason: "FailedMount".into(), message: message() });
            }
            Step::EnsureImage { container, .. } if ok => {
                self.tell(PodEvent::ImageReady { container, image_id: "sha256:x".into() });
            }
            Step::EnsureImage { container, .. } => {
                self.tell(PodEvent::ImageFailed { container, failure: ImageFailure::Pull, message: message() });
            }
            Step::Start { container, id, .. } if ok => {
                self.used.insert(id.clone());
                self.running.insert(container.clone(), id.clone());
                let started_at = self.sim.now().wall;
                self.tell(PodEvent::Started { container, id, pid: 9, started_at });
            }
            Step::Start { container, id, attempt, .. } => {
                let failure = match attempt % 3 {
                    0 => StartFailure::Config,
                    1 => StartFailure::Create,
                    _ => StartFailure::Run,
                };
                if failure == StartFailure::Run {
                    self.used.insert(id.clone());
                }
                self.tell(PodEvent::StartFailed { container, id, failure, message: message() });
            }
            Step::Kill { container, id, signal, .. } => {
                let dies = signal == StopSignal::Kill || ok;
                if dies && self.running.get(&container) == Some(&id) {
                    self.exit(&container, 137);
                }
            }
            Step::Teardown if ok => self.tell(PodEvent::TornDown),
            Step::Teardown => self.tell(PodEvent::TeardownFailed { message: message() }),
            Step::RemoveContainer { container, attempt, .. } => self.tell(PodEvent::Removed { container, attempt }),
            Step::RunHook { container, id, hook, .. } => {
                let error = (!ok).then(message);
                self.tell(PodEvent::HookDone { container, id, hook, error });
            }
            Step::Resize { containers } => {
                for (container, id) in containers {
                    let spec = self.sim.pod.spec.clone().unwrap();
                    let of = spec.containers.iter().find(|c| c.name == container);
                    let resources = of.map(Resources::of).unwrap_or_default();
                    let error = (!ok).then(message);
                    self.tell(PodEvent::Resized { container, id, resources, error });
                }
            }
            other => unreachable!("{other:?} has no answer"),
        }
    }

    fn exit(&mut self, container: &str, code: i32) {
        let Some(id) = self.running.remove(container) else { return };
        self.tell(PodEvent::Exited { container: container.to_owned(), id, exit: exit(code) });
    }

    fn nth_running(&self, which: usize) -> Option<(String, String)> {
        let count = self.running.len().max(1);
        self.running.iter().nth(which % count).map(|(c, id)| (c.clone(), id.clone()))
    }

    fn crash(&mut self, started: bool) {
        for step in std::mem::take(&mut self.under_way) {
            if let Step::Start { container, id, .. } = step
                && started
            {
                self.used.insert(id.clone());
                self.running.insert(container, id);
            }
        }
        let live = self.running.values().map(|id| (id.clone(), 9)).collect();
        self.tell(PodEvent::Resumed { live, sandbox_exists: true });
    }

    fn act(&mut self, act: Act, spec: &dyn Fn(&str) -> Value) {
        if self.forgotten {
            return;
        }
        match act {
            Act::Answer { which, ok } if !self.under_way.is_empty() => {
                self.answer(which % self.under_way.len(), ok);
            }
            Act::Answer { .. } => {}
            Act::Exit { which, code } => {
                if let Some((container, _)) = self.nth_running(which) {
                    self.exit(&container, code);
                }
            }
            Act::Probe { which, kind, success } => {
                let probe = [ProbeKind::Startup, ProbeKind::Readiness, ProbeKind::Liveness][usize::from(kind)];
                if let Some((container, id)) = self.nth_running(which) {
                    self.tell(PodEvent::Probe { container, id, probe, success });
                }
            }
            Act::Wait { s } => {
                self.sim.wait(s);
                self.take_steps();
            }
            Act::Crash { started } => self.crash(started),
            Act::Reboot => {
                self.under_way.clear();
                self.running.clear();
                self.sim.boot.push('x');
                self.sim.turn();
                self.take_steps();
            }
            Act::NewImage => {
                let annotations = self.sim.pod.metadata.annotations.take();
                self.sim.pod = pod(spec("img:2"));
                self.sim.pod.metadata.annotations = annotations;
                self.sim.turn();
                self.take_steps();
            }
            Act::NewCpu { milli } => {
                if let Some(first) = self.sim.pod.spec.as_mut().and_then(|spec| spec.containers.first_mut()) {
                    let wants = json!({"requests": {"cpu": format!("{milli}m")}});
                    first.resources = serde_json::from_value(wants).unwrap();
                }
                self.sim.turn();
                self.take_steps();
            }
            Act::Dependency => self.tell(PodEvent::DependencyChanged),
            Act::Delete { grace_s } => self.tell(PodEvent::DeletionRequested { grace_s }),
            Act::Tombstone => self.tell(PodEvent::ObjectGone { grace_s: 30 }),
            Act::Lock { held } => self.sim.locked = Some(held),
            Act::Release => self.tell(PodEvent::Released),
            Act::Fail => self.tell(PodEvent::Evict {
                reason: "Evicted".into(),
                message: "full".into(),
                end: NodeEnd { grace_s: 1, disruption: false },
            }),
        }
    }

    /// Ends holds, completes all running steps and advances time, until nothing more happens soon.
    fn settle(&mut self) {
        self.sim.locked = Some(false);
        if !self.forgotten {
            self.tell(PodEvent::Released);
        }
        for _ in 0..400 {
            let unsure = self
                .sim
                .record
                .containers
                .get("side")
                .is_some_and(|c| matches!(c.state, ContainerState::Running { .. }) && c.probes.startup.is_none());
            if let Some(id) = self.running.get("side").cloned().filter(|_| unsure) {
                self.tell(PodEvent::Probe { container: "side".into(), id, probe: ProbeKind::Startup, success: true });
            } else if !self.under_way.is_empty() {
                self.answer(0, true);
            } else if self.running.contains_key("init") {
                self.exit("init", 0);
            } else if let Some(wake) = self.sim.wake.filter(|_| !self.forgotten) {
                self.sim.s = (wake.0 / 1000 - 600).max(self.sim.s + 1);
                self.sim.turn();
                self.take_steps();
            } else {
                return;
            }
        }
        panic!("does not come to rest: {:?}", self.sim.record);
    }
}

fn world(policy: &str, shape: u8) -> (World, impl Fn(&str) -> Value + use<>) {
    let policy = policy.to_owned();
    let spec = move |image: &str| spec(&policy, image, shape & 1 != 0, shape & 2 != 0, shape & 4 != 0, shape & 8 != 0);
    let holds = [(16_u8, "sampan.dev/stop-lock", "5m"), (32, "sampan.dev/hold", "true")];
    let holds = holds.into_iter().filter(|(bit, ..)| shape & bit != 0);
    let mut sim = Sim::new(pod(spec("img:1")));
    sim.pod.metadata.annotations = Some(holds.map(|(_, key, value)| (key.to_owned(), value.to_owned())).collect());
    sim.locked = Some(false);
    (World::new(sim), spec)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_deleted_pod_is_always_forgotten(
        policy in prop_oneof!["Always", "OnFailure", "Never"], shape in 0..64u8, acts in acts(),
    ) {
        let (mut world, spec) = world(&policy, shape);
        for act in acts {
            world.act(act, &spec);
        }
        if !world.forgotten {
            world.tell(PodEvent::ObjectGone { grace_s: 30 });
            world.settle();
        }
        prop_assert!(world.forgotten, "{:?}", world.sim.record);
    }

    #[test]
    fn a_pod_that_is_left_alone_comes_to_rest(
        policy in prop_oneof!["Always", "OnFailure", "Never"], shape in 0..64u8, acts in acts(),
    ) {
        let (mut world, spec) = world(&policy, shape);
        for act in acts {
            world.act(act, &spec);
        }
        world.settle();
        let record = &world.sim.record;
        let apps = record.containers.iter().filter(|(_, c)| c.kind == ContainerKind::App);
        let all_up = || apps.clone().all(|(name, c)| {
            world.running.contains_key(name) || matches!(c.state, ContainerState::Terminated(_))
        });
        let ended = (record.terminal.is_some() || record.deletion.is_some())
            && record.sandbox.state == SandboxState::Gone;
        prop_assert!(world.forgotten || ended || all_up(), "{record:?}");
    }
}
