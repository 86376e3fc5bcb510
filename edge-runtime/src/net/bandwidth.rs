//! Limits of a pod's traffic, from its annotations (K8s pkg/util/bandwidth). Pure.

use k8s_openapi::api::core::v1::Pod;

use crate::pod::quantity;

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";

/// Bits per second towards the pod and from it; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    pub ingress: Option<u64>,
    pub egress: Option<u64>,
}

/// # Errors
/// The annotation whose value is not a quantity from 1k to 1P.
pub fn of_pod(pod: &Pod) -> Result<Bandwidth, String> {
    Ok(Bandwidth { ingress: limit(pod, INGRESS)?, egress: limit(pod, EGRESS)? })
}

fn limit(pod: &Pod, key: &str) -> Result<Option<u64>, String> {
    let Some(text) = pod.metadata.annotations.as_ref().and_then(|all| all.get(key)) else { return Ok(None) };
    let bad = |why: &str| Err(format!("annotation {key}: {text:?}: {why}"));
    match quantity::value(text).map(u64::try_from) {
        None => bad("not a quantity like 10M (bits per second)"),
        Some(Ok(bits @ 1_000..=1_000_000_000_000_000)) => Ok(Some(bits)),
        Some(Ok(bits)) if bits > 1_000 => bad("resource is unreasonably large (> 1Pbit)"),
        Some(_) => bad("resource is unreasonably small (< 1kbit)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<u64>, String> {
        let pod: Pod =
            serde_json::from_value(serde_json::json!({"metadata": {"annotations": {INGRESS: text}}})).unwrap();
        of_pod(&pod).map(|limits| limits.ingress)
    }

    #[test]
    fn reasonable_limits_are_taken() {
        assert_eq!(read("10M").unwrap(), Some(10_000_000));
        assert_eq!(read("1k").unwrap(), Some(1_000));
        assert_eq!(of_pod(&Pod::default()).unwrap(), Bandwidth::default());
        for (text, why) in [("999", "small"), ("-1", "small"), ("2P", "large"), ("fast", "quantity")] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why) && error.contains(INGRESS), "{error}");
        }
    }
}
