//! Annotations by which an owner holds the first start of a pod, and by which the pod may hold its own stop. Pure.

use std::time::Duration;

use edge_protocol::duration::Typed;
use k8s_openapi::api::core::v1::Pod;

use super::spec::annotation;

/// KubeEdge's annotation: with `true` the pod is not started until it is released (KubeEdge edge/pkg/edged/edged.go,
/// `holdUpgrade`).
const HOLD_UPGRADE: &str = "edge.kubeedge.io/hold-upgrade";
/// This project's name of that annotation: any value but `false`.
const HOLD: &str = "sampan.dev/hold";
/// Longest time for which the stop lock may hold a stop: `30m`. `0s` is the same as no annotation.
const STOP_LOCK: &str = "sampan.dev/stop-lock";

/// The limit of every stop lock.
const LONGEST: Duration = Duration::from_hours(24);

/// Path of the stop lock in a container, and the variable that holds it.
pub const LOCK_FILE: &str = "/run/sampan/stop.lock";
pub const LOCK_VARIABLE: &str = "SAMPAN_STOP_LOCK";

/// KubeEdge's condition of a held pod, with its message.
pub(super) const HELD: &str = "HeldUpgrade";
pub(super) const START_HELD: &str = "Upgrade is currently held due to edge-hold-upgrade annotation";

/// Whether the pod's annotations ask for its first start to be held.
pub fn holds_start(pod: &Pod) -> bool {
    annotation(pod, HOLD_UPGRADE) == Some("true") || annotation(pod, HOLD).is_some_and(|value| value != "false")
}

/// Longest hold of the pod's stop lock; `None` without one.
pub fn stop_lock(pod: &Pod) -> Option<Duration> {
    let Typed(limit) = annotation(pod, STOP_LOCK)?.parse().ok()?;
    (!limit.is_zero()).then(|| limit.min(LONGEST))
}

/// Why an annotation of these has no effect.
pub(super) fn problem(pod: &Pod) -> Option<String> {
    let error = annotation(pod, STOP_LOCK)?.parse::<Typed>().err()?;
    Some(format!("annotation {STOP_LOCK} has no effect on this node: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::annotated;
    use super::*;

    #[test]
    fn start_is_held_by_either_annotation() {
        let held = |key: &str, value: &str| holds_start(&annotated(key, value));
        assert_eq!(["true", "false", "yes", ""].map(|value| held(HOLD_UPGRADE, value)), [true, false, false, false]);
        assert_eq!(["true", "false", "yes", ""].map(|value| held(HOLD, value)), [true, false, true, true]);
        assert!(!holds_start(&Pod::default()));
    }

    #[test]
    fn stop_lock_has_a_limit() {
        let limit = |value: &str| stop_lock(&annotated(STOP_LOCK, value)).map(|limit| limit.as_secs());
        assert_eq!(
            ["30m", "90", "24h", "7d", "0s", "soon"].map(limit),
            [Some(1800), Some(90), Some(86_400), Some(86_400), None, None]
        );
        assert_eq!(stop_lock(&Pod::default()), None);
    }

    #[test]
    fn bad_limit_is_named() {
        let problem = |value: &str| problem(&annotated(STOP_LOCK, value));
        assert_eq!((problem("30m"), problem("0s"), super::problem(&Pod::default())), (None, None, None));
        let told = problem("soon").unwrap();
        assert!(
            told.starts_with("annotation sampan.dev/stop-lock has no effect on this node: \"soon\" is no"),
            "{told}"
        );
    }
}
