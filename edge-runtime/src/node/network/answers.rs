//! Other processes that a pod's connection waits for: the helper for its volumes, CNI plugins, systemd. Requests to
//! each, and the meaning of its answer for the pod.

use std::path::PathBuf;
use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;

use super::super::Node;
use super::super::sources::News;
use super::connecting::{Answer, Connecting};
use super::failed;
use crate::launch::cgroups::{cgroup_of_container, cgroup_of_pod};
use crate::launch::look::Look;
use crate::net::cni::{Attachment, Plugins};
use crate::pod::event::PodEvent;
use crate::pod::record::{ContainerState, SandboxState};
use crate::sys::cgroup::{Driver, Pending};

impl Node {
    /// Goes on with the pod whose step waited for this.
    pub(in crate::node) fn connection_answered(&mut self, uid: &str, answer: Answer) {
        let Some(step) = self.connecting.remove(uid) else { return };
        let ending = self.is_ending(uid);
        let event = match (step, answer) {
            // Its end was decided meanwhile.
            (Connecting::Mounting, Answer::Volumes(_))
            | (Connecting::Looking, Answer::Looked(_))
            | (Connecting::Rules(_), Answer::Rules(_))
            | (Connecting::Policies(_), Answer::Policies(_))
            | (Connecting::Attaching | Connecting::Undoing(_), Answer::Plugins(_))
            | (Connecting::MakingCgroup, Answer::Cgroup(_))
                if ending =>
            {
                self.disconnect(uid)
            }
            (Connecting::Mounting, Answer::Volumes(Ok(()))) => self.pod(uid).and_then(|pod| self.look(uid, &pod)),
            (Connecting::Mounting, Answer::Volumes(Err(error))) => Some(self.not_prepared(uid, &error.into())),
            (Connecting::Looking, Answer::Looked(Ok(()))) => self.pod(uid).and_then(|pod| self.connect(uid, &pod)),
            (Connecting::Looking, Answer::Looked(Err(trouble))) => {
                Some(failed(&self.launch.sandboxes.look_failed(trouble)))
            }
            (Connecting::Rules(done), Answer::Rules(Ok(()))) => self.guarded(uid, done),
            (Connecting::Policies(done), Answer::Policies(Ok(()))) => Some(self.sandbox_ready(uid, done)),
            (Connecting::Rules(_), Answer::Rules(Err(error)))
            | (Connecting::Policies(_), Answer::Policies(Err(error))) => Some(self.not_connected(uid, error)),
            (Connecting::Attaching, Answer::Plugins(Ok(ips))) => {
                self.pod(uid).and_then(|pod| self.connected(uid, &pod, ips, true))
            }
            (Connecting::Attaching, Answer::Plugins(Err(error))) => {
                Some(self.not_connected(uid, format!("failed to setup network for sandbox: {error}")))
            }
            (Connecting::Undoing(failure), Answer::Plugins(result)) => {
                if let Err(error) = result {
                    log::warn!("pod {uid}: {error}; it is tried again");
                }
                Some(self.undone(uid, &failure))
            }
            // Its rules follow, if it has been on the bridge since.
            (Connecting::Detaching, Answer::Plugins(Ok(_))) => self.disconnect(uid),
            (Connecting::MakingCgroup, Answer::Cgroup(Ok(()))) => self.with_cgroup(uid),
            (Connecting::MakingCgroup, Answer::Cgroup(Err(error))) => {
                Some(self.not_connected(uid, format!("failed to create cgroup for sandbox: {error}")))
            }
            (Connecting::EndingCgroup, Answer::Cgroup(Ok(()))) | (Connecting::Unmounting, Answer::Volumes(Ok(()))) => {
                self.remove_prepared(uid)
            }
            (Connecting::Unmounting, Answer::Volumes(Err(error))) => {
                Some(PodEvent::TeardownFailed { message: error.to_string() })
            }
            (Connecting::Detaching, Answer::Plugins(Err(message)))
            | (Connecting::EndingCgroup, Answer::Cgroup(Err(message))) => Some(PodEvent::TeardownFailed { message }),
            // It waits for something else by now.
            (other, _) => {
                self.connecting.insert(uid.to_owned(), other);
                None
            }
        };
        self.answered(uid, event);
    }

    /// What follows from another process's answer.
    pub(super) fn answered(&mut self, uid: &str, answer: Option<PodEvent>) {
        if let Some(answer) = answer {
            self.cx.tell(uid, answer);
        }
    }

    pub(super) fn pod(&self, uid: &str) -> Option<Rc<Pod>> {
        self.cx.pods.get(uid).map(|entry| Rc::clone(&entry.pod))
    }

    /// Has the step of the pod wait for what another process answers.
    fn wait(&mut self, uid: &str, step: Connecting, work: impl Future<Output = Answer> + 'static) {
        self.connecting.insert(uid.to_owned(), step);
        let uid = uid.to_owned();
        self.cx.background(async move { News::Connection { uid, answer: work.await } });
    }

    pub(super) fn look_at_volumes(&mut self, uid: &str, looks: Vec<Look>) {
        let helper = self.launch.sandboxes.looks.clone();
        self.wait(uid, Connecting::Looking, async move { Answer::Looked(helper.all(looks).await) });
    }

    pub(super) fn attach(&mut self, uid: &str, attachment: Attachment) {
        let (plugins, file) = self.plugins(uid);
        self.wait(uid, Connecting::Attaching, async move { Answer::Plugins(plugins.attach(&file, attachment).await) });
    }

    pub(super) fn detach(&mut self, uid: &str, step: Connecting) {
        let (plugins, file) = self.plugins(uid);
        self.wait(uid, step, async move { Answer::Plugins(plugins.detach(&file).await.map(|()| Vec::new())) });
    }

    pub(super) fn await_cgroup(&mut self, uid: &str, step: Connecting, pending: Pending) {
        self.wait(uid, step, async move {
            Answer::Cgroup(pending.recv().await.unwrap_or_else(|_| Err("nobody talks to systemd".to_owned())))
        });
    }

    /// Plugins that attach pods, and the file with what they hold for this pod, or are to hold.
    fn plugins(&self, uid: &str) -> (Rc<Plugins>, PathBuf) {
        let teardown = &self.launch.sandboxes.teardown;
        (teardown.plugins.clone(), teardown.held(uid).unwrap_or_else(|| teardown.attachment_file(uid)))
    }

    /// At start: has plugins look after the pods they connected, and take back those that are no longer known.
    pub(in crate::node) fn plugins_at_start(&mut self) {
        for uid in self.launch.sandboxes.teardown.attached() {
            let (plugins, file) = self.plugins(&uid);
            let by_plugins = self.launch.sandboxes.teardown.is_attached(&uid);
            let state = self.cx.pods.get(&uid).map(|entry| entry.record.sandbox.state.clone());
            let job = async move {
                let (what, result) = match state {
                    None => ("is unknown and cannot be detached", plugins.detach(&file).await),
                    Some(SandboxState::Ready { .. }) if by_plugins => {
                        ("is not as it was attached", plugins.check(&file).await)
                    }
                    // Made again, taken down, or connected by the bridge.
                    Some(_) => return,
                };
                if let Err(error) = result {
                    log::error!("pod {uid} {what}: {error}");
                }
            };
            self.cx.tasks.spawn(job).detach();
        }
    }

    /// Repairs, at each housekeeping, what a reload of systemd undoes.
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
        let pod = self.pod(uid)?;
        if !self.launch.sandboxes.teardown.has_cgroup(&pod, uid) {
            let path = cgroup_of_pod(&self.launch.base.cgroups, &pod, uid);
            let error = format!("systemd started the pod's slice, but there is no cgroup {path}");
            return Some(self.not_connected(uid, error));
        }
        self.connect(uid, &pod)
    }
}

#[cfg(test)]
mod tests;
