//! `edge-runtime describe POD`: a pod, its containers and its events as text, as far as this node knows them.

use std::fmt::Write;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, NAMESPACE, Operands, Verb};
use sampan_pod::record::{PodRecord, PodSource, SandboxState, Terminated};
use serde_json::{Value, json};

use super::ps;
use crate::columns::one_line;
use crate::output::{Form, JSON, OUTPUT};
use crate::progress::pulls;
use crate::progress::show::Seen;
use crate::{events, find, holds};

pub(super) const VERB: Verb = Verb {
    name: "describe",
    about: "Show a pod, its containers and its events",
    operands: Operands::One("POD"),
    flags: &[NAMESPACE, OUTPUT, JSON],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let (paths, form) = (given.paths()?, Form::of(&given)?);
    let pod = find::pod(&given, &paths)?;
    let events = events::of_pod(&paths, &pod.namespace, &pod.name);
    let mut pulls = pulls::all(&paths);
    pulls.retain(|(what, _)| pod.containers.values().any(|container| pulls::is_for(container, what)));
    let containers: Vec<_> = ps::rows(&pod).collect();
    let value = json!({"pod": pod, "containers": containers, "events": events, "pulls": pulls::values(&pulls)});
    form.print(&value, |_| text(&pod, &events, &pulls), || vec![format!("{}/{}", pod.namespace, pod.name)])
}

/// Phase as the node would report it, in words of kubectl.
fn phase(pod: &PodRecord) -> &'static str {
    let is_any = |state: &str| ps::rows(pod).any(|row| row.state == state);
    match (&pod.terminal, &pod.deletion) {
        (Some(end), _) if end.succeeded => "Succeeded",
        (Some(_), _) => "Failed",
        (None, Some(_)) => "Terminating",
        (None, None) if is_any("Running") => "Running",
        (None, None) => "Pending",
    }
}

/// Reason and message of what keeps the pod from running, or from its end.
fn trouble(pod: &PodRecord) -> Option<(&str, String)> {
    let (reason, message) = match (&pod.terminal, &pod.sandbox.state) {
        (Some(end), _) => (end.reason.as_str(), &end.message),
        (None, SandboxState::Failed { reason, message, .. }) => (reason.as_str(), message),
        _ => return holds::of(pod),
    };
    (!reason.is_empty() || !message.is_empty()).then(|| (reason, message.clone()))
}

fn text(pod: &PodRecord, events: &[Value], pulls: &[(String, Seen)]) -> String {
    let mut out = String::new();
    let ips = pod.ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let started_at = pod.started_at.to_string();
    let source = match pod.source {
        PodSource::Api => "API",
        PodSource::Static => "manifest on this node",
    };
    for (name, value) in [
        ("Name", pod.name.as_str()),
        ("Namespace", &pod.namespace),
        ("UID", &pod.uid),
        ("Source", source),
        ("Start Time", &started_at),
        ("Status", phase(pod)),
        ("IP", &ips),
    ] {
        if !value.is_empty() {
            let _ = writeln!(out, "{:<13}{value}", name.to_owned() + ":");
        }
    }
    if let Some((reason, message)) = trouble(pod) {
        let _ = writeln!(out, "Reason:      {reason}: {}", one_line(&message));
    }
    out.push_str("Containers:\n");
    for (row, container) in ps::rows(pod).zip(pod.containers.values()) {
        let _ = writeln!(
            out,
            "  {}:\n    Kind:      {:?}\n    Image:     {}",
            row.container,
            container.kind,
            one_line(&container.image)
        );
        let since = row.started_at.map(|at| format!(" since {at}")).unwrap_or_default();
        let _ = writeln!(out, "    State:     {}{since}", ps::state(&row));
        let message = container.state.shown().1;
        if !message.is_empty() {
            let _ = writeln!(out, "    Message:   {}", one_line(message));
        }
        for pull in pulls.iter().filter(|(what, _)| pulls::is_for(container, what)) {
            let _ = writeln!(out, "    Progress:  {}", pulls::line(pull));
        }
        if let Some(last) = &container.last {
            let _ = writeln!(out, "    Last end:  {}", ended(last));
        }
        let _ = writeln!(
            out,
            "    Ready:     {}",
            container.probes.readiness.map_or("-", |is| if is { "True" } else { "False" })
        );
        let _ = writeln!(out, "    Restarts:  {}", row.restarts);
    }
    out.push_str("Conditions:\n");
    for (name, mark) in &pod.conditions {
        let _ = writeln!(out, "  {name:<28} {:<8} since {}", mark.status, mark.since);
    }
    out.push_str(if events.is_empty() { "Events: none of this boot\n" } else { "Events:\n" });
    for event in events {
        let _ = writeln!(out, "  {}", events::line(event));
    }
    out
}

fn ended(end: &Terminated) -> String {
    let signal = end.signal.map(|signal| format!(", signal {signal}")).unwrap_or_default();
    format!("{} (exit code {}{signal}) at {}", end.reason, end.exit_code, end.finished_at)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use sampan_pod::clock::Mono;
    use sampan_pod::record::{ContainerKind, ContainerRecord, ContainerState, StartHold, Terminal};

    use super::*;

    fn pod() -> PodRecord {
        let mut pod = PodRecord { namespace: "shop".into(), name: "web".into(), ..Default::default() };
        let mut app = ContainerRecord::new(ContainerKind::App);
        // The API takes any text.
        app.image = "a\u{1b}[2J:1".into();
        app.state = ContainerState::Waiting {
            reason: "ImagePullBackOff".into(),
            message: "registry\n\u{1b}[2J is away".into(),
            retry_at: None,
        };
        pod.containers.insert("app".into(), app);
        pod
    }

    #[test]
    fn waiting_container_shows_reason_and_message_in_one_line() {
        let shown = text(&pod(), &[], &[]);
        assert!(shown.starts_with("Name:        web\nNamespace:   shop\n"), "{shown}");
        assert!(shown.contains("    State:     ImagePullBackOff\n    Message:   registry  [2J is away\n"), "{shown}");
        assert!(shown.contains("\n    Image:     a [2J:1\n"), "{shown}");
        assert!(shown.contains("\nStatus:      Pending\n") && shown.contains("\nEvents: none"), "{shown}");
    }

    #[test]
    fn pull_of_an_image_shows_its_progress() {
        let mut pod = pod();
        let app = pod.containers.get_mut("app").unwrap();
        app.image = "web:1".into();
        let of = |name: &str| (name.to_owned(), Seen { layers: vec![(10, true), (30, false)], partial: 10 });
        let pulls = [of("docker.io/library/web:1"), of("docker.io/library/web:2"), of("web.tar")];
        assert!(!text(&pod, &[], &pulls).contains("Progress:"), "it waits");
        let app = pod.containers.get_mut("app").unwrap();
        app.state = ContainerState::Pulling { reason: String::new(), message: String::new(), volume: None };
        let shown = text(&pod, &[], &pulls);
        let line = "    State:     Pulling\n    Progress:  docker.io/library/web:1: layer 2 of 2, 50 %, 20 B of 40 B\n";
        assert!(shown.contains(line) && shown.matches("Progress:").count() == 1, "{shown}");
    }

    #[test]
    fn held_pod_says_how_to_start_it() {
        let held = PodRecord { start_hold: StartHold::Held, ..pod() };
        let shown = text(&held, &[], &[]);
        assert!(shown.contains("\nReason:      HeldUpgrade: ") && shown.contains("release shop/web\n"), "{shown}");
    }

    #[test]
    fn phase_follows_containers_and_end_of_the_pod() {
        let mut pod = pod();
        let app = pod.containers.get_mut("app").unwrap();
        app.state = ContainerState::Running {
            id: "x".into(),
            pid: 7,
            started_at: Timestamp::UNIX_EPOCH,
            since: Mono::default(),
        };
        assert_eq!((phase(&pod), trouble(&pod)), ("Running", None));
        pod.terminal = Some(Terminal { succeeded: false, reason: "Evicted".into(), message: "no memory".into() });
        assert_eq!((phase(&pod), trouble(&pod)), ("Failed", Some(("Evicted", "no memory".to_owned()))));
        assert!(text(&pod, &[], &[]).contains("\nReason:      Evicted: no memory\n"));
    }
}
