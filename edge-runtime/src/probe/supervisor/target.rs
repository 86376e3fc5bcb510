//! Which probes of a container should run, and what they find.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Probe};

use crate::pod::clock::Mono;
use crate::pod::event::ProbeKind;
use crate::probe::run::prepared;

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
    /// It is being stopped: only its readiness is of interest.
    pub ending: bool,
    pub probes: Vec<ProbeSpec>,
}

/// One probe of a container, with its earlier verdict (a restart of the daemon keeps readiness).
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeSpec {
    pub kind: ProbeKind,
    pub probe: Probe,
    pub known: Option<bool>,
}

impl ProbeTarget {
    /// The probes that `container` asks for, its port names and variables filled in.
    pub fn specs(container: &Container) -> Vec<ProbeSpec> {
        let all = [
            (ProbeKind::Startup, &container.startup_probe),
            (ProbeKind::Readiness, &container.readiness_probe),
            (ProbeKind::Liveness, &container.liveness_probe),
        ];
        let of = |(kind, probe): (ProbeKind, &Option<Probe>)| {
            Some(ProbeSpec { kind, probe: prepared(probe.as_ref()?, container), known: None })
        };
        all.into_iter().filter_map(of).collect()
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
    /// Reason and message of a Warning event: `Unhealthy` for a failure, `ProbeWarning` for a success. A repeated
    /// message is reported only every few minutes.
    pub event: Option<(&'static str, String)>,
}
