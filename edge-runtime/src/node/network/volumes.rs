//! Volumes that are not the node's own, looked at by a helper before a pod is connected: what its answer means for the pod.

use super::super::Node;
use super::super::sources::News;
use super::{Connecting, failed};
use crate::launch::look::Look;
use crate::launch::looking::Trouble;

impl Node {
    pub(super) fn look_at_volumes(&mut self, uid: &str, looks: Vec<Look>) {
        self.connecting.insert(uid.to_owned(), Connecting::Looking);
        let (helper, uid) = (self.launcher.looks().clone(), uid.to_owned());
        self.cx.background(async move { News::Looked { uid, result: helper.all(looks).await } });
    }

    pub(in crate::node) fn looked(&mut self, uid: &str, result: Result<(), Trouble>) {
        match self.connecting.remove(uid) {
            Some(Connecting::Looking) => {}
            Some(other) => {
                self.connecting.insert(uid.to_owned(), other);
                return;
            }
            None => return,
        }
        let pod = self.cx.pods.get(uid).map(|entry| entry.pod.clone());
        let answer = match (result, pod) {
            // Its end was decided meanwhile.
            _ if self.is_ending(uid) => self.disconnect(uid),
            (Ok(()), Some(pod)) => self.connect(uid, &pod),
            (Ok(()), None) => None,
            (Err(trouble), _) => Some(failed(self.launcher.look_failed(trouble))),
        };
        if let Some(answer) = answer {
            self.cx.tell(uid, answer);
        }
    }
}
