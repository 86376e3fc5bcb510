//! Checks whether an object that a node holds is deleted, by asking the API for it. This confirms what a list says
//! before the bridge acts on it.

use edge_protocol::message::ObjectKey;
use kube::api::DynamicObject;
use kube::{Api, Client};

use super::answer::Answer;
use super::ask::{AGAIN, pods_of};
use super::object::api_of;
use crate::bridge::requests::{Requests, Written, code, is_refusal};
use crate::bridge::slim::SlimPod;
use crate::bridge::told::kinds::{DEVICES_API, Kind, LookUp};

/// Question whether the API no longer has an object, or has another one of the same name.
///
/// Repeated until the API answers, as long as `wanted` returns true.
pub(super) struct IsGone<W> {
    /// Client that acts as the node.
    pub(super) client: Client,
    /// The bridge's own client.
    pub(super) own: Client,
    pub(super) node: String,
    pub(super) key: ObjectKey,
    pub(super) uid: String,
    pub(super) wanted: W,
}

impl<W: Fn() -> bool> IsGone<W> {
    /// Asks the API. The deletion of a pod is never concluded from a list (G12).
    pub(super) async fn ask(self) -> Answer {
        let Some(kind) = Kind::of(&self.key) else { return Answer::Nothing };
        match kind.facts().look_up {
            LookUp::Pod => self.find_pod().await,
            LookUp::Object | LookUp::Cluster => self.find_object(kind).await,
            LookUp::Use => self.if_unused().await,
            LookUp::Device => self.find_device(kind.facts().plural).await,
            LookUp::Made => Answer::Unlisted { node: self.node, key: self.key, uid: self.uid },
            LookUp::Group => Answer::Nothing,
        }
    }

    /// Looks up an object. An API server does not let a node read one that no pod of it names: it answers Forbidden
    /// whether the object exists or not. If the list of the node's pods confirms that, the node has no use for the
    /// object.
    async fn find_object(self, kind: Kind) -> Answer {
        let api: Api<DynamicObject> = api_of(self.client.clone(), kind, &self.key);
        loop {
            return match api.get_opt(&self.key.name).await {
                Ok(found) => {
                    let found = found.as_ref().map(|found| found.metadata.uid.as_deref().unwrap_or_default());
                    match present(found, &self.uid) {
                        Present::None | Present::Another => self.gone(),
                        Present::Itself | Present::Unclear => Answer::Nothing,
                    }
                }
                Err(kube::Error::Api(status)) if status.is_forbidden() => self.if_unused().await,
                Err(error) if self.may_help(&error).await => continue,
                Err(_) => Answer::Nothing,
            };
        }
    }

    /// Same as [`IsGone::ask`], after a pause.
    pub(super) async fn ask_again(self) -> Answer {
        tokio::time::sleep(AGAIN).await;
        if (self.wanted)() { self.ask().await } else { Answer::Nothing }
    }

    /// Looks up a pod.
    async fn find_pod(self) -> Answer {
        let api: Api<SlimPod> = Api::namespaced(self.own.clone(), &self.key.namespace);
        loop {
            return match api.get_opt(&self.key.name).await {
                Ok(found) => match (present(found.as_ref().map(SlimPod::uid), &self.uid), found) {
                    (Present::Itself, Some(found)) => Answer::Found(Box::new(found)),
                    (Present::Another, Some(by)) => {
                        Answer::Replaced { node: self.node, key: self.key, uid: self.uid, by: Box::new(by) }
                    }
                    (Present::None, _) => self.gone(),
                    _ => Answer::Nothing,
                },
                Err(error) if self.may_help(&error).await => continue,
                Err(_) => Answer::Nothing,
            };
        }
    }

    /// Looks up a Device or a model. The group of the node's devices tells whether the node needs an existing one.
    async fn find_device(self, plural: &str) -> Answer {
        let ObjectKey { namespace, name, .. } = &self.key;
        let path = format!("/apis/{DEVICES_API}/namespaces/{namespace}/{plural}/{name}");
        loop {
            return match Requests::new(self.own.clone()).get::<Written>(&path).await {
                Ok(found) => match present(Some(&found.metadata.uid), &self.uid) {
                    Present::Itself => Answer::Unlisted { node: self.node, key: self.key, uid: self.uid },
                    Present::None | Present::Another => self.gone(),
                    Present::Unclear => Answer::Nothing,
                },
                // Only the code counts: the definition may be deleted, and with it all objects.
                Err(error) if code(&error) == Some(404) => self.gone(),
                Err(error) if self.may_help(&error).await => continue,
                Err(_) => Answer::Nothing,
            };
        }
    }

    /// Whether no pod of the node names the object.
    async fn if_unused(self) -> Answer {
        let key = self.key.clone();
        let named = move |pod: SlimPod| pod.into_bound()?.refs.take(&key);
        let (named, _) = pods_of(Api::all(self.own), &self.node, named).await;
        match named.is_empty() {
            false => Answer::Nothing,
            true => Answer::Useless { node: self.node, key: self.key, uid: self.uid },
        }
    }

    fn gone(self) -> Answer {
        Answer::Gone { node: self.node, key: self.key, uid: self.uid }
    }

    /// Whether to ask again after a pause: not if the API has refused the question, or if the answer is no longer needed.
    async fn may_help(&self, error: &kube::Error) -> bool {
        let key = &self.key;
        log::warn!("asking for {} {}/{}: {error}", key.kind, key.namespace, key.name);
        if is_final(key, error) {
            return false;
        }
        tokio::time::sleep(AGAIN).await;
        (self.wanted)()
    }
}

/// What the API has under the name of an object.
#[derive(Debug, PartialEq, Eq)]
enum Present {
    Itself,
    /// An object of another uid: the one in question is deleted.
    Another,
    None,
    /// An answer without a uid proves nothing.
    Unclear,
}

/// `found`: the uid of the object of that name, if there is one.
fn present(found: Option<&str>, uid: &str) -> Present {
    match found {
        None => Present::None,
        Some("") => Present::Unclear,
        Some(found) if found == uid => Present::Itself,
        Some(_) => Present::Another,
    }
}

/// Whether the API would answer the same question in the same way. A refusal to read a pod is not final: an API server
/// that has just started refuses requests that it will allow, and the node's list waits for the answer.
fn is_final(key: &ObjectKey, error: &kube::Error) -> bool {
    is_refusal(error) && !(Kind::Pod.is(key) && code(error) == Some(403))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_another_uid_or_no_object_proves_a_deletion() {
        assert_eq!(present(Some("u"), "u"), Present::Itself);
        assert_eq!(present(Some("v"), "u"), Present::Another);
        assert_eq!(present(None, "u"), Present::None);
        assert_eq!(present(Some(""), "u"), Present::Unclear);
    }

    #[test]
    fn refusal_of_a_pod_is_asked_again() {
        let ends = |kind: Kind, code| {
            let error = kube::Error::Api(Box::new(Status::failure("m", "r").with_code(code)));
            is_final(&kind.key("ns", "x"), &error)
        };
        assert!(!ends(Kind::Pod, 403) && ends(Kind::Pod, 422) && ends(Kind::Secret, 403));
        assert!(!ends(Kind::Pod, 503) && !ends(Kind::Secret, 401));
    }
}
