//! A pod with its record and a clock, driven by hand: what the tests of this module share.

use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::clock::{Mono, Now};
use super::event::{Exit, HookKind, PodEvent};
use super::reconcile::{World, reconcile};
use super::record::{ContainerState, PodRecord, PodSource};
use super::refusal::{Admission, Refusal};
use super::step::{Step, StopSignal};
use super::transition::apply;

/// Ten minutes after boot plus `s` seconds, in the boot named `boot`.
pub(super) fn at(boot: &str, s: u64) -> Now {
    let wall = Timestamp::from_second(1_700_000_000 + i64::try_from(s).unwrap()).unwrap();
    Now { wall, mono: Mono((600 + s) * 1000), boot_id: Rc::from(boot) }
}

/// A pod named `p` in `ns` with uid `u`, from its spec.
pub(super) fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})).unwrap()
}

/// A pod with one container `c` of image `img:1`.
pub(super) fn one(policy: &str) -> Pod {
    pod(json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "img:1"}]}))
}

/// The pod of [`one`], which always restarts, with an annotation.
pub(super) fn annotated(key: &str, value: &str) -> Pod {
    let mut pod = one("Always");
    pod.metadata.annotations = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
    pod
}

pub(super) fn exit(code: i32) -> Exit {
    Exit {
        code,
        signal: None,
        oom_killed: false,
        unknown: false,
        finished_at: Timestamp::from_second(1_700_000_500).unwrap(),
        message: String::new(),
    }
}

/// One pod on one node; `s` is the time in seconds.
pub(super) struct Sim {
    pub(super) pod: Pod,
    pub(super) record: PodRecord,
    pub(super) boot: String,
    pub(super) s: u64,
    /// Images on the node; others must be pulled.
    pub(super) images: Vec<String>,
    /// The node's admission while the pod is not admitted.
    pub(super) admission: Admission,
    /// No resize is let in.
    pub(super) no_room: bool,
    /// Whether the pod's stop lock is held; a pod without one is never asked for it.
    pub(super) locked: Option<bool>,
    /// Steps of all reconciles since the last [`Sim::take`], events left out.
    pub(super) steps: Vec<String>,
    pub(super) events: Vec<String>,
    pub(super) wake: Option<Mono>,
    pub(super) last_steps: Vec<Step>,
}

impl Sim {
    pub(super) fn new(pod: Pod) -> Self {
        let record = PodRecord::new("u", "ns", "p", PodSource::Api, &at("b", 0));
        let images = ["img:1", "img:2", "init:1"].map(String::from).to_vec();
        Self {
            pod,
            record,
            boot: "b".to_owned(),
            s: 0,
            images,
            admission: Admission::Admitted,
            no_room: false,
            locked: None,
            steps: Vec::new(),
            events: Vec::new(),
            wake: None,
            last_steps: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Now {
        at(&self.boot, self.s)
    }

    /// Reconciles once, checks that asking again adds nothing, and returns the new steps as short words.
    pub(super) fn turn(&mut self) -> Vec<String> {
        let images = self.images.clone();
        let refusal = self.no_room.then(|| Refusal { reason: "Deferred".into(), message: "no room".into() });
        let admission = self.admission.clone();
        let image = |r: &str| images.iter().any(|i| i == r).then(|| format!("sha256:{r}"));
        let world = World {
            image: &image,
            admit: &|_| admission.clone(),
            resize: &|_| refusal.clone(),
            stop_locked: &|| self.locked.expect("a pod without a stop lock is looked at"),
        };
        let plan = reconcile(&self.pod, self.record.clone(), &world, &self.now());
        let again = reconcile(&self.pod, plan.record.clone(), &world, &self.now());
        assert_eq!(plan.record, again.record, "reconcile is not idempotent");
        let rest: Vec<_> = again.steps.iter().filter(|s| !matches!(s, Step::WakeAt(_) | Step::Forget)).collect();
        assert!(rest.is_empty(), "issued twice: {rest:?}");
        self.record = plan.record;
        self.wake = None;
        let mut words = Vec::new();
        for step in &plan.steps {
            match step {
                Step::WakeAt(at) => self.wake = Some(*at),
                Step::Event(e) => self.events.push(format!("{}: {}", e.reason, e.message)),
                other => words.push(word(other)),
            }
        }
        self.last_steps = plan.steps;
        self.steps.extend(words.clone());
        words
    }

    pub(super) fn tell(&mut self, event: PodEvent) -> Vec<String> {
        self.record = apply(self.record.clone(), event, &self.now());
        self.turn()
    }

    /// Lets `s` seconds pass and reconciles.
    pub(super) fn wait(&mut self, s: u64) -> Vec<String> {
        self.s += s;
        self.turn()
    }

    pub(super) fn sandbox_ready(&mut self) -> Vec<String> {
        self.tell(PodEvent::SandboxReady { ips: vec!["10.1.2.3".parse().unwrap()] })
    }

    pub(super) fn id(&self, name: &str) -> String {
        self.record.containers[name].state.live_id().expect("no live attempt").to_owned()
    }

    pub(super) fn started(&mut self, name: &str) -> Vec<String> {
        let event =
            PodEvent::Started { container: name.into(), id: self.id(name), pid: 42, started_at: self.now().wall };
        self.tell(event)
    }

    pub(super) fn exited(&mut self, name: &str, code: i32) -> Vec<String> {
        let event = PodEvent::Exited { container: name.into(), id: self.id(name), exit: exit(code) };
        self.tell(event)
    }

    /// From nothing to all app containers running (pods without init containers).
    pub(super) fn bring_up(&mut self) {
        self.turn();
        self.sandbox_ready();
        let names: Vec<String> = self.record.containers.keys().cloned().collect();
        for name in names {
            self.started(&name);
        }
        self.steps.clear();
        self.events.clear();
    }

    pub(super) fn hook_done(&mut self, name: &str, hook: HookKind, error: Option<&str>) -> Vec<String> {
        let (container, id, error) = (name.to_owned(), self.id(name), error.map(str::to_owned));
        self.tell(PodEvent::HookDone { container, id, hook, error })
    }

    pub(super) fn resumed(&mut self, live: &[(&str, i32)]) -> Vec<String> {
        let live: BTreeMap<String, i32> = live.iter().map(|(id, pid)| ((*id).to_owned(), *pid)).collect();
        self.tell(PodEvent::Resumed { live, sandbox_exists: true })
    }

    pub(super) fn waiting(&self, name: &str) -> (String, String) {
        match &self.record.containers[name].state {
            ContainerState::Waiting { reason, message, .. } => (reason.clone(), message.clone()),
            other => panic!("{name} is not waiting: {other:?}"),
        }
    }

    pub(super) fn wake_s(&self) -> Option<u64> {
        self.wake.map(|m| m.0 / 1000 - 600)
    }
}

fn word(step: &Step) -> String {
    match step {
        Step::PrepareSandbox => "sandbox".to_owned(),
        Step::EnsureImage { reference, .. } => format!("image {reference}"),
        Step::Start { container, attempt, .. } => format!("start {container} {attempt}"),
        Step::Kill { container, signal: StopSignal::Kill, .. } => format!("kill {container}"),
        Step::Kill { container, signal: StopSignal::Stop { grace }, .. } => {
            format!("stop {container} {}", grace.as_secs())
        }
        Step::RunHook { container, hook, .. } => format!("{hook:?} {container}"),
        Step::Resize { containers } => {
            format!("resize {}", containers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" "))
        }
        Step::RemoveContainer { container, attempt, .. } => format!("remove {container} {attempt}"),
        Step::Teardown => "teardown".to_owned(),
        Step::ReportGone => "gone".to_owned(),
        Step::Forget => "forget".to_owned(),
        Step::WakeAt(_) | Step::Event(_) => unreachable!("not a word"),
    }
}
