//! An `ImagePrePullJob` on this node. Layers that are here cost nothing, and a pull that was cut goes on where it was.

use super::job::{End, Job};
use crate::upgrade::image::pull;

/// Minimum free space before an image is pulled, in bytes; its size is known only when it arrives.
const BYTES: u64 = 64 << 20;

pub(super) fn work(job: &mut Job<'_>, images: &[String], secrets: &[String], retries: u32) -> Result<End, String> {
    job.check(BYTES)?;
    if !job.is_window_open()? {
        return Ok(End::Later);
    }
    let logins = merged(secrets);
    let mut failed = Vec::new();
    for image in images {
        let here = job.progress.kept().status.image_status.iter().any(|known| known.image == *image && known.status);
        if here {
            continue;
        }
        let mut done = Err(String::new());
        for _ in 0..=retries {
            done = job.left().and_then(|left| pull(image, logins.as_deref(), left, job.paths));
            if done.is_ok() || job.left().is_err() {
                break;
            }
        }
        job.progress.image(image, &done);
        failed.extend(done.err().map(|why| format!("{image}: {why}")));
    }
    let all = if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) };
    job.progress.step("Pull", all).map(|()| End::Done)
}

/// One docker configuration of several.
fn merged(secrets: &[String]) -> Option<String> {
    let mut auths = serde_json::Map::new();
    for secret in secrets {
        let document: serde_json::Value = serde_json::from_str(secret).unwrap_or_default();
        auths.extend(document["auths"].as_object().cloned().unwrap_or_default());
    }
    (!auths.is_empty()).then(|| serde_json::json!({"auths": auths}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_of_several_secrets_are_one_document() {
        let one = r#"{"auths":{"a":{"auth":"x"}}}"#.to_owned();
        let two = r#"{"auths":{"b":{"auth":"y"}}}"#.to_owned();
        let all: serde_json::Value = serde_json::from_str(&merged(&[one, "nonsense".into(), two]).unwrap()).unwrap();
        assert_eq!((all["auths"]["a"]["auth"].as_str(), all["auths"]["b"]["auth"].as_str()), (Some("x"), Some("y")));
        assert_eq!(merged(&[]), None);
    }
}
