//! What a kubelet only tells: its health, its pods, its measurements. The embedded API asks here, too, for
//! `nodes/NAME/proxy`.

use serde_json::Value;

use crate::backend::{BackendError, KubeletBackend};
use crate::metrics;
use crate::request::KubeletRequest;

/// Content type of texts.
pub const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// Content type of Prometheus' exposition format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content type and the body of an answer.
///
/// # Errors
/// The node is offline, or the request is of another kind.
pub async fn read(
    backend: &dyn KubeletBackend,
    node: &str,
    asked: &KubeletRequest,
) -> Result<(&'static str, Vec<u8>), BackendError> {
    match asked {
        KubeletRequest::Healthz => {
            backend.connected(node)?;
            Ok((PLAIN, b"ok".to_vec()))
        }
        KubeletRequest::Pods => Ok((JSON, backend.pods(node).await?.to_string().into_bytes())),
        KubeletRequest::Stats { only_cpu_and_memory } => {
            let mut summary = backend.stats(node).await?;
            if *only_cpu_and_memory {
                metrics::only_cpu_and_memory(&mut summary);
            }
            Ok((JSON, summary.to_string().into_bytes()))
        }
        KubeletRequest::Metrics => {
            let summary: Option<Value> = match backend.stats(node).await {
                Ok(summary) => Some(summary),
                Err(error @ BackendError::Unavailable(_)) => return Err(error),
                // A kubelet says so in the metrics themselves.
                Err(error) => {
                    log::warn!("node {node}: stats: {error}");
                    None
                }
            };
            Ok((EXPOSITION, metrics::resource(summary.as_ref()).into_bytes()))
        }
        KubeletRequest::Logs { .. } | KubeletRequest::Connect { .. } => {
            Err(BackendError::BadRequest("this is no simple read".to_owned()))
        }
    }
}
