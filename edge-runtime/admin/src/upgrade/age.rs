//! Which of two versions is the older one. Pure.

use std::cmp::Ordering;

/// Compares two versions as Debian does (deb-version(7), "Sorting algorithm"), without epochs and revisions: runs of digits by their
/// number, all else by characters, letters before other characters, `~` before the end. A leading `v` is left out.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.trim_start_matches('v'), b.trim_start_matches('v'));
    while !(a.is_empty() && b.is_empty()) {
        let ((word, rest), (other_word, other_rest)) = (split(a, false), split(b, false));
        let ((number, rest), (other_number, other_rest)) = (split(rest, true), split(other_rest, true));
        let order = by_characters(word, other_word).then_with(|| by_number(number, other_number));
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest, other_rest);
    }
    Ordering::Equal
}

/// Splits off the longest prefix of digits, or of other characters.
fn split(text: &str, digits: bool) -> (&str, &str) {
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    text.split_at(end)
}

fn by_characters(a: &str, b: &str) -> Ordering {
    let rank = |c: Option<char>| match c {
        Some('~') => (0, '~'),
        None => (1, ' '),
        Some(c) if c.is_ascii_alphabetic() => (2, c),
        Some(c) => (3, c),
    };
    let (mut a, mut b) = (a.chars(), b.chars());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (x, y) if rank(x) == rank(y) => {}
            (x, y) => return rank(x).cmp(&rank(y)),
        }
    }
}

fn by_number(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_dpkg_orders_them() {
        let ascending = [
            "0",
            "0.1.0~rc1",
            "0.1.0~rc2",
            "0.1.0",
            "v0.1.0+git5",
            "0.1.1",
            "0.1.9",
            "0.1.10",
            "0.2",
            "1.0~",
            "1.0",
            "1.0a",
            "10.0",
            "99999999999999999999999.0",
        ];
        for (at, one) in ascending.iter().enumerate() {
            for (other_at, other) in ascending.iter().enumerate() {
                assert_eq!(compare(one, other), at.cmp(&other_at), "{one} {other}");
            }
        }
        assert_eq!(compare("1.0.0", "1.00.0"), Ordering::Equal);
    }
}
