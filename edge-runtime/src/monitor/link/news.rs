//! News of the monitor for the loop, and what pidfds add to it.

use std::fs;

use super::Link;
use crate::monitor::client::MonitorEvent;
use crate::sys::pidfd;
use sampan_monitor::exit::{self, ExitRecord};
use sampan_monitor::protocol::{ContainerState, Event, Phase};

impl Link {
    pub(super) fn pass_on(&self, event: Event) {
        let event = match event {
            Event::Started { id, pid, started_at } => {
                self.hold(&id, pid);
                MonitorEvent::Started { id, pid, started_at }
            }
            Event::StartFailed { id, message } => MonitorEvent::StartFailed { id, message },
            Event::Exited(record) => MonitorEvent::Exited(self.settle(record)),
            Event::LogTrouble { reason } => return self.log_trouble(reason),
            // For connections that have asked for it.
            Event::Output { .. } | Event::OutputEnd {} => return,
        };
        self.tell(event);
    }

    pub(super) fn log_trouble(&self, reason: Option<String>) {
        if self.has_log_trouble.replace(reason.is_some()) || reason.is_some() {
            self.tell(MonitorEvent::LogTrouble(reason));
        }
    }

    pub(super) fn tell(&self, event: MonitorEvent) {
        // Fails only when the daemon is going down.
        let _ = self.news.try_send(event);
    }

    /// Keeps a pidfd of a running container, if the pid still is this container's.
    fn hold(&self, id: &str, pid: i32) {
        if self.held.borrow().contains_key(id) {
            return;
        }
        let Ok(pidfd) = pidfd::open(pid) else { return };
        if fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(id)) {
            self.held.borrow_mut().insert(id.to_owned(), pidfd);
        }
    }

    pub(super) fn amend(&self, container: ContainerState) -> ContainerState {
        let phase = match container.phase {
            Phase::Running { pid, started_at } => {
                self.hold(&container.id, pid);
                Phase::Running { pid, started_at }
            }
            Phase::Exited(record) => Phase::Exited(self.settle(record)),
            other => other,
        };
        ContainerState { phase, ..container }
    }

    /// Lets go of an ended container; fills in what its pidfd knows and the monitor could not.
    fn settle(&self, mut record: ExitRecord) -> ExitRecord {
        let held = self.held.borrow_mut().remove(&record.id);
        if record.unknown
            && let Some(status) = held.and_then(|pidfd| pidfd::exit_status(&pidfd, record.pid))
        {
            (record.code, record.signal) = pidfd::decode_status(status);
            record.unknown = false;
            if let Err(e) = exit::write(&self.paths.exits(), &record) {
                log::warn!("exit record of {}: {e}", record.id);
            }
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use smol::channel::unbounded;

    use super::*;
    use crate::monitor::client::Settings;
    use crate::paths::Paths;

    #[test]
    fn end_of_trouble_with_logs_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let ((_, calls), (news, told)) = (unbounded(), unbounded());
        let link = Link::new(Paths::new(folder.path()), Settings::default(), calls, news);
        let full = Some("the disk is full".to_owned());
        for reason in [None, full.clone(), full.clone(), None, None] {
            link.pass_on(Event::LogTrouble { reason });
        }
        let told: Vec<MonitorEvent> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        assert_eq!(told, [full.clone(), full, None].map(MonitorEvent::LogTrouble));
    }

    #[test]
    fn output_is_no_news_of_a_connection_that_has_not_asked_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let ((_, calls), (news, told)) = (unbounded(), unbounded());
        let link = Link::new(Paths::new(folder.path()), Settings::default(), calls, news);
        link.pass_on(Event::OutputEnd {});
        link.pass_on(Event::StartFailed { id: "i".to_owned(), message: "no".to_owned() });
        assert_eq!(told.try_recv(), Ok(MonitorEvent::StartFailed { id: "i".to_owned(), message: "no".to_owned() }));
        assert!(told.is_empty());
    }
}
