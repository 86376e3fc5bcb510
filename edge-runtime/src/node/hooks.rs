//! Lifecycle hooks that run: one task each, ended as soon as the record no longer has the hook under way.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use smol::Task;

use super::context::Context;
use super::pods::Pods;
use super::probes::Probes;
use super::sources::{HookRef, News};
use crate::pod::event::{HookKind, PodEvent};
use crate::pod::record::{ContainerRecord, Hook};
use crate::pod::spec::{containers_of, pod_ref};
use crate::probe::{HookCall, HookDone};
use crate::store::StoreError;
use crate::sys::vec_map::VecMap;

/// Dropping a task ends its hook.
#[derive(Default)]
pub(super) struct Hooks(VecMap<HookRef, Task<()>>);

impl Hooks {
    /// The answer comes as news; at once for a hook that is no longer in the spec.
    pub(super) fn run(
        &mut self,
        cx: &Context,
        probes: &Probes,
        pod: &Pod,
        which: HookRef,
        limit: Option<Duration>,
    ) -> Option<PodEvent> {
        let entry = cx.pods.get(&which.uid)?;
        let definition = containers_of(pod).find(|c| c.name == which.container);
        let lifecycle = definition.and_then(|c| c.lifecycle.as_ref());
        let handler = lifecycle.and_then(|lifecycle| match which.hook {
            HookKind::PostStart => lifecycle.post_start.clone(),
            HookKind::PreStop => lifecycle.pre_stop.clone(),
        });
        let (Some(container), Some(handler)) = (definition, handler) else {
            let HookRef { container, id, hook, .. } = which;
            return Some(PodEvent::HookDone { container, id, hook, error: None });
        };
        let call = HookCall {
            handler,
            container: container.clone(),
            id: which.id.clone(),
            pod: pod_ref(pod),
            address: cx.address_of(entry),
            limit,
        };
        let (run, key) = (probes.0.hook(call), which.clone());
        self.0.insert(key, cx.task(async move { News::HookDone(which, run.await) }));
        None
    }

    pub(super) fn done(&mut self, cx: &mut Context, which: HookRef, done: HookDone) -> Result<(), StoreError> {
        self.0.remove(&which);
        let HookRef { uid, container, id, hook } = which;
        if let Some(message) = done.fallback {
            cx.warn_about_container(&uid, &container, "LifecycleHTTPFallback", message)?;
        }
        if let Some(error) = &done.error {
            log::warn!("{hook:?} hook: {error}");
            // Without the output of the hook: it may be secret, and events are not.
            let (reason, message) = match hook {
                HookKind::PostStart => ("FailedPostStartHook", "PostStartHook failed"),
                HookKind::PreStop => ("FailedPreStopHook", "PreStopHook failed"),
            };
            cx.warn_about_container(&uid, &container, reason, message.to_owned())?;
        }
        cx.tell(&uid, PodEvent::HookDone { container, id, hook, error: done.error });
        Ok(())
    }

    /// Ends what runs for a hook that is no longer wanted: its container has ended, or its time is up.
    pub(super) fn sync(&mut self, pods: &Pods, uid: &str) {
        if self.0.is_empty() {
            return;
        }
        let containers = pods.get(uid).map(|entry| &entry.record.containers);
        self.0.retain(|which, _| {
            let record = containers.and_then(|all| all.get(&which.container));
            which.uid != uid || record.is_some_and(|record| is_under_way(record, which))
        });
    }
}

/// Whether this hook of this attempt still has to run.
fn is_under_way(record: &ContainerRecord, which: &HookRef) -> bool {
    let hook = match which.hook {
        HookKind::PostStart => &record.hooks.post_start,
        HookKind::PreStop => &record.hooks.pre_stop,
    };
    record.state.live_id() == Some(&*which.id) && *hook == Hook::UnderWay
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::clock::Mono;
    use crate::pod::record::{ContainerKind, ContainerState, Hooks as HookStates};

    #[test]
    fn hook_runs_until_its_time_is_up_or_its_attempt_ends() {
        let which = |hook, id: &str| HookRef { uid: "u".into(), container: "c".into(), id: id.into(), hook };
        let [start, stop] = [HookKind::PostStart, HookKind::PreStop];
        let started_at = jiff::Timestamp::UNIX_EPOCH;
        let state = ContainerState::Running { id: "i".into(), pid: 1, started_at, since: Mono(0) };
        let hooks = HookStates { post_start: Hook::UnderWay, pre_stop: Hook::Idle };
        let mut record = ContainerRecord { state, hooks, ..ContainerRecord::new(ContainerKind::App) };
        assert!(is_under_way(&record, &which(start, "i")));
        assert!(!is_under_way(&record, &which(start, "earlier")), "another attempt has its own");
        assert!(!is_under_way(&record, &which(stop, "i")));
        record.hooks = HookStates { post_start: Hook::Done { at: Mono(1), error: None }, pre_stop: Hook::UnderWay };
        assert!(!is_under_way(&record, &which(start, "i")) && is_under_way(&record, &which(stop, "i")));
        record.state = ContainerState::waiting();
        assert!(!is_under_way(&record, &which(stop, "i")), "the container has ended");
    }
}
