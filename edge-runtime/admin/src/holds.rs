//! What holds up the start or the stop of a pod, as `status` and `describe` show it. Pure.

use sampan_pod::record::{PodRecord, StartHold};

/// Whether the pod waits for `release`.
pub(crate) fn waits_for_release(pod: &PodRecord) -> bool {
    pod.start_hold == StartHold::Held && pod.terminal.is_none() && pod.deletion.is_none()
}

/// Type of the condition, and why with what to do.
pub(crate) fn of(pod: &PodRecord) -> Option<(&'static str, String)> {
    if waits_for_release(pod) {
        let why = format!("an annotation holds the first start: edge-runtime release {}/{}", pod.namespace, pod.name);
        return Some(("HeldUpgrade", why));
    }
    pod.stop_hold.as_ref().map(|hold| ("StopHeld", hold.message()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use sampan_pod::clock::Mono;
    use sampan_pod::record::{StopHold, Terminal};

    use super::*;

    #[test]
    fn hold_says_how_it_ends() {
        let mut pod = PodRecord { namespace: "shop".into(), name: "web".into(), ..Default::default() };
        assert_eq!(of(&pod), None);
        pod.start_hold = StartHold::Held;
        let (condition, why) = of(&pod).unwrap();
        assert!(condition == "HeldUpgrade" && why.ends_with(": edge-runtime release shop/web"), "{why}");
        pod.terminal = Some(Terminal { succeeded: false, reason: String::new(), message: String::new() });
        assert_eq!(of(&pod), None, "it never starts");
        let since = Timestamp::UNIX_EPOCH;
        pod.stop_hold = Some(StopHold { since, until: since, from: Mono::default() });
        let (condition, why) = of(&pod).unwrap();
        assert!(condition == "StopHeld" && why.contains("at the latest at 1970-01-01T00:00:00Z"), "{why}");
    }
}
