//! Node conditions in the kubelet's words, with transition times kept from the last report. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What the eviction signals say.
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

/// What a user must add to the kernel command line of boards whose kernel leaves the memory controller off.
const MEMORY_CONTROLLER_HINT: &str = "the kernel has no memory cgroup controller: memory limits are not enforced; \
    add 'cgroup_enable=memory cgroup_memory=1' to the kernel command line and reboot";

/// All conditions; `last` are those of the previous report, whose transition times stay while the status does.
pub fn conditions(
    ready: &ReadyState,
    pressure: Pressure,
    memory_controller: bool,
    last: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut all = vec![
        if pressure.memory {
            condition(
                "MemoryPressure",
                "True",
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
            )
        } else {
            condition(
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            )
        },
        if pressure.disk {
            condition("DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure")
        } else {
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
        },
        if pressure.pid {
            condition("PIDPressure", "True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available")
        } else {
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available")
        },
    ];
    if memory_controller {
        all.push(condition("CgroupMemory", "True", "MemoryControllerPresent", "memory limits are enforced"));
    } else {
        all.push(condition("CgroupMemory", "False", "MemoryControllerMissing", MEMORY_CONTROLLER_HINT));
    }
    all.push(match ready {
        ReadyState::Ready => condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ReadyState::NotReady(message) => condition("Ready", "False", "KubeletNotReady", message),
    });
    for condition in &mut all {
        let same = last.iter().find(|old| old.type_ == condition.type_ && old.status == condition.status);
        condition.last_transition_time = same.and_then(|old| old.last_transition_time.clone()).or(Some(Time(now)));
        condition.last_heartbeat_time = Some(Time(now));
    }
    all
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> NodeCondition {
    NodeCondition {
        type_: type_.to_string(),
        status: status.to_string(),
        reason: Some(reason.to_string()),
        message: Some(message.to_string()),
        ..NodeCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_healthy_node_reads_like_a_kubelets() {
        let all = conditions(&ReadyState::Ready, Pressure::default(), true, &[], at(10));
        let ready = all.iter().find(|c| c.type_ == "Ready").unwrap();
        assert_eq!(ready.status, "True");
        assert_eq!(ready.reason.as_deref(), Some("KubeletReady"));
        assert!(all.iter().all(|c| c.type_ == "Ready" || c.type_ == "CgroupMemory" || c.status == "False"));
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let first = conditions(&ReadyState::Ready, Pressure::default(), true, &[], at(10));
        let pressure = Pressure { memory: true, ..Pressure::default() };
        let second = conditions(&ReadyState::Ready, pressure, true, &first, at(20));
        let time = |name: &str| {
            let condition = second.iter().find(|c| c.type_ == name).unwrap();
            condition.last_transition_time.as_ref().unwrap().0
        };
        assert_eq!(time("Ready"), at(10));
        assert_eq!(time("MemoryPressure"), at(20));
        assert!(second.iter().all(|c| c.last_heartbeat_time == Some(Time(at(20)))));
    }

    #[test]
    fn a_missing_memory_controller_names_its_cure() {
        let all = conditions(&ReadyState::Ready, Pressure::default(), false, &[], at(10));
        let condition = all.iter().find(|c| c.type_ == "CgroupMemory").unwrap();
        assert_eq!(condition.status, "False");
        assert!(condition.message.as_deref().unwrap().contains("cgroup_enable=memory cgroup_memory=1"));
    }
}
