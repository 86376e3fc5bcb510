//! Node conditions in the kubelet's words, with transition times kept from the last report, and the events about their
//! changes. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::board::Board;

/// Active eviction signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub memory: bool,
    pub disk: bool,
    pub pid: bool,
}

/// Whether this node can run pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyState {
    Ready,
    /// Reason for `KubeletNotReady`, e.g. a runtime that does not answer.
    NotReady(String),
}

/// Returns all conditions. `last` are those of the previous report; a condition with an unchanged status keeps its
/// transition time.
pub fn conditions(
    ready: &ReadyState,
    pressure: Pressure,
    board: &Board,
    last: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut all = of_pressure(pressure);
    all.extend(board.conditions());
    // The last one, as in a kubelet.
    all.push(match ready {
        ReadyState::Ready => condition("Ready", true, "KubeletReady", "kubelet is posting ready status"),
        ReadyState::NotReady(message) => condition("Ready", false, "KubeletNotReady", message),
    });
    for condition in &mut all {
        let same = last.iter().find(|old| old.type_ == condition.type_ && old.status == condition.status);
        condition.last_transition_time = same.and_then(|old| old.last_transition_time.clone()).or(Some(Time(now)));
        condition.last_heartbeat_time = Some(Time(now));
    }
    all
}

fn of_pressure(pressure: Pressure) -> Vec<NodeCondition> {
    vec![
        either(
            "MemoryPressure",
            pressure.memory,
            [
                ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
                ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ],
        ),
        either(
            "DiskPressure",
            pressure.disk,
            [
                ("KubeletHasDiskPressure", "kubelet has disk pressure"),
                ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ],
        ),
        either(
            "PIDPressure",
            pressure.pid,
            [
                ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
                ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ],
        ),
    ]
}

/// A condition with the words for it, and those for that it does not hold.
pub(super) fn either(type_: &str, status: bool, [yes, no]: [(&str, &str); 2]) -> NodeCondition {
    let (reason, message) = if status { yes } else { no };
    condition(type_, status, reason, message)
}

pub(super) fn condition(type_: &str, status: bool, reason: &str, message: &str) -> NodeCondition {
    NodeCondition {
        type_: type_.to_string(),
        status: if status { "True" } else { "False" }.to_string(),
        reason: Some(reason.to_string()),
        message: Some(message.to_string()),
        ..NodeCondition::default()
    }
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

/// Events about what changed from `old` to `new`: for the kubelet's conditions its own (K8s
/// pkg/kubelet/nodestatus/setters.go), for the board's their reason, when it got worse or well again.
pub fn news(old: &[NodeCondition], new: &[NodeCondition], node: &str) -> Vec<News> {
    let mut all = Vec::new();
    for one in new {
        let before = old.iter().find(|old| old.type_ == one.type_).map(|old| old.status.as_str());
        if before == Some(one.status.as_str()) {
            continue;
        }
        let holds = one.status == "True";
        let usual = match (one.type_.as_str(), holds) {
            ("MemoryPressure", true) => "NodeHasInsufficientMemory",
            ("MemoryPressure", false) => "NodeHasSufficientMemory",
            ("DiskPressure", true) => "NodeHasDiskPressure",
            ("DiskPressure", false) => "NodeHasNoDiskPressure",
            ("PIDPressure", true) => "NodeHasInsufficientPID",
            ("PIDPressure", false) => "NodeHasSufficientPID",
            ("Ready", true) => "NodeReady",
            ("Ready", false) => "NodeNotReady",
            (type_, _) => {
                let bad = holds == super::board::is_bad_when_true(type_);
                if bad || before.is_some() {
                    let (reason, message) = (one.reason.clone(), one.message.clone());
                    let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
                    all.push(News { warning: bad, reason, message });
                }
                continue;
            }
        };
        let message = format!("Node {node} status is now: {usual}");
        all.push(News { warning: false, reason: usual.to_owned(), message });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn board() -> Board {
        Board { memory_controller: true, clock_synchronized: Some(true), ..Board::default() }
    }

    #[test]
    fn a_healthy_node_reads_like_a_kubelets() {
        let all = conditions(&ReadyState::Ready, Pressure::default(), &board(), &[], at(10));
        let ready = all.last().unwrap();
        assert_eq!((&*ready.type_, &*ready.status, ready.reason.as_deref()), ("Ready", "True", Some("KubeletReady")));
        let pressure = all.iter().filter(|one| one.type_.ends_with("Pressure"));
        assert_eq!(pressure.filter(|one| one.status == "False").count(), 3);
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let first = conditions(&ReadyState::Ready, Pressure::default(), &board(), &[], at(10));
        let pressure = Pressure { memory: true, ..Pressure::default() };
        let second = conditions(&ReadyState::Ready, pressure, &board(), &first, at(20));
        let time = |name: &str| {
            let condition = second.iter().find(|c| c.type_ == name).unwrap();
            condition.last_transition_time.as_ref().unwrap().0
        };
        assert_eq!(time("Ready"), at(10));
        assert_eq!(time("MemoryPressure"), at(20));
        assert!(second.iter().all(|c| c.last_heartbeat_time == Some(Time(at(20)))));
    }

    #[test]
    fn changes_have_the_kubelets_messages() {
        let first = conditions(&ReadyState::Ready, Pressure::default(), &board(), &[], at(10));
        let reasons = |old: &[NodeCondition], new: &[NodeCondition]| {
            let all = news(old, new, "edge").into_iter();
            all.map(|one| format!("{}{}", if one.warning { "! " } else { "" }, one.reason)).collect::<Vec<_>>()
        };
        let start = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"];
        assert_eq!(reasons(&[], &first), start);
        assert_eq!(news(&[], &first, "edge")[3].message, "Node edge status is now: NodeReady");
        let hot = Board { hot: Some(true), clock_synchronized: Some(false), ..board() };
        let down = ReadyState::NotReady("node is shutting down".into());
        let second = conditions(&down, Pressure { disk: true, ..Pressure::default() }, &hot, &first, at(20));
        let worse = ["NodeHasDiskPressure", "! ClockNotSynchronized", "! TemperatureHigh", "NodeNotReady"];
        assert_eq!(reasons(&first, &second), worse);
        assert_eq!(reasons(&second, &second), [""; 0]);
        let well = ["NodeHasNoDiskPressure", "ClockSynchronized", "NodeReady"];
        assert_eq!(reasons(&second, &first), well);
    }
}
