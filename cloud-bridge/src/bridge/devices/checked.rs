//! Checks which parts of a node's report of a device may be written, and why the others may not. Pure. Does not read
//! the API.

use std::collections::BTreeMap;

use edge_protocol::message::{DeviceReport, DeviceState, TwinReport, TwinValue};
use jiff::Timestamp;

/// Maximum length of a value, in bytes.
const LONGEST_VALUE: usize = 4096;
/// Maximum length of the name of a type, in bytes.
const LONGEST_TYPE: usize = 64;
/// Maximum number of reasons that are listed for one report; further ones are counted.
const MOST_REASONS: usize = 8;

/// Names of states. Other names have no meaning.
const STATES: [&str; 5] = ["ok", "online", "offline", "unhealthy", "unknown"];

/// The accepted parts of a report.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Checked<'a> {
    pub(super) state: Option<&'a DeviceState>,
    pub(super) twins: BTreeMap<&'a str, &'a TwinReport>,
    /// Reasons for the refused parts, for the node and for users.
    pub(super) refused: Vec<String>,
}

/// Checks a report about a Device with these properties.
pub(super) fn check<'a>(report: &'a DeviceReport, properties: &[Box<str>]) -> Checked<'a> {
    let mut checked = Checked::default();
    let mut quiet = 0;
    let mut refuse = |checked: &mut Checked<'a>, why: String| match checked.refused.len() < MOST_REASONS {
        true => checked.refused.push(why),
        false => quiet += 1,
    };
    match report.state.as_ref().map(|state| (state, wrong_state(state))) {
        Some((state, None)) => checked.state = Some(state),
        Some((_, Some(why))) => refuse(&mut checked, why),
        None => {}
    }
    for twin in &report.twins {
        let known = properties.iter().any(|property| **property == *twin.property);
        let values = [&twin.reported, &twin.observed].into_iter().flatten();
        match values.filter_map(wrong_value).next() {
            _ if !known => {
                refuse(&mut checked, format!("property {} is not in spec.properties", short(&twin.property)))
            }
            Some(why) => refuse(&mut checked, format!("property {}: {why}", short(&twin.property))),
            None => drop(checked.twins.insert(&twin.property, twin)),
        }
    }
    if quiet > 0 {
        checked.refused.push(format!("and {quiet} more"));
    }
    checked
}

fn wrong_state(state: &DeviceState) -> Option<String> {
    if !STATES.contains(&state.state.as_str()) {
        return Some(format!("{:?} is no state of a device", short(&state.state)));
    }
    let time = &state.last_online;
    let is_time = time.is_empty() || time.parse::<Timestamp>().is_ok();
    (!is_time).then(|| format!("{:?} is no time", short(time)))
}

fn wrong_value(value: &TwinValue) -> Option<String> {
    if value.value.len() > LONGEST_VALUE {
        return Some(format!("a value of {} bytes is longer than {LONGEST_VALUE}", value.value.len()));
    }
    (value.kind.len() > LONGEST_TYPE).then(|| format!("the name of its type has {} bytes", value.kind.len()))
}

/// A node's text, cut to 64 bytes.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(64)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<TwinValue> {
        Some(TwinValue { value: text.to_owned(), ..TwinValue::default() })
    }

    fn twin(property: &str, text: &str) -> TwinReport {
        TwinReport { property: property.to_owned(), reported: value(text), observed: None }
    }

    fn state(state: &str, last_online: &str) -> Option<DeviceState> {
        Some(DeviceState { state: state.to_owned(), last_online: last_online.to_owned(), ..DeviceState::default() })
    }

    fn names(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn d10_values_to_four_kibibytes_pass_and_larger_ones_do_not() {
        let odd = ["", " ", "{\"a\":1}", "a=b", "ä\u{0}\n"];
        let twins: Vec<_> = odd.iter().map(|text| twin("p", text)).chain([twin("p", &"x".repeat(4096))]).collect();
        for twin in twins {
            let report = DeviceReport { twins: vec![twin.clone()], ..DeviceReport::default() };
            assert_eq!(check(&report, &names(&["p"])).twins.get("p"), Some(&&twin));
        }
        let observed = TwinReport { reported: None, observed: value(&"x".repeat(4097)), property: "q".into() };
        let twins = vec![twin("p", "1"), observed];
        let report = DeviceReport { twins, ..DeviceReport::default() };
        let checked = check(&report, &names(&["p", "q"]));
        assert_eq!(checked.twins.keys().collect::<Vec<_>>(), [&"p"], "nothing else is held back");
        assert_eq!(checked.refused, ["property q: a value of 4097 bytes is longer than 4096"]);
    }

    #[test]
    fn unknown_properties_are_named_and_many_are_counted() {
        let twins: Vec<_> = (0..100).map(|number| twin(&format!("p{number}"), "1")).collect();
        let report = DeviceReport { twins, ..DeviceReport::default() };
        let checked = check(&report, &names(&["p7"]));
        assert_eq!(checked.twins.keys().collect::<Vec<_>>(), [&"p7"]);
        assert_eq!(checked.refused[0], "property p0 is not in spec.properties");
        assert_eq!(checked.refused.last().map(String::as_str), Some("and 91 more"));
        assert_eq!(checked.refused.len(), 9);
    }

    #[test]
    fn a_state_is_one_of_five_and_its_time_is_one() {
        let of = |state| {
            let report = DeviceReport { state, ..DeviceReport::default() };
            let checked = check(&report, &[]);
            (checked.state.is_some(), checked.refused.len())
        };
        for good in STATES {
            assert_eq!(of(state(good, "2026-03-01T10:00:00Z")), (true, 0));
        }
        assert_eq!(of(state("offline", "")), (true, 0));
        assert_eq!(of(None), (false, 0));
        assert_eq!(of(state("Online", "")), (false, 1));
        assert_eq!(of(state("ok", "yesterday")), (false, 1));
        assert_eq!(of(state(&"ä".repeat(200), "")), (false, 1));
    }
}
