//! Meaning of a pull's result for a container that waits for the image. Pure.

use std::time::Duration;

use crate::node::sources::PullResult;
use crate::pod::event::ImageFailure;

/// Result of a pull for one container.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Pulled {
        image_id: String,
    },
    /// Without an answer of the registry, the container starts with the local image. Offline is normal here.
    Kept {
        image_id: String,
        message: String,
    },
    Failed {
        failure: ImageFailure,
        message: String,
    },
}

impl Outcome {
    /// `present` is the local image that the pod may use; `name` is the normalized reference.
    pub(super) fn of(result: &PullResult, present: Option<String>, name: &str) -> Self {
        match (result, present) {
            (Ok(_), Some(image_id)) => Self::Pulled { image_id },
            (Err(error), Some(image_id)) if is_unreachable(result) => {
                Self::Kept { image_id, message: format!("{error}; using the image that is on this node") }
            }
            (Err(error), _) => Self::Failed { failure: ImageFailure::Pull, message: error.to_string() },
            (Ok(_), None) => {
                let message = format!("image {name} was pulled but is not in the store");
                Self::Failed { failure: ImageFailure::Inspect, message }
            }
        }
    }
}

/// Whether the registry has not answered.
pub(super) fn is_unreachable(result: &PullResult) -> bool {
    result.as_ref().is_err_and(|error| error.reason() == "RegistryUnavailable")
}

/// Formats a duration like Go, cut to milliseconds: `734ms`, `1.5s`, `2m3.25s`.
pub(super) fn go_duration(time: Duration) -> String {
    let ms = time.as_millis();
    let seconds = |ms: u128| {
        let text = format!("{}.{:03}", ms / 1000, ms % 1000);
        format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => seconds(ms),
        60_000..3_600_000 => format!("{}m{}", ms / 60_000, seconds(ms % 60_000)),
        _ => format!("{}h{}m{}", ms / 3_600_000, ms / 60_000 % 60, seconds(ms % 60_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageError;

    fn refused(reason: &str) -> PullResult {
        Err(ImageError::Helper { reason: reason.to_owned(), why: "no".to_owned() })
    }

    #[test]
    fn local_image_replaces_only_a_registry_that_is_silent() {
        let of = |result: &PullResult, present: Option<&str>| Outcome::of(result, present.map(str::to_owned), "app:1");
        let kept = |message: &str| Outcome::Kept { image_id: "id".to_owned(), message: message.to_owned() };
        let failed = |failure, message: &str| Outcome::Failed { failure, message: message.to_owned() };
        let silent = refused("RegistryUnavailable");
        assert_eq!(of(&silent, Some("id")), kept("no; using the image that is on this node"));
        assert_eq!(of(&silent, None), failed(ImageFailure::Pull, "no"));
        assert_eq!(of(&refused("ErrImagePull"), Some("id")), failed(ImageFailure::Pull, "no"), "it may be revoked");
        assert_eq!(of(&Ok(Some("x".to_owned())), Some("id")), Outcome::Pulled { image_id: "id".to_owned() });
        let gone = failed(ImageFailure::Inspect, "image app:1 was pulled but is not in the store");
        assert_eq!(of(&Ok(Some("x".to_owned())), None), gone);
    }

    #[test]
    fn any_other_error_is_an_answer() {
        assert!(is_unreachable(&refused("RegistryUnavailable")));
        for result in [refused("ErrImagePull"), refused(""), Ok(None), Ok(Some("id".to_owned()))] {
            assert!(!is_unreachable(&result), "{result:?}");
        }
    }

    #[test]
    fn durations_read_like_gos() {
        let text = |ms| go_duration(Duration::from_millis(ms));
        assert_eq!([text(734), text(1500), text(2000), text(123_250)], ["734ms", "1.5s", "2s", "2m3.25s"]);
        assert_eq!(text(3_661_001), "1h1m1.001s");
        assert_eq!([text(0), text(999), text(60_000), text(3_600_000)], ["0ms", "999ms", "1m0s", "1h0m0s"]);
    }
}
