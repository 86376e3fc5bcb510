//! Decides whether an image must be pulled: for a pod, or as a prepull of the administrator.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::{Pulls, Waiter, secrets};
use crate::image::Reference;
use crate::node::context::Context;
use crate::pod::clock::Mono;
use crate::pod::event::{ImageFailure, PodEvent};
use crate::pod::step::PullPolicy;

/// Delay after a failed attempt.
const AGAIN: Duration = Duration::from_secs(300);

impl Pulls {
    /// Begins to fetch the first that is missing, if nothing is under way; and what may begin beside a pull that takes long.
    pub(in crate::node) fn prepull(&mut self, cx: &Context, now: Mono) {
        self.begin(cx);
        if !cx.resumed || !self.queue.is_empty() || self.prepull_at.is_some_and(|at| now < at) {
            return;
        }
        let missing = cx.config.pull.images.iter().find(|name| cx.image_id(name).is_none()).cloned();
        // Even with all images present: a user may still remove one by hand.
        self.prepull_at = Some(now.after(AGAIN));
        if let Some(name) = missing {
            self.fetch(cx, &name);
        }
    }

    /// An answer at once, or none and a pull under way.
    pub(in crate::node) fn ensure(
        &mut self,
        cx: &mut Context,
        pod: &Pod,
        waiter: Waiter,
        policy: PullPolicy,
    ) -> Option<PodEvent> {
        let Waiter { container, reference, .. } = &waiter;
        let container = container.clone();
        let name = match Reference::parse(reference) {
            Ok(name) => name.to_string(),
            Err(error) => {
                let (failure, message) =
                    (ImageFailure::InvalidName, format!("Failed to apply default image tag {reference:?}: {error}"));
                return Some(PodEvent::ImageFailed { container, failure, message });
            }
        };
        let secrets = secrets::of_pod(cx, pod);
        let present = cx.image_for(reference, &secrets.found);
        let known = without_pull(policy, present, container, reference);
        if known.is_none() {
            if let Some(message) = secrets.warning() {
                cx.warn_about_pod(&waiter.uid, "FailedToRetrieveImagePullSecret", message);
            }
            self.pull(cx, &name, waiter, secrets.found);
        }
        known
    }
}

/// The answer that needs no registry, if there is one (K8s pkg/kubelet/images/image_manager.go, `EnsureImageExists`).
fn without_pull(policy: PullPolicy, present: Option<String>, container: String, reference: &str) -> Option<PodEvent> {
    match (policy, present) {
        (PullPolicy::Never | PullPolicy::IfNotPresent, Some(image_id)) => {
            Some(PodEvent::ImageReady { container, image_id })
        }
        (PullPolicy::Never, None) => {
            let message = format!("Container image {reference:?} is not present with pull policy of Never");
            Some(PodEvent::ImageFailed { container, failure: ImageFailure::NeverPull, message })
        }
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_decides_whether_the_registry_is_asked() {
        let answer =
            |policy, present: Option<&str>| without_pull(policy, present.map(str::to_owned), "c".to_owned(), "app:v1");
        let ready = Some(PodEvent::ImageReady { container: "c".to_owned(), image_id: "sha256:1".to_owned() });
        assert_eq!(answer(PullPolicy::Never, Some("sha256:1")), ready);
        assert_eq!(answer(PullPolicy::IfNotPresent, Some("sha256:1")), ready);
        assert_eq!(answer(PullPolicy::IfNotPresent, None), None);
        assert_eq!(answer(PullPolicy::Always, None), None);
        assert_eq!(answer(PullPolicy::Always, Some("sha256:1")), None, "the registry may have a newer one");
        let message = "Container image \"app:v1\" is not present with pull policy of Never".to_owned();
        let failed = PodEvent::ImageFailed { container: "c".to_owned(), failure: ImageFailure::NeverPull, message };
        assert_eq!(answer(PullPolicy::Never, None), Some(failed));
    }

    #[test]
    fn image_without_a_valid_name_is_not_pulled() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut pulls = Pulls::default();
        let waiter = Waiter {
            uid: "u".to_owned(),
            container: "c".to_owned(),
            for_volume: false,
            reference: "Not Valid".to_owned(),
            asked: Mono(0),
        };
        let answer = pulls.ensure(&mut cx, &Pod::default(), waiter, PullPolicy::Always);
        let is_refused = matches!(answer, Some(PodEvent::ImageFailed { failure: ImageFailure::InvalidName, .. }));
        assert!(is_refused && pulls.queue.is_empty(), "{answer:?}");
    }
}
