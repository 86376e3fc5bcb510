//! The other processes that a pod's connection waits for: the helper that looks at its volumes, CNI plugins, systemd. What
//! is asked of each, and what its answer means for the pod.

use std::net::IpAddr;

use super::super::Node;
use super::super::sources::News;
use super::connecting::Connecting;
use super::failed;
use crate::launch::cgroups::{cgroup_of_container, cgroup_of_pod};
use crate::launch::error::SandboxError;
use crate::launch::look::Look;
use crate::launch::looking::Trouble;
use crate::net::cni::Attachment;
use crate::pod::event::PodEvent;
use crate::pod::record::{ContainerState, SandboxState};
use crate::sys::cgroup::{Driver, Pending};

impl Node {
    /// What the pod waits for, if that is one of those that `this` takes.
    fn taken(&mut self, uid: &str, this: impl Fn(&Connecting) -> bool) -> Option<Connecting> {
        self.connecting.get(uid).is_some_and(this).then(|| self.connecting.remove(uid)).flatten()
    }

    /// What follows from another process's answer.
    pub(super) fn answered(&mut self, uid: &str, answer: Option<PodEvent>) {
        if let Some(answer) = answer {
            self.cx.tell(uid, answer);
        }
    }

    pub(super) fn look_at_volumes(&mut self, uid: &str, looks: Vec<Look>) {
        self.connecting.insert(uid.to_owned(), Connecting::Looking);
        let (helper, uid) = (self.launch.sandboxes.looks().clone(), uid.to_owned());
        self.cx.background(async move { News::Looked { uid, result: helper.all(looks).await } });
    }

    pub(in crate::node) fn looked(&mut self, uid: &str, result: Result<(), Trouble>) {
        if self.taken(uid, |one| matches!(one, Connecting::Looking)).is_none() {
            return;
        }
        let pod = self.cx.pods.get(uid).map(|entry| entry.pod.clone());
        let answer = match (result, pod) {
            // Its end was decided meanwhile.
            _ if self.is_ending(uid) => self.disconnect(uid),
            (Ok(()), Some(pod)) => self.connect(uid, &pod),
            (Ok(()), None) => None,
            (Err(trouble), _) => Some(failed(&self.launch.sandboxes.look_failed(trouble))),
        };
        self.answered(uid, answer);
    }

    pub(super) fn attach(&self, uid: &str, attachment: Attachment) {
        let (plugins, file) =
            (self.launch.sandboxes.teardown.plugins().clone(), self.launch.sandboxes.teardown.attachment_file(uid));
        let uid = uid.to_owned();
        self.cx.background(async move {
            let result = plugins.attach(&file, attachment).await;
            News::PluginsDone { uid, result }
        });
    }

    pub(super) fn detach(&self, uid: &str) {
        let (plugins, file) =
            (self.launch.sandboxes.teardown.plugins().clone(), self.launch.sandboxes.teardown.attachment_file(uid));
        let uid = uid.to_owned();
        self.cx.background(async move {
            let result = plugins.detach(&file).await.map(|()| Vec::new());
            News::PluginsDone { uid, result }
        });
    }

    pub(in crate::node) fn plugins_done(&mut self, uid: &str, result: Result<Vec<IpAddr>, String>) {
        let ending = self.is_ending(uid);
        let attached =
            |one: &Connecting| matches!(one, Connecting::Attaching | Connecting::Undoing(_) | Connecting::Detaching);
        let answer = match (self.taken(uid, attached), result) {
            (Some(Connecting::Attaching | Connecting::Undoing(_)), _) if ending => self.disconnect(uid),
            (Some(Connecting::Attaching), Ok(ips)) => self.attached(uid, ips),
            (Some(Connecting::Attaching), Err(error)) => {
                let failure = SandboxError::Other(format!("failed to setup network for sandbox: {error}"));
                Some(self.not_connected(uid, failure))
            }
            (Some(Connecting::Undoing(failure)), result) => {
                if let Err(error) = result {
                    log::warn!("pod {uid}: {error}; it is tried again");
                }
                Some(self.not_connected(uid, failure))
            }
            (Some(Connecting::Detaching), Ok(_)) => self.remove_sandbox(uid),
            (Some(Connecting::Detaching), Err(message)) => Some(PodEvent::TeardownFailed { message }),
            _ => None,
        };
        self.answered(uid, answer);
    }

    /// The plugins have done their part: the steps that need the addresses follow.
    fn attached(&mut self, uid: &str, ips: Vec<IpAddr>) -> Option<PodEvent> {
        let pod = self.cx.pods.get(uid).map(|entry| entry.pod.clone())?;
        let done = self.launch.sandboxes.finish(&pod, ips, &self.cx.objects());
        match done {
            Ok(done) => Some(self.sandbox_ready(uid, done)),
            Err(failure) => {
                self.connecting.insert(uid.to_owned(), Connecting::Undoing(failure));
                self.detach(uid);
                None
            }
        }
    }

    /// At start: has plugins look after the pods they connected, and take back those that are no longer known.
    pub(in crate::node) fn plugins_at_start(&mut self) {
        for uid in self.launch.sandboxes.teardown.attached() {
            let (plugins, file) = (
                self.launch.sandboxes.teardown.plugins().clone(),
                self.launch.sandboxes.teardown.attachment_file(&uid),
            );
            let state = self.cx.pods.get(&uid).map(|entry| entry.record.sandbox.state.clone());
            let job = async move {
                let (what, result) = match state {
                    None => ("is unknown and cannot be detached", plugins.detach(&file).await),
                    Some(SandboxState::Ready { .. }) => ("is not as it was attached", plugins.check(&file).await),
                    // Made again, or taken down.
                    Some(_) => return,
                };
                if let Err(error) = result {
                    log::error!("pod {uid} {what}: {error}");
                }
            };
            self.cx.tasks.spawn(job).detach();
        }
    }

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
        let of_cgroup = |one: &Connecting| matches!(one, Connecting::MakingCgroup | Connecting::EndingCgroup);
        let answer = match (self.taken(uid, of_cgroup), result) {
            // Its end was decided meanwhile.
            (Some(Connecting::MakingCgroup), _) if ending => self.disconnect(uid),
            (Some(Connecting::MakingCgroup), Ok(())) => self.with_cgroup(uid),
            (Some(Connecting::MakingCgroup), Err(error)) => {
                let failure = SandboxError::Other(format!("failed to create cgroup for sandbox: {error}"));
                Some(self.not_connected(uid, failure))
            }
            (Some(Connecting::EndingCgroup), Ok(())) => Some(self.remove_prepared(uid)),
            (Some(Connecting::EndingCgroup), Err(message)) => Some(PodEvent::TeardownFailed { message }),
            _ => None,
        };
        self.answered(uid, answer);
    }

    /// With each look at the node: what a reload of systemd undoes.
    pub(in crate::node) fn mend_cgroups(&self) {
        if self.cx.config.cgroup_driver != Driver::Systemd {
            return;
        }
        let cgroups = &self.launch.base.cgroups;
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
        if !self.launch.sandboxes.teardown.has_cgroup(&pod, uid) {
            let path = cgroup_of_pod(&self.launch.base.cgroups, &pod, uid);
            let failure =
                SandboxError::Other(format!("systemd started the pod's slice, but there is no cgroup {path}"));
            return Some(self.not_connected(uid, failure));
        }
        self.connect(uid, &pod)
    }
}
