//! Containers that wait for a plugin before they start: each of their resources is allocated once, and plugins that want to
//! know of starts are told. Then the start goes on as that of any other container.

use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;
use sampan_plugins_control::ToHelper;
use serde_json::Value;

use super::Plugins;
use super::order::{Choice, Order, Start};
use crate::counters;
use crate::launch::devices::kept::Allocation;
use crate::launch::devices::plugins::{Next, is_early};
use crate::launch::devices::shortage;
use crate::node::Node;
use crate::node::containers::ContainerRef;
use crate::pod::event::{PodEvent, StartFailure};
use crate::pod::record::{ContainerKind, ContainerState, NodeEnd, PodRecord};
use crate::pod::spec::{containers_of, name, namespace, termination_grace_s};
use crate::pod::step::EventDraft;
use crate::store::StoreError;

/// How far a start is.
enum Progress {
    /// An answer is awaited, or room for an order.
    Waits,
    Ready,
    Failed(StartFailure, String),
    /// The pod was refused by a plugin.
    Refused(String),
    /// Nobody waits for it any more.
    Over,
}

impl Node {
    /// Whether the container waits for a plugin before it starts; then it starts later, or fails.
    pub(in crate::node) fn waits_for_devices(
        &mut self,
        pod: &Pod,
        of: &ContainerRef,
        id: &str,
        image_id: &str,
    ) -> bool {
        let container = containers_of(pod).find(|container| container.name == of.container);
        if container.is_none_or(|container| self.launch.containers.plugins.wanted(container).is_empty()) {
            return false;
        }
        let (of, id, image_id) = (of.clone(), id.to_owned(), image_id.to_owned());
        self.plugins.cancel(&|start| start.of.uid == of.uid && start.of.container == of.container);
        self.plugins.starts.push(Start { of, id, image_id, order: None, prepared: Vec::new() });
        self.plugins.changed = true;
        true
    }

    /// Lets starts go on, and answers clients.
    pub(in crate::node) fn plugins_step(&mut self) -> Result<(), StoreError> {
        self.plugins.tell_answers();
        if !std::mem::take(&mut self.plugins.changed) {
            return Ok(());
        }
        let starts = std::mem::take(&mut self.plugins.starts);
        let mut waiting = Vec::new();
        for mut start in starts {
            match self.advance(&mut start) {
                Progress::Waits => waiting.push(start),
                Progress::Ready => self.start_with_devices(start),
                Progress::Failed(failure, message) => self.device_failed(&start, failure, message),
                Progress::Refused(why) => self.refused(&start, &why)?,
                Progress::Over => {}
            }
        }
        self.plugins.starts = waiting;
        Ok(())
    }

    fn advance(&mut self, start: &mut Start) -> Progress {
        let Some(entry) = self.cx.pods.get(&start.of.uid) else { return Progress::Over };
        let record = entry.record.containers.get(&start.of.container);
        let awaited = record
            .is_some_and(|record| matches!(&record.state, ContainerState::Starting { id, .. } if *id == start.id));
        if !awaited {
            return Progress::Over;
        }
        if start.order.is_some() {
            return Progress::Waits;
        }
        let pod = Rc::clone(&entry.pod);
        let container = containers_of(&pod).find(|container| container.name == start.of.container);
        let Some(container) = container else { return Progress::Over };
        let now = self.cx.mono();
        for (resource, count) in self.launch.containers.plugins.wanted(container) {
            let next = {
                let others = self.cx.pods.admitted("");
                let which = (&*pod, container.name.as_str());
                self.launch.containers.plugins.next(which, (&resource, count), &others, now)
            };
            match next {
                Next::Ready => {}
                Next::Without => {
                    let none = Allocation { resource, ..start.nothing() };
                    self.launch.containers.plugins.kept.put(none);
                }
                Next::PreStart(_) if start.prepared.contains(&resource) => {}
                Next::PreStart(ids) => return self.order_pre_start(start, resource, ids),
                Next::Allocate { had, free } => {
                    let choice = Choice { had, free, count };
                    return self.order_allocation(start, &pod, resource, choice);
                }
                Next::Wait(why) => return Progress::Failed(StartFailure::Device, why.text(&resource)),
                Next::Never(why) => return Progress::Refused(why),
            }
        }
        Progress::Ready
    }

    fn order_pre_start(&mut self, start: &mut Start, resource: String, ids: Vec<String>) -> Progress {
        if self.plugins.has_room() {
            let id = self.plugins.next_id();
            self.plugins.tell(&ToHelper::PreStart { id, resource: resource.clone(), ids });
            start.order = Some(Order { id, resource, choice: None });
        }
        Progress::Waits
    }

    /// One order for a resource at a time: the next one knows what this one has taken.
    fn order_allocation(&mut self, start: &mut Start, pod: &Pod, resource: String, choice: Choice) -> Progress {
        if self.plugins.ordered.iter().any(|(_, other)| *other == resource) || !self.plugins.has_room() {
            return Progress::Waits;
        }
        let id = self.plugins.next_id();
        self.plugins.tell(&ToHelper::Allocate {
            id,
            resource: resource.clone(),
            pod: format!("{}/{}", namespace(pod), name(pod)),
            container: start.of.container.clone(),
            had: choice.had.clone(),
            free: choice.free.clone(),
            count: u32::try_from(choice.count).unwrap_or(u32::MAX),
        });
        self.plugins.ordered.push((id, resource.clone()));
        start.order = Some(Order { id, resource, choice: Some(choice) });
        Progress::Waits
    }

    fn start_with_devices(&mut self, start: Start) {
        if let Err(error) = self.launch.containers.save_allocations() {
            return self.device_failed(&start, StartFailure::Create, error.to_string());
        }
        let Some(pod) = self.cx.pods.get(&start.of.uid).map(|entry| Rc::clone(&entry.pod)) else { return };
        let Start { of, id, image_id, .. } = start;
        let uid = of.uid.clone();
        if let Some(answer) = self.start_prepared(&pod, of, &id, &image_id) {
            self.cx.tell(&uid, answer);
        }
    }

    fn device_failed(&mut self, start: &Start, failure: StartFailure, message: String) {
        let (container, id) = (start.of.container.clone(), start.id.clone());
        self.cx.tell(&start.of.uid, PodEvent::StartFailed { container, id, failure, message });
    }

    /// A plugin has refused devices. As in Kubernetes the pod fails, unless it has run here before, or plugins may be about to
    /// be ready after a boot: then the container tries again.
    fn refused(&mut self, start: &Start, why: &str) -> Result<(), StoreError> {
        counters::FAILED_ALLOCATIONS.one();
        let refusal = shortage::refusal(why);
        self.device_failed(start, StartFailure::Create, refusal.message.clone());
        let uid = &start.of.uid;
        let Some(entry) = self.cx.pods.get(uid) else { return Ok(()) };
        if is_early(self.cx.mono()) || has_run(&entry.record) {
            return Ok(());
        }
        let end = NodeEnd { grace_s: termination_grace_s(&entry.pod), disruption: false };
        self.cx.pod_event(uid, &EventDraft::pod(true, &refusal.reason, refusal.message.clone()))?;
        let message = format!("Pod was rejected: {}", refusal.message);
        self.cx.tell(uid, PodEvent::Evict { reason: refusal.reason, message, end });
        Ok(())
    }

    /// A plugin has allocated devices. An answer that nobody waits for changes nothing.
    pub(super) fn allocated(
        &mut self,
        order: u64,
        ids: Vec<String>,
        pre_start: bool,
        edits: Value,
    ) -> Result<(), StoreError> {
        let Some((at, answered)) = self.plugins.answered(order) else { return Ok(()) };
        if !answered.choice.is_some_and(|choice| choice.allows(&ids)) {
            let start = self.plugins.starts.swap_remove(at);
            return self.refused(&start, "edge-plugins has answered with devices that were not offered");
        }
        counters::ALLOCATIONS.one();
        if let Some(start) = self.plugins.starts.get(at) {
            let resource = answered.resource;
            self.launch.containers.plugins.kept.put(Allocation { resource, ids, pre_start, edits, ..start.nothing() });
        }
        Ok(())
    }

    /// A plugin knows of a start.
    pub(super) fn prepared(&mut self, order: u64) {
        let Some((at, answered)) = self.plugins.answered(order) else { return };
        if let Some(start) = self.plugins.starts.get_mut(at) {
            start.prepared.push(answered.resource);
        }
    }

    /// An order has failed. `is_gone`: its plugin is away.
    pub(super) fn order_failed(&mut self, order: u64, why: &str, is_gone: bool) -> Result<(), StoreError> {
        let Some((at, answered)) = self.plugins.answered(order) else { return Ok(()) };
        let start = self.plugins.starts.swap_remove(at);
        match answered.choice {
            _ if is_gone => self.device_failed(&start, StartFailure::Device, why.to_owned()),
            Some(_) => return self.refused(&start, why),
            // The kubelet's words (K8s manager.go, `callPreStartContainerIfNeeded`).
            None => {
                let message = format!("device plugin PreStartContainer rpc failed with err: {why}");
                self.device_failed(&start, StartFailure::Config, message);
            }
        }
        Ok(())
    }

    /// The helper has ended: its orders have no answers.
    pub(super) fn orders_lost(&mut self) {
        self.plugins.ordered.clear();
        for start in std::mem::take(&mut self.plugins.starts) {
            self.device_failed(&start, StartFailure::Device, "edge-plugins has ended; it is started again".to_owned());
        }
    }
}

impl Plugins {
    pub(super) fn next_id(&mut self) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// Takes an order that is answered, and returns which start it is of.
    fn answered(&mut self, order: u64) -> Option<(usize, Order)> {
        self.ordered.retain(|(id, _)| *id != order);
        self.changed = true;
        let is_it = |start: &Start| start.order.as_ref().is_some_and(|own| own.id == order);
        let at = self.starts.iter().position(is_it)?;
        let order = self.starts.get_mut(at)?.order.take()?;
        Some((at, order))
    }

    /// Ends the wait of a container that is to stop. Returns whether it waited.
    pub(in crate::node) fn stop(&mut self, id: &str) -> bool {
        self.cancel(&|start| start.id == id)
    }

    /// The pod is gone.
    pub(in crate::node) fn forget(&mut self, uid: &str) {
        self.cancel(&|start| start.of.uid == uid);
    }

    fn cancel(&mut self, which: &dyn Fn(&Start) -> bool) -> bool {
        let mut was = false;
        while let Some(at) = self.starts.iter().position(which) {
            self.starts.swap_remove(at);
            was = true;
        }
        was
    }
}

/// Whether an app container of the pod has run on this node.
fn has_run(record: &PodRecord) -> bool {
    let apps = || record.containers.values().filter(|container| container.kind == ContainerKind::App);
    record.sandbox.generation > 1
        || apps().any(|container| container.latest_end().is_some() || container.state.process().is_some())
}
