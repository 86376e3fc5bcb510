//! The columns that kubectl shows for each built-in kind and the cells of one object. Follows
//! pkg/printers/internalversion of Kubernetes 1.36; wide columns have priority 1 and are always sent. Pure:
//! the time comes in as a parameter.

mod event;
mod network;
mod node;
mod pod;
mod storage;

pub(crate) use event::{EVENT_COLUMNS, event};
pub(crate) use network::{
    ENDPOINT_SLICE_COLUMNS, ENDPOINTS_COLUMNS, SERVICE_COLUMNS, endpoint_slice, endpoints, service,
};
pub(crate) use node::{NODE_COLUMNS, node};
pub(crate) use pod::{POD_COLUMNS, pod};
pub(crate) use storage::{CLAIM_COLUMNS, VOLUME_COLUMNS, claim, volume};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::strategy::Column;
use apimachinery::json::{entries, text};

/// Name, type and priority of a column, and what it shows.
pub(crate) type Spec = (&'static str, &'static str, i32, &'static str);

const NAME: Spec = ("Name", "string", 0, "Name of the object, unique within its namespace.");
const AGE: Spec = ("Age", "string", 0, "Time since the server created the object.");

/// Columns of kinds with a name and an age.
pub(crate) const PLAIN_COLUMNS: &[Spec] = &[NAME, AGE];
pub(crate) const CONFIG_MAP_COLUMNS: &[Spec] = &[NAME, ("Data", "string", 0, "Number of keys."), AGE];
pub(crate) const SECRET_COLUMNS: &[Spec] =
    &[NAME, ("Type", "string", 0, "Type of the secret."), ("Data", "string", 0, "Number of keys."), AGE];
pub(crate) const NAMESPACE_COLUMNS: &[Spec] = &[NAME, ("Status", "string", 0, "The status of the namespace"), AGE];
pub(crate) const LEASE_COLUMNS: &[Spec] = &[NAME, ("Holder", "string", 0, "Identity of the current holder."), AGE];
pub(crate) const RUNTIME_CLASS_COLUMNS: &[Spec] =
    &[NAME, ("Handler", "string", 0, "Handler specifies the underlying runtime."), AGE];
pub(crate) const CRD_COLUMNS: &[Spec] =
    &[NAME, ("Created At", "date", 0, "Time at which the server created the object.")];

/// The columns as the Table form names them.
pub(crate) fn columns(specs: &[Spec]) -> Vec<Column> {
    specs
        .iter()
        .map(|(name, type_, priority, description)| Column {
            name: (*name).into(),
            type_: (*type_).into(),
            format: if *name == "Name" { "name".into() } else { "".into() },
            description: (*description).into(),
            priority: *priority,
        })
        .collect()
}

/// Name and age.
pub(crate) fn plain(obj: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(obj), age(obj, now)]
}

/// A ConfigMap.
pub(crate) fn config_map(obj: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(obj), json!(entries(obj, "data").count() + entries(obj, "binaryData").count()), age(obj, now)]
}

/// A Secret.
pub(crate) fn secret(obj: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(obj), obj["type"].clone(), json!(entries(obj, "data").count()), age(obj, now)]
}

/// A Namespace.
pub(crate) fn namespace(obj: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(obj), text(&obj["status"], "phase").into(), age(obj, now)]
}

/// A Lease.
pub(crate) fn lease(obj: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(obj), text(&obj["spec"], "holderIdentity").into(), age(obj, now)]
}

/// A RuntimeClass.
pub(crate) fn runtime_class(obj: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(obj), text(obj, "handler").into(), age(obj, now)]
}

/// A CustomResourceDefinition.
pub(crate) fn crd(obj: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(obj), obj["metadata"]["creationTimestamp"].clone()]
}

fn name(obj: &Value) -> Value {
    obj["metadata"]["name"].clone()
}

fn age(obj: &Value, now: Timestamp) -> Value {
    since(text(&obj["metadata"], "creationTimestamp"), now).into()
}

/// Time since an RFC 3339 timestamp, `<unknown>` without one.
fn since(timestamp: &str, now: Timestamp) -> String {
    match timestamp.parse::<Timestamp>() {
        Ok(then) => human_duration(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Seconds as kubectl writes ages: at most two units, coarser the longer it is.
pub(crate) fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10800 => format!("{minutes}m"),
        10800..28800 => two(hours, "h", minutes % 60, "m"),
        28800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (10800, "3h"),
            (11000, "3h3m"),
            (90000, "25h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (63_072_000 + 86400, "2y1d"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }
}
