//! The holder of a shared pid namespace: first to start, last to stop. When it ends, the kernel ends all others.

use k8s_openapi::api::core::v1::Container;

use super::super::pause::{PAUSE, shares_processes};
use super::super::record::{ContainerKind, ContainerRecord, ContainerState};
use super::Turn;

impl Turn<'_> {
    /// True once containers may join the namespace, or need not.
    pub(super) fn have_pause(&mut self) -> bool {
        if !shares_processes(self.spec) {
            return true;
        }
        let new = || ContainerRecord::new(ContainerKind::Pause);
        let c = self.record.containers.entry(PAUSE.to_owned()).or_insert_with(new);
        let begin_at = match &c.state {
            ContainerState::Running { .. } => return true,
            ContainerState::Waiting { retry_at, .. } => *retry_at,
            ContainerState::Terminated(end) => {
                let end = end.clone();
                let until = c.restart_backoff.and_then(|b| b.until(end.finished_mono, self.now.mono));
                c.last = Some(end);
                until
            }
            _ => return false,
        };
        match begin_at.filter(|at| self.now.mono < *at) {
            Some(at) => self.wake_at(at),
            None => self.start(&Container { name: PAUSE.to_owned(), ..Container::default() }),
        }
        false
    }
}
