//! How it goes, as numbers and as the text that `edge-runtime status` shows.

use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counters {
    pub(crate) resources: usize,
    pub(crate) devices: usize,
    /// Orders that a plugin has carried out, and those that failed.
    pub(crate) allocated: u64,
    pub(crate) failed: u64,
    /// Registrations that were refused.
    pub(crate) refused: u64,
    /// Calls of podresources, and those of them over the limit.
    pub(crate) asked: u64,
    pub(crate) over_limit: u64,
}

impl Counters {
    pub(crate) fn shown(&self) -> Value {
        let Self { resources, devices, allocated, failed, refused, asked, over_limit } = self;
        let asked = match (asked, over_limit) {
            (0, 0) => String::new(),
            _ => format!("; {asked} calls of podresources, {over_limit} over the limit"),
        };
        let text = format!(
            "{resources} resources with {devices} devices; {allocated} allocations, {failed} failed, {refused} \
             registrations refused{asked}"
        );
        let mut shown = serde_json::to_value(self).unwrap_or_else(|_| json!({}));
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("text".to_owned(), text.into());
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_beside_the_numbers() {
        let mut counters = Counters { resources: 1, devices: 2, allocated: 3, ..Counters::default() };
        let text = "1 resources with 2 devices; 3 allocations, 0 failed, 0 registrations refused";
        assert_eq!(counters.shown()["text"], text);
        counters.over_limit = 4;
        let shown = counters.shown();
        assert_eq!(shown["text"], format!("{text}; 0 calls of podresources, 4 over the limit"));
        assert_eq!((shown["devices"].as_u64(), shown["overLimit"].as_u64()), (Some(2), Some(4)));
    }
}
