//! Counters for people. The daemon passes them on to `edge-runtime status` unparsed. Does not know its users.

use serde::Serialize;
use serde_json::Value;

use sampan_json::SetField;

/// Since this process began, but for what is as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    pub devices: u64,
    /// Whether the MQTT broker is connected; `None` without a configured broker.
    pub broker: Option<bool>,
    /// Registered mappers; `None` if mappers are disabled.
    pub mappers: Option<u64>,
    /// `None` if clients may not connect.
    pub listener: Option<Listening>,
    pub rules: Rules,
    /// Values that devices reported, and device reports that the bridge has.
    pub reports_in: u64,
    pub reports_out: u64,
    /// Values that a newer one replaced before they were reported.
    pub coalesced: u64,
    /// Messages of devices that were answered with an error, and those of the node for which the broker had no room.
    pub refused: u64,
    pub dropped: u64,
    /// Bytes given to be kept.
    pub kept_bytes: u64,
}

/// Clients of the node's own listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Listening {
    /// Connected now.
    pub clients: u64,
    /// Number of refusals, by the code of CONNACK.
    pub refused: u64,
    /// That were too slow, or in the way of another one.
    pub cut: u64,
    /// Messages for which a client had no room.
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// Received messages, and those of them that did not fit before they were stored.
    pub taken: u64,
    pub dropped: u64,
    /// What rules wanted done here.
    pub calls: u64,
}

impl Counters {
    /// Formats the counters as JSON, with a `text` of one line.
    pub(super) fn shown(&self) -> Value {
        let mut shown = serde_json::to_value(self).unwrap_or_default();
        shown.set("text", self.text().into());
        shown
    }

    fn text(&self) -> String {
        let Self { devices, broker, mappers, listener, rules, reports_in, reports_out, refused, dropped, .. } = self;
        let broker = match broker {
            Some(true) => "broker connected",
            Some(false) => "no connection to the broker",
            None => "no broker configured",
        };
        let mappers = mappers.map(|mappers| format!(", {mappers} mappers")).unwrap_or_default();
        let listener = listener.map(|Listening { clients, refused, cut, dropped }| {
            format!("; {clients} clients, {refused} refused, {cut} cut, {dropped} messages for them dropped")
        });
        let Rules { taken, dropped: lost, calls } = rules;
        let rules = match rules == &Rules::default() {
            true => String::new(),
            false => format!("; {taken} messages for rules, {lost} dropped, {calls} calls of rules"),
        };
        format!(
            "{devices}, {broker}{mappers}; {reports_in} values taken, {reports_out} reports told, {refused} refused, {dropped} dropped{}{rules}",
            listener.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_parts_are_not_shown() {
        let mut counters = Counters { devices: 2, broker: Some(true), reports_in: 7, ..Counters::default() };
        let plain = "2, broker connected; 7 values taken, 0 reports told, 0 refused, 0 dropped";
        assert_eq!(counters.text(), plain);
        counters.listener = Some(Listening { clients: 3, refused: 1, cut: 2, dropped: 9 });
        counters.rules = Rules { taken: 5, dropped: 1, calls: 4 };
        counters.mappers = Some(1);
        let all = "2, broker connected, 1 mappers; 7 values taken, 0 reports told, 0 refused, 0 dropped; 3 clients, 1 refused, \
                   2 cut, 9 messages for them dropped; 5 messages for rules, 1 dropped, 4 calls of rules";
        let shown = counters.shown();
        assert_eq!((shown["text"].as_str(), shown["listener"]["cut"].as_u64()), (Some(all), Some(2)));
        assert_eq!((shown["rules"]["calls"].as_u64(), shown["keptBytes"].as_u64()), (Some(4), Some(0)));
    }
}
