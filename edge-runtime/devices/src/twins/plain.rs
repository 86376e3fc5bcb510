//! Fast parser for the usual form of `twin/update`. It leaves all other texts to `request`, which reports errors.

use std::collections::BTreeMap;

use sampan_devices_control::Text;
use sampan_sys::gather::Gather;
use serde::Deserialize;

use super::request::{Change, LONGEST_ID, Update};

/// Other keys are passed over, as there.
#[derive(Deserialize)]
struct Plain {
    #[serde(default)]
    event_id: String,
    twin: BTreeMap<Text, Values>,
}

#[derive(Deserialize)]
struct Values {
    expected: Option<Held>,
    actual: Option<Held>,
    metadata: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Held {
    value: Text,
}

/// `None`: the general parser is needed.
pub(super) fn update(payload: &[u8]) -> Option<Update> {
    // A list would be taken for a structure with its fields in order.
    if payload.contains(&b'[') {
        return None;
    }
    let Plain { event_id, twin } = serde_json::from_slice(payload).ok()?;
    if event_id.len() > LONGEST_ID || twin.is_empty() || twin.values().any(|values| values.metadata.is_some()) {
        return None;
    }
    let change = |Values { expected, actual, .. }| Change {
        expected: expected.map(|held: Held| held.value),
        actual: actual.map(|held: Held| held.value),
        ..Change::default()
    };
    Some(Update { event_id, twin: twin.into_iter().map(|(name, values)| (name, Some(change(values)))).into_map() })
}
