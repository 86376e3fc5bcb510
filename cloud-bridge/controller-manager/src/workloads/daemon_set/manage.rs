//! Which pods are missing and which are too many, whatever their template (K8s pkg/controller/daemon/daemon_controller.go
//! `podsShouldBeOnNode`).

use std::time::Duration;

use super::context::Context;
use super::fit::Fit;
use super::{daemon_pod, update};
use crate::workloads::back_off::BackOff;
use crate::workloads::plan::{Plan, Told};
use crate::workloads::pod::Pod;

#[derive(Default)]
struct Changes<'a> {
    missing: Vec<&'a str>,
    surplus: Vec<&'a Pod>,
    told: Vec<Told>,
    /// When the next failed pod may go.
    again: Option<Duration>,
}

/// Deletions first, then creations: a deleted pod may hold resources that the next one on its node needs.
pub(super) fn plan(context: &Context<'_>, back_off: &BackOff) -> Plan {
    let mut changes = Changes::default();
    for (name, (_, fit)) in &context.nodes {
        let here = context.on(name);
        match fit {
            Fit::Runs if here.is_empty() => changes.missing.push(name),
            Fit::Not => changes.surplus.extend(here.iter().copied().filter(|pod| !pod.is_deleting())),
            Fit::Runs | Fit::Stays => changes.on_node(context, back_off, name, *fit),
        }
    }
    // No other component would remove a pod that waits for a deleted node.
    let unbound = |pod: &&Pod| pod.spec.node_name.as_deref().unwrap_or_default().is_empty() && !pod.is_deleting();
    let nowhere = context.pods.iter().filter(|(name, _)| !context.nodes.contains_key(**name));
    changes.surplus.extend(nowhere.flat_map(|(_, pods)| pods.iter().copied()).filter(unbound));
    let plan = if changes.surplus.is_empty() {
        daemon_pod::create_on(context, &changes.missing)
    } else {
        context.delete(&changes.surplus)
    };
    Plan { told: changes.told, ..plan.again(changes.again) }
}

impl<'a> Changes<'a> {
    fn on_node(&mut self, context: &Context<'a>, back_off: &BackOff, node: &'a str, fit: Fit) {
        let mut running = Vec::new();
        for pod in context.on(node).iter().copied().filter(|pod| !pod.is_deleting()) {
            match pod.phase() {
                "Failed" => self.failed(context, back_off, node, pod),
                "Succeeded" => self.ended(context, node, pod),
                _ => running.push(pod),
            }
        }
        if !update::allows_surge(context) {
            self.surplus.extend(running.into_iter().skip(1));
            return;
        }
        if running.is_empty() && fit == Fit::Runs && !keeps_place(context, node) {
            self.missing.push(node);
        }
        if running.len() > 1 {
            self.while_surging(context, &running);
        }
    }

    /// Two pods may be on a node while the old one is ready and the new one not yet available.
    fn while_surging(&mut self, context: &Context<'a>, running: &[&'a Pod]) {
        let (new, old): (Vec<&Pod>, Vec<&Pod>) = running.iter().partition(|pod| context.has_hash(pod));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!old.is_ready() || context.is_available(new))
        {
            self.surplus.push(old);
        }
        self.surplus.extend(new.into_iter().skip(1).chain(old.into_iter().skip(1)));
    }

    /// Deletes a failed pod, with back-off: a node that refuses pods would refuse the next one too.
    fn failed(&mut self, context: &Context<'a>, back_off: &BackOff, node: &str, pod: &'a Pod) {
        let wait = back_off.wait(&context.set.metadata, node, context.now.passed);
        if !wait.is_zero() {
            self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
            return;
        }
        let message = format!("Found failed daemon pod {} on node {node}, will try to kill it", path(pod));
        self.told.push(context.teller().warning("FailedDaemonPod", message));
        self.surplus.push(pod);
    }

    fn ended(&mut self, context: &Context<'a>, node: &str, pod: &'a Pod) {
        let message = format!("Found succeeded daemon pod {} on node {node}, will try to delete it", path(pod));
        self.told.push(context.teller().normal("SucceededDaemonPod", message));
        self.surplus.push(pod);
    }
}

/// A pod that has ended and still waits to go: the next one comes after it.
fn keeps_place(context: &Context<'_>, node: &str) -> bool {
    context.on(node).iter().any(|pod| pod.is_terminal() && !pod.is_deleting())
}

fn path(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
