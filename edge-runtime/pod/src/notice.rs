//! Which Kubernetes events a piece of news is worth, worded as the kubelet words them.
//!
//! Decisions word their own events (`Killing`, `BackOff`, `Pulled` for an image at hand); this is for outcomes.
//! `Pulling` and the `Pulled` of a finished pull come from the code that pulls: only there duration and size are known.

use super::event::{ImageFailure, PodEvent, StartFailure};
use super::pause::PAUSE;
use super::record::{ContainerKind, ContainerState, PodRecord};
use super::step::EventDraft;

/// Reason of an eviction.
const EVICTED: &str = "Evicted";

/// Events to record for `event`. `record` is the one before the event was applied.
pub fn about(record: &PodRecord, event: &PodEvent) -> Vec<EventDraft> {
    let of = |name: &str, warning, reason: &str, message: String| {
        let kind = record.containers.get(name).map_or(ContainerKind::App, |c| c.kind);
        EventDraft::container(warning, reason, message, kind, name)
    };
    match event {
        PodEvent::Started { container, .. } if container == PAUSE => Vec::new(),
        PodEvent::Started { container, id, .. } if awaited(record, container, id) => vec![
            of(container, false, "Created", "Container created".to_owned()),
            of(container, false, "Started", "Container started".to_owned()),
        ],
        PodEvent::StartFailed { container, id, failure, message } if awaited(record, container, id) => {
            // An id in the text would make every occurrence a different event.
            let text = message;
            let message = format!("Error: {}", text.replace(id.as_str(), container));
            let created = of(container, false, "Created", "Container created".to_owned());
            let failed = of(container, true, "Failed", message);
            match failure {
                StartFailure::Run => vec![created, failed],
                StartFailure::Config | StartFailure::Create => vec![failed],
                // It is tried again and again, maybe for days.
                StartFailure::Device if shows(record, container, text) => Vec::new(),
                StartFailure::Device => vec![of(container, false, failure.reason(), text.clone())],
            }
        }
        PodEvent::ImageFailed { container, failure, message } => {
            let c = record.containers.get(container);
            let volume = c.and_then(|c| match &c.state {
                ContainerState::Pulling { volume, .. } => volume.as_ref(),
                _ => None,
            });
            let own = || c.map(|c| c.image.as_str()).unwrap_or_default();
            let image = volume.map_or_else(own, |image| &image.reference);
            // The image of a volume is the pod's affair, until it holds up a container.
            let about = |reason: &str, message: String| match volume {
                Some(_) => EventDraft::pod(true, reason, message),
                None => of(container, true, reason, message),
            };
            let (first, error) = match failure {
                ImageFailure::Pull => {
                    (about("Failed", format!("Failed to pull image {image:?}: {message}")), "ErrImagePull")
                }
                ImageFailure::NeverPull => {
                    let text = format!("Container image {image:?} is not present with pull policy of Never");
                    (about("ErrImageNeverPull", text), "ErrImageNeverPull")
                }
                ImageFailure::InvalidName => {
                    let text = format!("Failed to apply default image tag {image:?}: {message}");
                    (about("InspectFailed", text), "InvalidImageName")
                }
                ImageFailure::Inspect => return vec![about("InspectFailed", message.clone())],
            };
            vec![first, of(container, true, "Failed", format!("Error: {error}"))]
        }
        PodEvent::SandboxFailed { reason, message } => {
            let message = match reason.as_str() {
                "FailedCreatePodSandBox" => format!("Failed to create pod sandbox: {message}"),
                _ => message.clone(),
            };
            vec![EventDraft::pod(true, reason, message)]
        }
        PodEvent::TeardownFailed { message } => {
            vec![EventDraft::pod(true, "FailedKillPod", format!("error killing pod: {message}"))]
        }
        // The node reports a shutdown itself, and each container has `Killing`.
        PodEvent::Evict { reason, message, .. } if reason == EVICTED && record.terminal.is_none() => {
            vec![EventDraft::pod(true, reason, message.clone())]
        }
        _ => Vec::new(),
    }
}

/// Whether the result of this attempt's start was still unknown: the monitor repeats it to each new daemon.
fn awaited(record: &PodRecord, container: &str, id: &str) -> bool {
    match record.containers.get(container).map(|c| &c.state) {
        Some(ContainerState::Starting { id: own, .. } | ContainerState::Stopping { id: own, started_at: None, .. }) => {
            own == id
        }
        _ => false,
    }
}

/// Whether the container shows this message already.
fn shows(record: &PodRecord, container: &str, message: &str) -> bool {
    record.containers.get(container).is_some_and(|c| c.state.shown() == (StartFailure::Device.reason(), message))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Sim, one};
    use super::*;

    fn brief(events: &[EventDraft]) -> Vec<String> {
        events.iter().map(|e| format!("{} {} {}", e.field_path, e.reason, e.message)).collect()
    }

    #[test]
    fn outcomes_are_worded_as_usual() {
        let mut sim = Sim::new(one("Always"));
        sim.turn();
        let event = PodEvent::SandboxFailed { reason: "FailedCreatePodSandBox".into(), message: "no".into() };
        assert_eq!(brief(&about(&sim.record, &event)), [" FailedCreatePodSandBox Failed to create pod sandbox: no"]);
        sim.sandbox_ready();
        let id = sim.id("c");
        let (container, failure) = ("c".to_owned(), StartFailure::Config);
        let event = PodEvent::StartFailed { container, id: id.clone(), failure, message: format!("creating {id}: no") };
        assert_eq!(brief(&about(&sim.record, &event)), ["spec.containers{c} Failed Error: creating c: no"]);
        let event = PodEvent::Started { container: "c".into(), id, pid: 1, started_at: sim.now().wall };
        assert_eq!(
            brief(&about(&sim.record, &event)),
            ["spec.containers{c} Created Container created", "spec.containers{c} Started Container started"]
        );
        // Repeated to a daemon that has it from an earlier one.
        sim.tell(event.clone());
        assert!(about(&sim.record, &event).is_empty());
        let failure = ImageFailure::Pull;
        let event = PodEvent::ImageFailed { container: "c".into(), failure, message: "no route".into() };
        assert_eq!(
            brief(&about(&sim.record, &event)),
            [
                "spec.containers{c} Failed Failed to pull image \"img:1\": no route",
                "spec.containers{c} Failed Error: ErrImagePull"
            ]
        );
    }

    #[test]
    fn wait_for_a_device_is_told_once() {
        let mut sim = Sim::new(one("Always"));
        sim.turn();
        sim.sandbox_ready();
        let failed = |id: String, message: &str| {
            let (failure, message) = (StartFailure::Device, message.to_owned());
            PodEvent::StartFailed { container: "c".to_owned(), id, failure, message }
        };
        let event = failed(sim.id("c"), "no healthy devices present");
        assert_eq!(
            brief(&about(&sim.record, &event)),
            ["spec.containers{c} WaitingForDevice no healthy devices present"]
        );
        assert!(sim.tell(event).is_empty());
        assert_eq!(sim.waiting("c"), ("WaitingForDevice".into(), "no healthy devices present".into()));
        // A plugin has news.
        sim.tell(PodEvent::DependencyChanged);
        let again = failed(sim.id("c"), "no healthy devices present");
        assert!(about(&sim.record, &again).is_empty());
        assert_eq!(
            brief(&about(&sim.record, &failed(sim.id("c"), "other"))),
            ["spec.containers{c} WaitingForDevice other"]
        );
    }
}
