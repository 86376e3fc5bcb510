//! `edge-runtime restart`: ends the containers of a pod by their stop signal. The daemon starts them again, with or without a
//! cloud, as after any end; the pod and its volumes stay.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use edge_runtime::cli::verb::{CONTAINER, Given, NAMESPACE, Operands, Verb};
use edge_runtime::cli::{CliError, is_free, print};
use edge_runtime::config::{Config, Overrides};
use edge_runtime::intake;
use edge_runtime::launch::runtimes::Runtimes;
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use sampan_pod::record::{ContainerKind, ContainerRecord, ContainerState, PodRecord};
use sampan_pod::restart_policy::restarts_after;
use sampan_pod::spec::{containers, termination_grace_s};
use sampan_pod::stop_signal;
use sampan_sys::program;

use crate::find;

/// Between two looks at the store.
const LOOK: Duration = Duration::from_millis(200);
/// From the end of a container to its next start, without a back-off.
const START: Duration = Duration::from_secs(60);
/// Timeout for the OCI runtime to send a signal.
const PATIENCE: Duration = Duration::from_secs(20);
const KILL: &str = "9";

pub(super) const VERB: Verb = Verb {
    name: "restart",
    about: "Restart the containers of a pod, also without a cloud",
    operands: Operands::One("POD"),
    flags: &[NAMESPACE, CONTAINER],
    run,
};

/// A container to end.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    name: String,
    id: String,
    /// `lifecycle.stopSignal`; the image or SIGTERM decides without one.
    signal: Option<i32>,
}

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    let lock = paths.run().join("daemon.lock");
    if is_free(&lock) {
        let why = "edge-runtime does not run and would not start the containers again: systemctl start edge-runtime";
        return Err(CliError::Failed(why.to_owned()));
    }
    let (record, wanted) = (find::pod(&given, &paths)?, given.one::<String>("container")?);
    let store = find::store(&paths)?;
    let stored = intake::restore(&store)?.recorded.into_iter().find(|one| one.record.uid == record.uid);
    let pod = stored.map(|one| one.pod).unwrap_or_default();
    let spec = pod.spec.clone().unwrap_or_default();
    let targets = targets(&record, &spec, wanted.as_deref()).map_err(CliError::Failed)?;
    let signaller = Signaller::new(&paths)?;
    for target in &targets {
        signaller.send(target, &signal(target, &record, &store)?.to_string())?;
    }
    let grace = Duration::from_secs(termination_grace_s(&pod).into());
    let (began, mut killed) = (Instant::now(), false);
    loop {
        let now = store.pod_record(&record.uid)?.unwrap_or_default();
        let left: Vec<&Target> = targets.iter().filter(|one| phase(&now, one) == Phase::Ends).collect();
        if targets.iter().all(|one| is_done(&phase(&now, one))) {
            return targets.iter().try_for_each(|one| print(&told(&one.name, &phase(&now, one))));
        }
        if began.elapsed() >= grace && !killed {
            // One that ends at this moment takes no signal, and the store says so a little later.
            left.iter().for_each(|one| drop(signaller.send(one, KILL)));
            killed = true;
        }
        if began.elapsed() >= grace + START {
            let missing = targets.iter().filter(|one| !is_done(&phase(&now, one))).map(|one| one.name.as_str());
            return Err(CliError::Failed(late(&missing.collect::<Vec<_>>(), &record, is_free(&lock))));
        }
        sleep(LOOK);
    }
}

/// The running containers that another start follows, whatever their exit code.
fn targets(record: &PodRecord, spec: &PodSpec, wanted: Option<&str>) -> Result<Vec<Target>, String> {
    let mut found = Vec::new();
    for (name, container) in record.containers.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name)) {
        let is_long = matches!(container.kind, ContainerKind::App | ContainerKind::Sidecar);
        let ContainerState::Running { id, .. } = &container.state else { continue };
        let Some(definition) = containers(spec).find(|one| one.name == *name).filter(|_| is_long) else { continue };
        if container.kind == ContainerKind::App && !restarts_after(spec, definition, 0) {
            let policy = definition.restart_policy.as_ref().or(spec.restart_policy.as_ref());
            let policy = policy.map_or("Never", String::as_str);
            return Err(format!("container {name} would not start again after success: its restartPolicy is {policy}"));
        }
        found.push(Target { name: name.clone(), id: id.clone(), signal: own_signal(definition) });
    }
    match (found.is_empty(), wanted) {
        (false, _) => Ok(found),
        (true, Some(name)) => Err(format!("container {name} of pod {} does not run", record.name)),
        (true, None) => Err(format!("no container of pod {} runs", record.name)),
    }
}

fn own_signal(definition: &Container) -> Option<i32> {
    stop_signal::number(definition.lifecycle.as_ref()?.stop_signal.as_deref()?)
}

/// Signal of the pod, else of the image, else SIGTERM.
fn signal(target: &Target, record: &PodRecord, store: &Store) -> Result<i32, CliError> {
    let id = record.containers.get(&target.name).map(|one| one.image_id.as_str()).unwrap_or_default();
    let image = store.image_by_reference(id)?;
    let of_image = image.and_then(|image| stop_signal::number(&image.config.stop_signal?));
    Ok(target.signal.or(of_image).unwrap_or(nix::sys::signal::Signal::SIGTERM as i32))
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// The container that was told to end still runs.
    Ends,
    /// It has ended and is about to start.
    Starts,
    /// It starts after a back-off, for this reason.
    Waits(String),
    Runs,
}

fn phase(record: &PodRecord, target: &Target) -> Phase {
    match record.containers.get(&target.name) {
        Some(ContainerRecord { state: ContainerState::Running { id, .. }, .. }) if *id != target.id => Phase::Runs,
        Some(ContainerRecord { state: ContainerState::Waiting { reason, .. }, .. }) if !reason.is_empty() => {
            Phase::Waits(reason.clone())
        }
        Some(one) if one.state.live_id() == Some(target.id.as_str()) => Phase::Ends,
        _ => Phase::Starts,
    }
}

fn is_done(phase: &Phase) -> bool {
    matches!(phase, Phase::Runs | Phase::Waits(_))
}

/// Why the wait ends without these containers.
fn late(names: &[&str], pod: &PodRecord, has_daemon_ended: bool) -> String {
    let names = names.join(", ");
    match has_daemon_ended {
        true => format!("edge-runtime has ended meanwhile; it starts these containers when it runs again: {names}"),
        false => {
            format!("containers {names} do not run again yet: edge-runtime describe {}/{}", pod.namespace, pod.name)
        }
    }
}

fn told(name: &str, phase: &Phase) -> String {
    match phase {
        Phase::Waits(reason) => format!("container {name} has ended and starts again by itself ({reason})"),
        _ => format!("container {name} restarted"),
    }
}

/// Sends signals by the OCI runtime, which knows whether a process is still the container's.
struct Signaller {
    runtimes: Runtimes,
    paths: Paths,
}

impl Signaller {
    fn new(paths: &Paths) -> Result<Self, CliError> {
        let named = Overrides { node_name: Some("node".into()), joined: None };
        let config = Config::load_lenient(&paths.config_file(), paths.root(), &named)?.0;
        Ok(Self { runtimes: Runtimes::new(&config), paths: paths.clone() })
    }

    fn send(&self, target: &Target, signal: &str) -> Result<(), CliError> {
        let runtime = self.runtimes.of_container(&target.id, &self.paths);
        let mut command = Command::new(&runtime.program);
        command.arg("--root").arg(&runtime.root).args(&runtime.args).args(["kill", &target.id, signal]);
        let failed = |why: String| {
            CliError::Failed(format!("{} cannot end container {}: {why}", runtime.program.display(), target.name))
        };
        let done = program::ask(command, 4096, PATIENCE).map_err(|error| failed(error.to_string()))?;
        if done.status.success() { Ok(()) } else { Err(failed(done.status.to_string())) }
    }
}

#[cfg(test)]
mod tests;
