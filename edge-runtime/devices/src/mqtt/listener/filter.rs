//! Topic filters (MQTT 3.1.1, 4.7), prepared for frequent matching. `edge_protocol` defines filters and what they
//! match. No I/O.

use edge_protocol::topic;

/// Levels of a name or filter that are looked at.
const LEVELS: usize = 32;

/// A filter, which is one by the standard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    text: Box<str>,
    /// Bytes before the first wildcard: most filters differ from most names there.
    plain: usize,
}

impl Filter {
    /// `None` if it is not a valid filter: [MQTT-4.7.1-2], [MQTT-4.7.1-3], [MQTT-4.7.3-1], [MQTT-4.7.3-2].
    pub fn new(text: &str) -> Option<Self> {
        let plain = text.find(['+', '#']).unwrap_or(text.len());
        topic::is_filter_of_any_length(text).then(|| Self { text: text.into(), plain })
    }

    /// Whether it has too many levels.
    pub(super) fn is_deep(&self) -> bool {
        self.text.split('/').nth(LEVELS).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub fn matches(&self, topic: &str) -> bool {
        let plain = self.text.get(..self.plain).unwrap_or_default();
        // The level above `#` counts, too (4.7.1.2).
        (topic.starts_with(plain) || plain.strip_suffix('/') == Some(topic)) && topic::covers(&self.text, topic)
    }

    /// Whether whatever `other` matches is matched by this one, too.
    pub(super) fn covers(&self, other: &Self) -> bool {
        topic::covers(&self.text, &other.text)
    }

    /// Whether a name could match both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let of_system = |filter: &Self| filter.text.starts_with('$');
        if (self.plain == 0 && of_system(other)) || (other.plain == 0 && of_system(self)) {
            return false;
        }
        let (mut one, mut two) = (self.text.split('/'), other.text.split('/'));
        loop {
            match (one.next(), two.next()) {
                (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
                (None, _) | (_, None) => return false,
                (Some("+"), _) | (_, Some("+")) => {}
                (Some(one), Some(two)) if one == two => {}
                (Some(_), Some(_)) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::topic::is_topic_of_any_length;
    use proptest::prelude::*;

    use super::*;

    fn filter(text: &str) -> Filter {
        Filter::new(text).unwrap_or_else(|| panic!("{text:?} is a filter"))
    }

    /// Section 4.7, word for word.
    fn reference(filter: &[&str], topic: &[&str], first: bool) -> bool {
        match (filter, topic) {
            (["#"], [head, ..]) if first => !head.starts_with('$'),
            (["#"], _) => true,
            ([], []) => true,
            (["+", filter @ ..], [level, topic @ ..]) => {
                !(first && level.starts_with('$')) && reference(filter, topic, false)
            }
            ([one, filter @ ..], [two, topic @ ..]) => one == two && reference(filter, topic, false),
            _ => false,
        }
    }

    fn plainly(filter: &str, topic: &str) -> bool {
        reference(&filter.split('/').collect::<Vec<_>>(), &topic.split('/').collect::<Vec<_>>(), true)
    }

    #[test]
    fn the_examples_of_the_standard() {
        for (text, yes, no) in [
            ("sport/tennis/player1/#", &["sport/tennis/player1", "sport/tennis/player1/ranking"][..], &["sport"][..]),
            ("sport/#", &["sport", "sport/", "sport/a/b"], &["sports", "$sport"]),
            ("#", &["a", "/", "a/b"], &["$SYS", "$SYS/a"]),
            ("sport/tennis/+", &["sport/tennis/player1", "sport/tennis/"], &["sport/tennis", "sport/tennis/a/b"]),
            ("sport/+", &["sport/"], &["sport"]),
            ("+/+", &["/finance"], &["finance"]),
            ("/+", &["/finance"], &["finance"]),
            ("+", &["finance"], &["/finance", "$SYS"]),
            ("+/monitor/Clients", &["x/monitor/Clients"], &["$SYS/monitor/Clients"]),
            ("$SYS/#", &["$SYS", "$SYS/x"], &["SYS"]),
            ("$SYS/monitor/+", &["$SYS/monitor/Clients"], &["$SYS/monitor"]),
            ("+/tennis/#", &["a/tennis", "a/tennis/b"], &["a/b"]),
            ("ACCOUNTS", &["ACCOUNTS"], &["Accounts", "ACCOUNTS/"]),
        ] {
            assert!(yes.iter().all(|topic| filter(text).matches(topic)), "{text}");
            assert!(no.iter().all(|topic| !filter(text).matches(topic)), "{text}");
        }
        for text in ["", "a#", "a/b#", "#/a", "a/#/b", "a+", "+a/b", "a\0", "##", "++"] {
            assert_eq!(Filter::new(text), None, "{text:?}");
        }
        assert!(filter("a/".repeat(LEVELS).as_str()).is_deep() && !filter("$hw/events/device/+/+/twin/#").is_deep());
        assert!(
            is_topic_of_any_length("$hw/a b/ä//")
                && !is_topic_of_any_length("")
                && !is_topic_of_any_length("a/+")
                && !is_topic_of_any_length("#")
                && !is_topic_of_any_length("a\0")
        );
    }

    #[test]
    fn right_covers_narrower_filters() {
        for (wide, narrow, covers) in [
            ("$hw/events/device/default/t1/#", "$hw/events/device/default/t1/twin/+", true),
            ("$hw/events/device/default/t1/#", "$hw/events/device/default/t1", true),
            ("$hw/events/device/default/t1/#", "$hw/events/device/+/t1/twin/update", false),
            ("$hw/events/device/default/t1/#", "$hw/events/#", false),
            ("#", "$hw/events/#", false),
            ("+/events/#", "$hw/events/a", false),
            ("#", "+/a", true),
            ("a/+", "a/#", false),
            ("a/+", "a/+", true),
            ("a", "a/b", false),
        ] {
            assert_eq!(filter(wide).covers(&filter(narrow)), covers, "{wide} {narrow}");
        }
    }

    fn level() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["", "a", "b", "$a", "+"])
    }

    fn text() -> impl Strategy<Value = String> {
        (prop::collection::vec(level(), 1..5), any::<bool>()).prop_map(|(mut levels, rest)| {
            levels.extend(rest.then_some("#"));
            levels.join("/")
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn filters_match_as_a_plain_reading_of_the_standard(one in text(), two in text(), topic in text()) {
            let topic = topic.replace(['+', '#'], "a");
            let (Some(first), Some(second)) = (Filter::new(&one), Filter::new(&two)) else { return Ok(()) };
            prop_assume!(is_topic_of_any_length(&topic));
            prop_assert_eq!(first.matches(&topic), plainly(&one, &topic));
            if first.covers(&second) && second.matches(&topic) {
                prop_assert!(first.matches(&topic), "{} covers {}, but not {}", one, two, topic);
            }
            if first.matches(&topic) && second.matches(&topic) {
                prop_assert!(first.meets(&second) && second.meets(&first), "{} and {} meet in {}", one, two, topic);
            }
        }
    }
}
