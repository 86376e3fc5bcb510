//! Whether an image has to be pulled at all.

use k8s_openapi::api::core::v1::Pod;

use super::{Pulls, Waiter, secrets};
use crate::image::Reference;
use crate::node::context::Context;
use crate::pod::event::{ImageFailure, PodEvent};
use crate::pod::step::PullPolicy;

impl Pulls {
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
        match (policy, present) {
            (PullPolicy::Never | PullPolicy::IfNotPresent, Some(image_id)) => {
                Some(PodEvent::ImageReady { container, image_id })
            }
            (PullPolicy::Never, None) => {
                let message = format!("Container image {reference:?} is not present with pull policy of Never");
                Some(PodEvent::ImageFailed { container, failure: ImageFailure::NeverPull, message })
            }
            (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, None) => {
                if let Some(message) = secrets.warning() {
                    cx.warn_about_pod(&waiter.uid, "FailedToRetrieveImagePullSecret", message);
                }
                self.pull(cx, &name, waiter, secrets.found);
                None
            }
        }
    }
}
