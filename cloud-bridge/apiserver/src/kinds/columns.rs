//! What columns and cells of kinds have in common. The kinds follow pkg/printers/internalversion of Kubernetes 1.36;
//! wide columns have priority 1 and are always sent. Pure: the time comes in as a parameter.

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::strategy::Column;
use apimachinery::json::text;

/// Name, type and priority of a column, and its description.
pub(crate) type Spec = (&'static str, &'static str, i32, &'static str);

pub(crate) const NAME: Spec = ("Name", "string", 0, "Name of the object, unique within its namespace.");
pub(crate) const AGE: Spec = ("Age", "string", 0, "Time since the server created the object.");

/// Columns of a kind, and the cells of one object: as many as columns.
pub(crate) struct Table<const N: usize> {
    pub(crate) columns: [Spec; N],
    pub(crate) row: fn(&Value, Timestamp) -> [Value; N],
}

/// A [`Table`] with any number of columns.
pub(crate) trait AnyTable: Sync {
    /// The columns as the Table form names them.
    fn columns(&self) -> Vec<Column>;

    /// The cells of one object.
    fn row(&self, obj: &Value, now: Timestamp) -> Vec<Value>;
}

impl<const N: usize> AnyTable for Table<N> {
    fn columns(&self) -> Vec<Column> {
        let column = |(name, type_, priority, description): &Spec| Column {
            name: (*name).into(),
            type_: (*type_).into(),
            format: if *name == "Name" { "name".into() } else { "".into() },
            description: (*description).into(),
            priority: *priority,
        };
        self.columns.iter().map(column).collect()
    }

    fn row(&self, obj: &Value, now: Timestamp) -> Vec<Value> {
        (self.row)(obj, now).into()
    }
}

/// Table of kinds with a name and an age.
pub(crate) const PLAIN: Table<2> = Table { columns: [NAME, AGE], row: |obj, now| [name(obj), age(obj, now)] };
/// Elements shown before `+ N more...`.
const SHOWN: usize = 3;

/// The cell of the name.
pub(crate) fn name(obj: &Value) -> Value {
    obj["metadata"]["name"].clone()
}

/// The cell of the age.
pub(crate) fn age(obj: &Value, now: Timestamp) -> Value {
    since(text(&obj["metadata"], "creationTimestamp"), now).into()
}

/// Time since an RFC 3339 timestamp, `<unknown>` without one.
pub(crate) fn since(timestamp: &str, now: Timestamp) -> String {
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

/// The first elements, and how many more there are.
pub(crate) fn with_more(all: &[String], empty: &str) -> String {
    let shown = all.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(",");
    if all.len() > SHOWN {
        format!("{shown} + {} more...", all.len() - SHOWN)
    } else if shown.is_empty() {
        empty.to_owned()
    } else {
        shown
    }
}

/// `<none>` for nothing.
pub(crate) fn or_none(text: &str) -> Value {
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
