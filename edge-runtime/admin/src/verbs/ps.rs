//! `edge-runtime ps`: the node's pods and containers, read from the store while the daemon runs or not.

use std::collections::BTreeSet;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use jiff::Timestamp;
use sampan_pod::id::container_id;
use sampan_pod::record::{ContainerKind, ContainerRecord, ContainerState, PodRecord};
use serde::Serialize;

use crate::columns::columns;
use crate::find::stored_pods;
use crate::output::{Form, JSON, OUTPUT};

pub(super) const VERB: Verb = Verb {
    name: "ps",
    about: "List pods and containers of this node",
    operands: Operands::None,
    flags: &[Flag::switch("all", "also list ended containers").short('a'), OUTPUT, JSON],
    run,
};

/// One container, as `-o json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    namespace: String,
    pod: String,
    uid: String,
    pub(super) container: String,
    kind: ContainerKind,
    /// `Waiting`, `Pulling`, `Starting`, `Running`, `Stopping` or `Terminated`.
    pub(super) state: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    pub(super) restarts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) started_at: Option<Timestamp>,
    id: String,
    image: String,
    image_id: String,
    #[serde(rename = "podIPs")]
    ips: Vec<String>,
}

fn run(given: Given) -> Result<(), CliError> {
    let (form, all) = (Form::of(&given)?, given.has("all"));
    let pods = stored_pods(&given.paths()?)?;
    let rows: Vec<Row> = pods.iter().flat_map(rows).filter(|row| all || row.state != "Terminated").collect();
    let names = || rows.iter().map(|row| format!("{}/{}", row.namespace, row.pod)).collect::<BTreeSet<_>>();
    form.print(&rows, |wide| table(&rows, wide), || names().into_iter().collect())
}

/// The containers of a pod, by name.
pub(super) fn rows(pod: &PodRecord) -> impl Iterator<Item = Row> {
    pod.containers.iter().map(|(name, container)| row(pod, name, container))
}

fn row(pod: &PodRecord, name: &str, container: &ContainerRecord) -> Row {
    let (state, started_at) = match &container.state {
        ContainerState::Running { started_at, .. } => ("Running", Some(*started_at)),
        ContainerState::Stopping { started_at, .. } => ("Stopping", *started_at),
        ContainerState::Terminated(end) => ("Terminated", end.started_at),
        ContainerState::Waiting { .. } | ContainerState::ImageReady { .. } => ("Waiting", None),
        ContainerState::Pulling { .. } => ("Pulling", None),
        ContainerState::Starting { .. } => ("Starting", None),
    };
    let (reason, exit_code) = match &container.state {
        ContainerState::Terminated(end) => (end.reason.as_str(), Some(end.exit_code)),
        other => (other.shown().0, None),
    };
    Row {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        container: name.to_owned(),
        kind: container.kind,
        state,
        reason: reason.to_owned(),
        exit_code,
        restarts: container.attempt,
        pid: container.state.process().map(|(_, pid)| pid),
        started_at,
        id: container_id(&pod.uid, name, container.attempt),
        image: container.image.clone(),
        image_id: container.image_id.clone(),
        ips: pod.ips.iter().map(ToString::to_string).collect(),
    }
}

/// State of a container in a column.
pub(super) fn state(row: &Row) -> String {
    match (row.state, row.exit_code) {
        (_, Some(code)) => format!("{} ({code})", row.reason),
        ("Waiting", None) if !row.reason.is_empty() => row.reason.clone(),
        (state, None) => state.to_owned(),
    }
}

fn table(rows: &[Row], wide: bool) -> String {
    let mut lines =
        vec![["NAMESPACE", "POD", "CONTAINER", "STATE", "RESTARTS", "PID", "ID", "IP", "IMAGE"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        [
            row.namespace.clone(),
            row.pod.clone(),
            row.container.clone(),
            state(row),
            row.restarts.to_string(),
            dash(row.pid.map(|pid| pid.to_string()).unwrap_or_default()),
            row.id[..12].to_owned(),
            dash(row.ips.join(",")),
            dash(row.image.clone()),
        ]
    }));
    if wide {
        return columns(&lines, "  ");
    }
    let narrow: Vec<[String; 7]> =
        lines.iter().map(|line| std::array::from_fn(|column| line[column].clone())).collect();
    columns(&narrow, "  ")
}

#[cfg(test)]
mod tests {
    use sampan_pod::clock::Mono;
    use sampan_pod::record::{SignalState, StopReason};

    use super::*;

    fn pod() -> PodRecord {
        let mut pod = PodRecord { uid: "u".into(), namespace: "shop".into(), name: "web".into(), ..Default::default() };
        let mut app = ContainerRecord::new(ContainerKind::App);
        app.state = ContainerState::Running {
            id: "x".into(),
            pid: 7,
            started_at: Timestamp::UNIX_EPOCH,
            since: Mono::default(),
        };
        app.image = "nginx:1".into();
        pod.containers.insert("app".into(), app);
        pod.containers.insert("side".into(), ContainerRecord::new(ContainerKind::Sidecar));
        pod
    }

    #[test]
    fn wide_table_adds_columns_and_keeps_the_others() {
        let rows: Vec<Row> = rows(&pod()).collect();
        let (narrow, wide) = (table(&rows, false), table(&rows, true));
        let cells = |text: &str| text.lines().map(|line| line.split_whitespace().count()).collect::<Vec<_>>();
        assert_eq!((cells(&narrow), cells(&wide)), (vec![7, 7, 7], vec![9, 9, 9]), "{wide}");
        assert!(wide.lines().nth(1).unwrap().ends_with("  -   nginx:1"), "{wide}");
        assert!(narrow.contains("shop       web  app        Running  0         7    "), "{narrow}");
    }

    #[test]
    fn container_without_a_process_has_no_pid() {
        let mut pod = pod();
        for (pid, shown) in [(7, Some(7)), (0, None)] {
            pod.containers.get_mut("app").unwrap().state = ContainerState::Stopping {
                id: "x".into(),
                pid,
                started_at: None,
                because: StopReason::Deleted,
                kill_at: Mono::default(),
                spare_until: None,
                signal: SignalState::Stop,
            };
            assert_eq!(rows(&pod).next().unwrap().pid, shown);
        }
    }

    #[test]
    fn fields_of_a_container_have_stable_names() {
        let value = serde_json::to_value(rows(&pod()).collect::<Vec<_>>()).unwrap();
        let mut names: Vec<&str> = value[0].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let wanted = "container id image imageId kind namespace pid pod podIPs restarts startedAt state uid";
        assert_eq!(names.join(" "), wanted);
        assert_eq!([&value[0]["state"], &value[1]["state"]], ["Running", "Waiting"]);
    }
}
