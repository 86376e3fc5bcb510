//! Whether a new pod may come while a resource runs short. Pure.

use k8s_openapi::api::core::v1::{Pod, Toleration};

use crate::node_status::Pressure;
use crate::pod::qos::{QosClass, qos_class};
use crate::pod::refusal::Refusal;
use crate::pod::spec::is_critical;

/// `status.reason` of pods that were refused or evicted because of a shortage.
pub const REASON: &str = "Evicted";

/// Under memory pressure only BestEffort pods are refused, under any other pressure all that are not critical
/// (K8s pkg/kubelet/eviction `Admit`).
pub fn admit(pod: &Pod, is_static: bool, pressure: Pressure) -> Option<Refusal> {
    let names = [("MemoryPressure", pressure.memory), ("DiskPressure", pressure.disk), ("PIDPressure", pressure.pid)];
    let names: Vec<&str> = names.into_iter().filter(|(_, under)| *under).map(|(name, _)| name).collect();
    if names.is_empty() || is_critical(pod, is_static) {
        return None;
    }
    if !pressure.disk && !pressure.pid && (qos_class(pod) != QosClass::BestEffort || tolerates_memory_pressure(pod)) {
        return None;
    }
    let message = format!("The node had condition: [{}]. ", names.join(" "));
    Some(Refusal { reason: REASON.to_owned(), message })
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|one: &Toleration| {
        let key = one.key.as_deref().unwrap_or_default();
        let effect = one.effect.as_deref().unwrap_or_default();
        let exists = one.operator.as_deref() == Some("Exists");
        (key == "node.kubernetes.io/memory-pressure" || (key.is_empty() && exists))
            && (effect.is_empty() || effect == "NoSchedule")
            && (exists || one.value.as_deref().unwrap_or_default().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MEMORY: Pressure = Pressure { memory: true, disk: false, pid: false };

    fn pod(more: Value) -> Pod {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn memory_pressure_refuses_best_effort_pods_only() {
        let best_effort = pod(json!({}));
        let refusal = admit(&best_effort, false, MEMORY).unwrap();
        assert_eq!((&*refusal.reason, &*refusal.message), ("Evicted", "The node had condition: [MemoryPressure]. "));
        assert_eq!(admit(&best_effort, false, Pressure::default()), None);
        assert_eq!(admit(&best_effort, true, MEMORY), None, "static");
        let asks = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]});
        assert_eq!(admit(&pod(asks), false, MEMORY), None);
        let key = "node.kubernetes.io/memory-pressure";
        for (toleration, admitted) in [
            (json!({"key": key, "operator": "Exists"}), true),
            (json!({"key": key, "effect": "NoSchedule"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": key, "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}), false),
        ] {
            let pod = pod(json!({"tolerations": [toleration]}));
            assert_eq!(admit(&pod, false, MEMORY).is_none(), admitted, "{toleration}");
        }
    }

    #[test]
    fn disk_pressure_refuses_all_but_critical_pods() {
        let both = Pressure { memory: true, disk: true, pid: false };
        let message = |pod: &Pod| admit(pod, false, both).map(|refusal| refusal.message);
        assert_eq!(message(&pod(json!({}))).unwrap(), "The node had condition: [MemoryPressure DiskPressure]. ");
        assert_eq!(message(&pod(json!({"priority": 2_000_000_000}))), None);
        assert!(message(&pod(json!({"priority": 1_999_999_999}))).is_some());
        assert_eq!(message(&pod(json!({"priorityClassName": "system-node-critical"}))), None);
    }
}
