//! Volumes that are not the node's own, looked at by a helper before a pod is connected: what its answer means for the pod.

use super::super::Node;
use super::super::sources::News;
use super::{Connecting, failed};
use crate::launch::look::Look;
use crate::launch::looking::Trouble;

impl Node {
    pub(super) fn look_at_volumes(&mut self, uid: &str, looks: Vec<Look>) {
        self.connecting.insert(uid.to_owned(), Connecting::Looking);
        let (helper, news, uid) = (self.launcher.looks().clone(), self.senders.news.clone(), uid.to_owned());
        let job = async move {
            let result = helper.all(looks).await;
            // The loop is gone only when the process ends.
            let _ = news.send(News::Looked { uid, result }).await;
        };
        self.executor.spawn(job).detach();
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
        let pod = self.pods.get(uid).map(|entry| entry.pod.clone());
        let answer = match (result, pod) {
            // Its end was decided meanwhile.
            _ if self.is_ending(uid) => self.disconnect(uid),
            (Ok(()), Some(pod)) => self.connect(uid, &pod),
            (Ok(()), None) => None,
            (Err(trouble), _) => Some(failed(self.launcher.look_failed(trouble))),
        };
        if let Some(answer) = answer {
            self.tell(uid, answer);
        }
    }
}
