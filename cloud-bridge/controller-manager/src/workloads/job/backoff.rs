//! Back-off of a Job before it replaces a failed pod (K8s pkg/controller/job/backoff_utils.go). Computed from the
//! existing pods, so that a restart of this program does not lose it.

use std::time::Duration;

use super::context::Context;
use super::marks::{failures_of_index, is_tracked};
use crate::workloads::pod::Pod;

/// After one failure, and twice as long after each further one.
const FIRST: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_mins(10);

/// The rest of the wait after the failures since the last success.
pub(super) fn remaining(context: &Context<'_>) -> Duration {
    // Pods that were deleted on purpose no longer belong to the Job.
    let pods = || context.pods.iter().filter(|pod| is_tracked(pod) || !pod.is_deleting());
    let ended = |pod: &&Pod| pod.ended_for(context.now);
    let success = pods().filter(|pod| pod.phase() == "Succeeded").filter_map(ended).min();
    let failures = pods().filter(|pod| context.is_failed(pod)).filter_map(ended);
    let since: Vec<Duration> = failures.filter(|ended| success.is_none_or(|success| *ended < success)).collect();
    after(u32::try_from(since.len()).unwrap_or(u32::MAX), since.into_iter().min())
}

/// The rest of the wait for an index whose last pod failed.
pub(super) fn remaining_of_index(context: &Context<'_>, last: Option<&Pod>) -> Duration {
    let Some(last) = last else { return Duration::ZERO };
    let failures = u32::try_from(failures_of_index(last).all()).unwrap_or_default();
    after(failures.saturating_add(1), last.ended_for(context.now))
}

/// Remaining pause, from the time since the last failure.
fn after(failures: u32, last: Option<Duration>) -> Duration {
    let (Some(doubled), Some(last)) = (failures.checked_sub(1), last) else { return Duration::ZERO };
    let wait = FIRST.saturating_mul(1_u32.checked_shl(doubled).unwrap_or(u32::MAX)).min(MOST);
    wait.saturating_sub(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_ten_seconds_to_ten_minutes() {
        let seconds = |failures, passed| after(failures, Some(Duration::from_secs(passed))).as_secs();
        assert_eq!(
            [0, 1, 2, 3, 6, 7, 8, 40, 90].map(|failures| seconds(failures, 0)),
            [0, 10, 20, 40, 320, 600, 600, 600, 600]
        );
        assert_eq!([0, 9, 10, 11].map(|passed| seconds(1, passed)), [10, 1, 0, 0]);
    }
}
