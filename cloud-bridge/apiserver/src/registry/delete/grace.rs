//! How an object waits for its end: the grace of pods and the finalizers of the garbage collector. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::options::Options;
use crate::resource::Resource;
use apimachinery::meta::{self, FOREGROUND, ORPHAN};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Graceful {
    /// The kind knows no grace.
    No,
    /// The object carries its deletionTimestamp now.
    Yes,
    /// A deletion at least as quick is under way.
    Pending,
}

/// The API server's BeforeDelete with the pod strategy's CheckGracefulDelete; each kind converts the requested seconds.
pub(crate) fn before(resource: &Resource, object: &mut Value, options: &mut Options, now: Timestamp) -> Graceful {
    let Some(grace_period) = resource.rules().grace_period else { return Graceful::No };
    let later = |from: Timestamp, seconds: i64| from.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(from);
    if meta::deleting(object) {
        let Some(left) = meta::grace(object).filter(|g| *g != 0) else { return Graceful::No };
        let Some(mut asked) = options.grace.map(|asked| if asked < 0 { 1 } else { asked }) else {
            options.grace = Some(left);
            return Graceful::Pending;
        };
        if asked >= left {
            return Graceful::Pending;
        }
        let old: Timestamp = meta::text(object, "deletionTimestamp").parse().unwrap_or(now);
        let mut new = later(old, asked.saturating_sub(left));
        if new < now {
            new = now;
            if asked != 0 {
                asked = 1;
            }
        }
        meta::set(object, "deletionTimestamp", meta::rfc3339(new).into());
        meta::set(object, "deletionGracePeriodSeconds", asked.into());
        return Graceful::Yes;
    }
    let period = grace_period(object, options.grace);
    options.grace = Some(period);
    meta::set(object, "deletionTimestamp", meta::rfc3339(later(now, period)).into());
    meta::set(object, "deletionGracePeriodSeconds", period.into());
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
        meta::set(object, "generation", generation.saturating_add(1).into());
    }
    Graceful::Yes
}

/// Marks an object whose deletion waits for finalizers.
pub(crate) fn mark_now(object: &mut Value, now: Timestamp) {
    if !meta::deleting(object)
        && let Some(generation) = object["metadata"]["generation"].as_i64().filter(|g| *g > 0)
    {
        meta::set(object, "generation", generation.saturating_add(1).into());
    }
    let later = meta::text(object, "deletionTimestamp").parse::<Timestamp>().is_ok_and(|t| t > now);
    if !meta::deleting(object) || later {
        meta::set(object, "deletionTimestamp", meta::rfc3339(now).into());
    }
    meta::set(object, "deletionGracePeriodSeconds", 0.into());
}

/// The finalizers with those of the garbage collector as the options want them.
pub(crate) fn collector_finalizers(resource: &Resource, object: &Value, options: &Options) -> Vec<String> {
    let had = meta::finalizers(object);
    if !resource.rules().enable_garbage_collection {
        return had;
    }
    let has = |name: &str| had.iter().any(|f| f == name);
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation.as_deref()) {
        (Some(orphan), _) => (orphan, false),
        (None, Some("Orphan")) => (true, false),
        (None, Some("Foreground")) => (false, true),
        (None, Some(_)) => (false, false),
        // Existing finalizers override the default of the kind.
        (None, None) if has(ORPHAN) || has(FOREGROUND) => (has(ORPHAN), !has(ORPHAN)),
        (None, None) => (resource.rules().orphan_dependents, false),
    };
    let mut list: Vec<String> = had.into_iter().filter(|f| f != ORPHAN && f != FOREGROUND).collect();
    if orphan {
        list.push(ORPHAN.into());
    }
    if foreground {
        list.push(FOREGROUND.into());
    }
    list
}
