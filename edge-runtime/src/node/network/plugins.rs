//! Pods that CNI plugins connect: jobs beside the loop, and what their end means for the pod.

use std::net::IpAddr;

use super::super::Node;
use super::super::sources::News;
use super::Connecting;
use crate::launch::sandbox::sandbox_failure;
use crate::net::cni::Attachment;
use crate::pod::event::PodEvent;
use crate::pod::record::SandboxState;

impl Node {
    pub(super) fn attach(&self, uid: &str, attachment: Attachment) {
        let (plugins, file) = (self.launcher.plugins().clone(), self.launcher.attachment_file(uid));
        let uid = uid.to_owned();
        self.cx.background(async move {
            let result = plugins.attach(&file, attachment).await;
            News::PluginsDone { uid, result }
        });
    }

    pub(super) fn detach(&self, uid: &str) {
        let (plugins, file) = (self.launcher.plugins().clone(), self.launcher.attachment_file(uid));
        let uid = uid.to_owned();
        self.cx.background(async move {
            let result = plugins.detach(&file).await.map(|()| Vec::new());
            News::PluginsDone { uid, result }
        });
    }

    pub(in crate::node) fn plugins_done(&mut self, uid: &str, result: Result<Vec<IpAddr>, String>) {
        let ending = self.is_ending(uid);
        let answer = match (self.connecting.remove(uid), result) {
            (Some(Connecting::Attaching | Connecting::Undoing(_)), _) if ending => self.disconnect(uid),
            (Some(Connecting::Attaching), Ok(ips)) => self.attached(uid, ips),
            (Some(Connecting::Attaching), Err(error)) => {
                let failure = sandbox_failure(format!("failed to setup network for sandbox: {error}"));
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

    /// The plugins have done their part: the steps that need the addresses follow.
    fn attached(&mut self, uid: &str, ips: Vec<IpAddr>) -> Option<PodEvent> {
        let pod = self.cx.pods.get(uid).map(|entry| entry.pod.clone())?;
        let done = self.launcher.finish_sandbox(&pod, ips, &self.cx.objects());
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
        for uid in self.launcher.attached() {
            let (plugins, file) = (self.launcher.plugins().clone(), self.launcher.attachment_file(&uid));
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
}
