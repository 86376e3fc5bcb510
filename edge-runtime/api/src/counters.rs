//! How it goes, as numbers and as the text that `edge-runtime status` shows.

use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counters {
    pub(crate) pods: usize,
    /// Requests of pods that were passed on.
    pub(crate) passed: u64,
    /// Requests that were answered from the cache.
    pub(crate) offline: u64,
    /// Requests without a known token.
    pub(crate) unknown: u64,
    /// Connections and requests over a limit.
    pub(crate) over_limit: u64,
    pub(crate) cache_bytes: u64,
}

impl Counters {
    pub(crate) fn shown(&self) -> Value {
        let Self { pods, passed, offline, unknown, over_limit, cache_bytes } = self;
        let text = format!(
            "{pods} pods; {passed} requests through the link, {offline} answered offline, {unknown} without a known \
             token, {over_limit} over a limit; cache {} KiB",
            cache_bytes >> 10
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
        let shown = Counters { pods: 2, passed: 3, cache_bytes: 4_096, ..Counters::default() }.shown();
        assert_eq!((shown["pods"].as_u64(), shown["cacheBytes"].as_u64()), (Some(2), Some(4_096)));
        let text = "2 pods; 3 requests through the link, 0 answered offline, 0 without a known token, 0 over a limit; \
                    cache 4 KiB";
        assert_eq!(shown["text"], text);
    }
}
