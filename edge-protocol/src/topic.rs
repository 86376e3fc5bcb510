//! Topics and topic filters of MQTT (OASIS standard 3.1.1, section 4.7), for both ends of the link. Knows no messages.

/// Longest filter or topic, in bytes.
const LONGEST: usize = 1_024;

/// Whether it is a valid filter of an acceptable length.
pub fn is_filter(filter: &str) -> bool {
    filter.len() <= LONGEST && is_filter_of_any_length(filter)
}

/// Whether it is one by the standard.
pub fn is_filter_of_any_length(filter: &str) -> bool {
    let mut levels = filter.split('/').rev();
    let last = levels.next().is_some_and(|last| last == "#" || is_level(last));
    !filter.is_empty() && !filter.contains('\0') && last && levels.all(is_level)
}

fn is_level(level: &str) -> bool {
    level == "+" || !level.contains(['+', '#'])
}

/// Whether a message can be published to it, and its length is acceptable.
pub fn is_topic(topic: &str) -> bool {
    topic.len() <= LONGEST && is_topic_of_any_length(topic)
}

/// Whether something can be published to it by the standard.
pub fn is_topic_of_any_length(topic: &str) -> bool {
    !topic.is_empty() && !topic.contains(['+', '#', '\0'])
}

/// Whether a filter takes every topic that another one takes; a topic is a filter, too.
pub fn covers(filter: &str, other: &str) -> bool {
    // Topics of the broker's own are in no filter that begins with a wildcard (4.7.2).
    if other.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut others = other.split('/');
    for level in filter.split('/') {
        match (level, others.next()) {
            // Of the level above it, too.
            ("#", _) => return true,
            (_, None | Some("#")) => return false,
            ("+", Some(_)) => {}
            (level, Some(other)) if level == other => {}
            _ => return false,
        }
    }
    others.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_of_the_standard() {
        for good in ["a", "a/b", "/", "a//b", "#", "+", "a/+/b", "a/#", "+/+/#", "ä b/{x}"] {
            assert!(is_filter(good), "{good}");
        }
        for bad in ["", "a#", "a/#/b", "#/a", "a+", "a/b+/c", "a\0b", &"x".repeat(1_025)] {
            assert!(!is_filter(bad), "{bad}");
        }
        assert!(is_topic("a/b") && !is_topic("a/+") && !is_topic("a/#") && !is_topic(""));
    }

    #[test]
    fn topics_are_in_filters_as_in_the_standard() {
        for (filter, inside, outside) in [
            ("a/b", &["a/b"][..], &["a", "a/b/", "a/b/c", "A/b"][..]),
            ("a/+", &["a/b", "a/"], &["a", "a/b/c", "b/b"]),
            ("a/+/c", &["a/b/c", "a//c"], &["a/c", "a/b/d"]),
            ("a/#", &["a", "a/b", "a/b/c", "a/"], &["b", "ab"]),
            ("#", &["a", "/", "a/b"], &["$SYS/x"]),
            ("+/x", &["a/x", "/x"], &["$SYS/x", "x"]),
            ("$SYS/#", &["$SYS/x"], &["SYS/x"]),
        ] {
            assert!(inside.iter().all(|topic| covers(filter, topic)), "{filter}");
            assert!(!outside.iter().any(|topic| covers(filter, topic)), "{filter}");
        }
    }

    #[test]
    fn wider_filters_cover_narrower_ones() {
        for (wide, narrow) in [("a/#", "a/+/b"), ("a/#", "a/#"), ("a/+", "a/b"), ("#", "+/a"), ("a/+/#", "a/b/#")] {
            assert!(covers(wide, narrow), "{wide} {narrow}");
            assert!(wide == narrow || !covers(narrow, wide), "{narrow} {wide}");
        }
        assert!(!covers("a/+", "a/#") && !covers("a/+/c", "a/b/+"));
    }
}
