//! `edge-runtime ps`: the node's pods and containers, read from the store while the daemon runs or not.

use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use sampan_pod::id::container_id;
use sampan_pod::record::ContainerState;

use crate::columns::columns;
use crate::find::stored_pods;

pub(super) const VERB: Verb = Verb {
    name: "ps",
    about: "List pods and containers of this node",
    operands: Operands::None,
    flags: &[Flag::switch("all", "also list ended containers").short('a')],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let (pods, all) = (stored_pods(&given.paths()?)?, given.has("all"));
    let mut rows = vec![["NAMESPACE", "POD", "CONTAINER", "STATE", "RESTARTS", "PID", "ID"].map(str::to_owned)];
    for record in &pods {
        rows.extend(record.containers.iter().filter_map(|(name, container)| {
            let (state, pid) = state(&container.state);
            let ended = matches!(container.state, ContainerState::Terminated(_));
            let id = container_id(&record.uid, name, container.attempt);
            (all || !ended).then(|| {
                let restarts = container.attempt.to_string();
                [record.namespace.clone(), record.name.clone(), name.clone(), state, restarts, pid, id[..12].to_owned()]
            })
        }));
    }
    print(columns(&rows, "  ").trim_end())
}

fn state(state: &ContainerState) -> (String, String) {
    let text = match state {
        ContainerState::Running { pid, .. } => return ("Running".into(), pid.to_string()),
        ContainerState::Stopping { pid, .. } => return ("Stopping".into(), pid.to_string()),
        ContainerState::Terminated(end) => format!("{} ({})", end.reason, end.exit_code),
        ContainerState::Waiting { reason, .. } if !reason.is_empty() => reason.clone(),
        ContainerState::Waiting { .. } | ContainerState::ImageReady { .. } => "Waiting".into(),
        ContainerState::Pulling { .. } => "Pulling".into(),
        ContainerState::Starting { .. } => "Starting".into(),
    };
    (text, "-".into())
}
