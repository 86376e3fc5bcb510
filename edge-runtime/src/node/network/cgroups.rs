//! Pods' cgroups that systemd makes and ends: waiting for it, and what its answer means for the pod.

use super::super::Node;
use super::super::sources::News;
use super::Connecting;
use crate::launch::cgroups::{cgroup_of_container, cgroup_of_pod};
use crate::launch::sandbox::sandbox_failure;
use crate::pod::event::PodEvent;
use crate::pod::record::ContainerState;
use crate::sys::cgroup::{Driver, Pending};

impl Node {
    pub(super) fn await_cgroup(&mut self, uid: &str, what: Connecting, pending: Pending) {
        self.connecting.insert(uid.to_owned(), what);
        let uid = uid.to_owned();
        self.cx.background(async move {
            let result = pending.recv().await.unwrap_or_else(|_| Err("nobody talks to systemd".to_owned()));
            News::CgroupDone { uid, result }
        });
    }

    pub(in crate::node) fn cgroup_done(&mut self, uid: &str, result: Result<(), String>) {
        let ending = self.is_ending(uid);
        let answer = match (self.connecting.remove(uid), result) {
            // Its end was decided meanwhile.
            (Some(Connecting::MakingCgroup), _) if ending => self.disconnect(uid),
            (Some(Connecting::MakingCgroup), Ok(())) => self.with_cgroup(uid),
            (Some(Connecting::MakingCgroup), Err(error)) => {
                let failure = sandbox_failure(format!("failed to create cgroup for sandbox: {error}"));
                Some(self.not_connected(uid, failure))
            }
            (Some(Connecting::EndingCgroup), Ok(())) => Some(self.remove_prepared(uid)),
            (Some(Connecting::EndingCgroup), Err(message)) => Some(PodEvent::TeardownFailed { message }),
            (Some(other), _) => {
                self.connecting.insert(uid.to_owned(), other);
                None
            }
            (None, _) => None,
        };
        if let Some(answer) = answer {
            self.cx.tell(uid, answer);
        }
    }

    /// With each look at the node: what a reload of systemd undoes.
    pub(in crate::node) fn mend_cgroups(&self) {
        if self.cx.config.cgroup_driver != Driver::Systemd {
            return;
        }
        let cgroups = self.launcher.cgroups();
        for (uid, entry) in self.cx.pods.iter() {
            for container in entry.record.containers.values() {
                if let ContainerState::Running { id, .. } = &container.state {
                    cgroups.keep_oom_group(&cgroup_of_container(cgroups, &entry.pod, uid, id));
                }
            }
        }
    }

    fn with_cgroup(&mut self, uid: &str) -> Option<PodEvent> {
        let pod = self.cx.pods.get(uid).map(|entry| entry.pod.clone())?;
        if !self.launcher.has_cgroup(&pod, uid) {
            let path = cgroup_of_pod(self.launcher.cgroups(), &pod, uid);
            let failure = sandbox_failure(format!("systemd started the pod's slice, but there is no cgroup {path}"));
            return Some(self.not_connected(uid, failure));
        }
        self.connect(uid, &pod)
    }
}
