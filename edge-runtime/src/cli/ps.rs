//! `edge-runtime ps`: the node's pods and containers, read from the store while the daemon runs or not.

use std::io::Write;
use std::process::ExitCode;

use super::CliError;
use super::verb::{Flag, Given, Operands, Verb};
use crate::paths::Paths;
use crate::pod::record::{ContainerState, PodRecord};
use crate::store::Store;

pub(super) const VERB: Verb = Verb {
    name: "ps",
    about: "pods and containers of this node",
    operands: Operands::None,
    flags: &[Flag::switch("all", "those that have ended, too").short('a')],
    run,
};

fn run(given: Given) -> Result<ExitCode, CliError> {
    let (pods, all) = (stored_pods(&given.paths()?)?, given.has("all"));
    let mut rows = vec![["NAMESPACE", "POD", "CONTAINER", "STATE", "RESTARTS", "PID", "ID"].map(str::to_owned)];
    for record in &pods {
        rows.extend(record.containers.iter().filter_map(|(name, container)| {
            let (state, pid) = state(&container.state);
            let ended = matches!(container.state, ContainerState::Terminated(_));
            let id = crate::pod::id::container_id(&record.uid, name, container.attempt);
            (all || !ended).then(|| {
                let restarts = container.attempt.to_string();
                [record.namespace.clone(), record.name.clone(), name.clone(), state, restarts, pid, id[..12].to_owned()]
            })
        }));
    }
    print_columns(&rows)
}

/// The records of all pods, by namespace and name.
pub(super) fn stored_pods(paths: &Paths) -> Result<Vec<PodRecord>, CliError> {
    if !paths.store().exists() {
        return Err(CliError::Failed(format!("{} does not exist: no node has run here", paths.store().display())));
    }
    let store = Store::open_shared(&paths.store()).map_err(CliError::failed)?;
    let (pods, bad) = store.pods().map_err(CliError::failed)?;
    for (_, error) in bad {
        writeln!(std::io::stderr(), "{error}").map_err(CliError::failed)?;
    }
    let mut records: Vec<PodRecord> = pods.into_iter().map(|pod| pod.record).collect();
    records.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(records)
}

fn state(state: &ContainerState) -> (String, String) {
    match state {
        ContainerState::Waiting { reason, .. } if reason.is_empty() => ("Waiting".into(), "-".into()),
        ContainerState::Waiting { reason, .. } => (reason.clone(), "-".into()),
        ContainerState::ImageReady { .. } => ("Waiting".into(), "-".into()),
        ContainerState::Pulling { .. } => ("Pulling".into(), "-".into()),
        ContainerState::Starting { .. } => ("Starting".into(), "-".into()),
        ContainerState::Running { pid, .. } => ("Running".into(), pid.to_string()),
        ContainerState::Stopping { pid, .. } => ("Stopping".into(), pid.to_string()),
        ContainerState::Terminated(end) => (format!("{} ({})", end.reason, end.exit_code), "-".into()),
    }
}

/// Prints rows with their columns aligned.
pub(super) fn print_columns<const N: usize>(rows: &[[String; N]]) -> Result<ExitCode, CliError> {
    let widths: [usize; N] = std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut out = std::io::stdout().lock();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end()).map_err(CliError::failed)?;
    }
    Ok(ExitCode::SUCCESS)
}
