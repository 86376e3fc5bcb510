//! One task per probe of a running container, on the loop's own executor.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use async_executor::LocalExecutor;
use k8s_openapi::api::core::v1::{Container, Probe};

use crate::pod::clock::Mono;
use crate::pod::event::ProbeKind;

/// Runs a command inside a container: id, argv, timeout -> exit code and output (cut to 10 KiB).
pub type ExecProbe =
    Rc<dyn Fn(String, Vec<String>, Duration) -> Pin<Box<dyn Future<Output = Result<(i32, Vec<u8>), String>>>>>;

/// A running container attempt whose probes should run.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeTarget {
    pub pod_uid: String,
    pub container: String,
    pub id: String,
    /// Address the host reaches the pod at.
    pub address: IpAddr,
    /// When the attempt started, on boot time.
    pub started: Mono,
    pub probes: Vec<ProbeSpec>,
}

/// One probe of a container, with the verdict known from before (a restart of the daemon keeps what was ready).
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeSpec {
    pub kind: ProbeKind,
    pub probe: Probe,
    pub known: Option<bool>,
}

impl ProbeTarget {
    /// The probes that `container` asks for, with named ports resolved at run time from it.
    pub fn specs(container: &Container) -> Vec<ProbeSpec> {
        let of =
            |kind, probe: &Option<Probe>| probe.as_ref().map(|p| ProbeSpec { kind, probe: p.clone(), known: None });
        [
            of(ProbeKind::Startup, &container.startup_probe),
            of(ProbeKind::Readiness, &container.readiness_probe),
            of(ProbeKind::Liveness, &container.liveness_probe),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// News for the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeEvent {
    pub pod_uid: String,
    pub container: String,
    pub id: String,
    pub kind: ProbeKind,
    /// The verdict, when it changed: becomes `PodEvent::Probe`.
    pub verdict: Option<bool>,
    /// A failure to record as Warning event `Unhealthy`, already worded.
    pub unhealthy: Option<String>,
}

/// Owner of all probe tasks.
pub struct Supervisor {
    _private: (),
}

impl Supervisor {
    /// `tell` must not block: it queues into the loop.
    pub fn new(executor: Rc<LocalExecutor<'static>>, exec: ExecProbe, tell: Rc<dyn Fn(ProbeEvent)>) -> Self {
        let _ = (executor, exec, tell);
        Self { _private: () }
    }

    /// Makes the running tasks match `desired` for one pod: new attempts get tasks, ended ones lose theirs.
    pub fn sync(&mut self, pod_uid: &str, desired: &[ProbeTarget]) {
        let _ = (pod_uid, desired);
    }
}
