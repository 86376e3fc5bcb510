//! Resources that changed while containers run: new cgroup values in place, or a restart where the container's
//! `resizePolicy` wants one.
//!
//! As the kubelet does it (K8s pkg/kubelet/allocation, `kuberuntime_manager.computePodResizeAction`): first room for
//! the whole pod, then all its containers in one step.

use super::super::spec::containers;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

use super::super::record::{ContainerRecord, ContainerState, Resize, Resources, StopReason};
use super::super::step::{EventDraft, Step};
use super::Turn;
use super::resize_text::text;
use super::stop::Order;

/// Interval of a retry: the end of another pod's containers may make room, but causes no event (a kubelet's own
/// interval is longer). When a pod goes, or a resize shrinks one, this pod gets its turn at once.
const PENDING_RETRY: Duration = Duration::from_secs(60);

impl Turn<'_> {
    /// Compares the values of running containers with the spec.
    pub(super) fn resize(&mut self) {
        let changed: Vec<&Container> = containers(self.spec).filter(|c| self.has_changed(c)).collect();
        if changed.is_empty() {
            self.record.resize_pending = None;
            self.complete_resize();
            return;
        }
        if let Some(pending) = (self.world.resize)(self.pod) {
            if self.record.resize_pending.as_ref() != Some(&pending) {
                let reason = if pending.reason == "Infeasible" { "ResizeInfeasible" } else { "ResizeDeferred" };
                let message = self.about_resize(&pending.reason, self.generation(), &pending.message);
                self.steps.push(Step::Event(EventDraft::pod(true, reason, message)));
                self.record.resize_pending = Some(pending);
            }
            let again = self.now.mono.after(PENDING_RETRY);
            return self.wake_at(again);
        }
        self.record.resize_pending = None;
        let generation = self.generation();
        if self.record.resizing.replace(generation) != Some(generation) {
            let message = self.about_resize("started", generation, "");
            self.steps.push(Step::Event(EventDraft::pod(false, "ResizeStarted", message)));
        }
        let mut in_place = Vec::new();
        for container in changed {
            let name = &container.name;
            let Some(c) = self.record.containers.get_mut(name) else { continue };
            let id = match &c.state {
                ContainerState::Running { id, .. } => id,
                ContainerState::Starting { .. } | ContainerState::Stopping { .. } => continue,
                // Without a cgroup nothing changes: the next start uses the present values.
                _ => {
                    c.resources = Some(Resources::of(container));
                    continue;
                }
            };
            if c.resources.as_ref().is_some_and(|has| wants_restart(container, has)) {
                if self.is_stop_held() {
                    continue;
                }
                let grace = self.grace_for(container, StopReason::SpecChanged);
                let message = format!("Container {name} resize requires restart");
                self.stop(name, StopReason::SpecChanged, self.now.mono.after(grace), message, Order::Now);
                continue;
            }
            let (message, failures) = match std::mem::take(&mut c.resize) {
                under_way @ Resize::UnderWay { .. } => {
                    c.resize = under_way;
                    continue;
                }
                Resize::Failed { message, retry_at, failures } if self.now.mono < retry_at => {
                    c.resize = Resize::Failed { message, retry_at, failures };
                    self.wake_at(retry_at);
                    continue;
                }
                Resize::Failed { message, failures, .. } => (message, failures),
                Resize::Idle => (String::new(), 0),
            };
            in_place.push((name.clone(), id.clone()));
            c.resize = Resize::UnderWay { message, failures };
        }
        if !in_place.is_empty() {
            self.steps.push(Step::Resize { containers: in_place });
        }
        if !containers(self.spec).any(|container| self.has_changed(container)) {
            self.complete_resize();
        }
    }

    /// Tells the end of a resize, when no container is on its way down for it.
    fn complete_resize(&mut self) {
        let stopping = |c: &ContainerRecord| matches!(c.state, ContainerState::Stopping { .. });
        if self.record.containers.values().any(stopping) {
            return;
        }
        if let Some(generation) = self.record.resizing.take() {
            let message = self.about_resize("completed", generation, "");
            self.steps.push(Step::Event(EventDraft::pod(false, "ResizeCompleted", message)));
        }
    }

    fn generation(&self) -> i64 {
        self.pod.metadata.generation.unwrap_or_default()
    }

    fn about_resize(&self, what: &str, generation: i64, error: &str) -> String {
        text(self.spec, what, generation, error)
    }

    fn has_changed(&self, container: &Container) -> bool {
        let Some(c) = self.record.containers.get(&container.name) else { return false };
        // Never started, or a record of an older build without the cgroup's values: counts as up to date.
        let Some(has) = &c.resources else { return false };
        let wants = Resources::of(container);
        ["cpu", "memory"].into_iter().any(|resource| has.differs(&wants, resource))
    }
}

fn wants_restart(container: &Container, has: &Resources) -> bool {
    let wants = Resources::of(container);
    container
        .resize_policy
        .iter()
        .flatten()
        .any(|policy| policy.restart_policy == "RestartContainer" && has.differs(&wants, &policy.resource_name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::event::PodEvent;
    use super::super::super::record::{Resize, Resources};
    use super::super::super::testing::{Sim, pod};

    fn spec(cpu: &str, memory: &str, memory_policy: &str) -> Value {
        json!({"containers": [{"name": "a", "image": "img:1",
            "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"},
                {"resourceName": "memory", "restartPolicy": memory_policy}]}]})
    }

    fn running() -> Sim {
        let mut sim = Sim::new(pod(spec("100m", "10Mi", "RestartContainer")));
        sim.bring_up();
        sim
    }

    #[test]
    fn cpu_changes_in_place_and_once() {
        let mut sim = running();
        sim.pod = pod(spec("200m", "10Mi", "RestartContainer"));
        let steps = sim.turn();
        assert_eq!(steps, ["resize a"]);
        let c = &sim.record.containers["a"];
        assert!(matches!(c.resize, Resize::UnderWay { .. }) && c.resources.as_ref().unwrap().limits["cpu"] == "100m");
        let (id, resources) =
            (c.state.live_id().unwrap().to_owned(), Resources::of(&sim.pod.spec.as_ref().unwrap().containers[0]));
        let done = PodEvent::Resized { container: "a".into(), id, resources, error: None };
        assert!(sim.tell(done).is_empty());
        let told: Vec<&str> = sim.events.iter().filter_map(|event| event.split_once(": {").map(|e| e.0)).collect();
        assert_eq!(told, ["ResizeStarted: Pod resize started", "ResizeCompleted: Pod resize completed"]);
        assert!(
            sim.events[0].contains("\"name\":\"a\"") && sim.events[0].contains("\"generation\":0"),
            "{:?}",
            sim.events
        );
        let c = &sim.record.containers["a"];
        assert!(c.resize.is_idle() && c.resources.as_ref().unwrap().limits["cpu"] == "200m");
    }

    #[test]
    fn restarted_container_keeps_its_allocation() {
        let mut sim = running();
        sim.no_room = true;
        sim.pod = pod(spec("200m", "10Mi", "RestartContainer"));
        assert!(sim.turn().is_empty());
        assert!(sim.record.resize_pending.is_some());
        let has = |sim: &Sim| sim.record.containers["a"].resources.as_ref().unwrap().limits["cpu"].clone();
        sim.exited("a", 1);
        sim.started("a");
        assert_eq!(has(&sim), "100m");
        assert!(sim.record.resize_pending.is_some(), "and goes on waiting");
        // Room comes while it waits to be started again.
        sim.exited("a", 1);
        sim.no_room = false;
        sim.turn();
        assert_eq!(has(&sim), "200m");
        assert!(sim.record.resize_pending.is_none());
        assert!(sim.events.iter().any(|event| event.starts_with("ResizeCompleted")), "{:?}", sim.events);
    }

    #[test]
    fn failed_resize_backs_off_and_is_reported_once() {
        let mut sim = running();
        sim.pod = pod(spec("200m", "10Mi", "RestartContainer"));
        sim.turn();
        let fails = |sim: &mut Sim| {
            let error = Some("in use".to_owned());
            sim.tell(PodEvent::Resized {
                container: "a".into(),
                id: sim.id("a"),
                resources: Resources::default(),
                error,
            })
        };
        assert!(fails(&mut sim).is_empty());
        let told = |sim: &Sim| match &sim.record.containers["a"].resize {
            Resize::UnderWay { message, .. } | Resize::Failed { message, .. } => message.clone(),
            Resize::Idle => String::new(),
        };
        for pause in [10, 20, 40, 80, 160, 300, 300] {
            assert!(sim.wait(pause - 1).is_empty(), "{pause}");
            assert_eq!(sim.wait(1), ["resize a"], "{pause}");
            assert_eq!(told(&sim), "in use");
            fails(&mut sim);
        }
    }

    #[test]
    fn equal_quantity_in_another_form_is_not_a_change() {
        let mut sim = running();
        sim.pod = pod(spec("0.1", "10240Ki", "RestartContainer"));
        assert!(sim.turn().is_empty());
    }

    #[test]
    fn a_policy_may_want_a_restart() {
        let mut sim = running();
        sim.pod = pod(spec("100m", "20Mi", "RestartContainer"));
        let steps = sim.turn();
        assert!(steps.iter().any(|step| step.starts_with("stop a") || step.starts_with("kill a")), "{steps:?}");
    }
}
