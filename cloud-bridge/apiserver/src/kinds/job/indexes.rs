//! Indexes of pods as a Job writes them: `0-3,5`.

/// The first and the last index of an interval, in increasing order; or its error.
fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let mut limits = text.split('-');
    let (first, last) = (limits.next().unwrap_or_default(), limits.next());
    if limits.next().is_some() {
        return Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated \
             by '-'"
        ));
    }
    let index = |text: &str| -> Result<i64, String> {
        let number: i64 = text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let first = index(first)?;
    let Some(last) = last else { return Ok((first, first)) };
    let last = index(last)?;
    if first >= last {
        return Err(format!("non-increasing order, previous: {first}, current: {last}"));
    }
    Ok((first, last))
}

/// The number of indexes below the number of completions.
///
/// # Errors
/// The reason why they are invalid.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut before) = (0, None);
    if text.is_empty() {
        return Ok(total);
    }
    for part in text.split(',') {
        let (first, last) = interval(part, completions)?;
        if let Some(before) = before.filter(|before| *before >= first) {
            return Err(format!("non-increasing order, previous: {before}, current: {first}"));
        }
        total += last - first + 1;
        before = Some(last);
    }
    Ok(total)
}

/// The first index that both have. Both are in order; what cannot be read is left out, for it is refused by itself.
pub(super) fn overlap(one: &str, other: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (one, other) = (read(one), read(other));
    let (mut ones, mut others) = (one.iter().peekable(), other.iter().peekable());
    while let (Some((first, last)), Some((other_first, other_last))) = (ones.peek(), others.peek()) {
        if first <= other_last && other_first <= last {
            return Some(*first.max(other_first));
        }
        if first <= other_first {
            ones.next();
        } else {
            others.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_in_order_and_in_range() {
        assert_eq!((count("", 1), count("0-3,5", 6), count("2", 3)), (Ok(0), Ok(5), Ok(1)));
        for (text, why) in [
            ("1-2-3", "the fragment \"1-2-3\" violates"),
            ("a", "cannot convert string to integer for index: \"a\""),
            ("1,", "cannot convert string to integer for index: \"\""),
            ("6", "too large index: \"6\""),
            ("0-6", "too large index: \"6\""),
            ("3-3", "non-increasing order, previous: 3, current: 3"),
            ("0-3,3", "non-increasing order, previous: 3, current: 3"),
        ] {
            let error = count(text, 6).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }

    #[test]
    fn the_first_common_index_is_found() {
        assert_eq!(overlap("0-3,7", "4-6,8", 9), None);
        assert_eq!(overlap("0-3,7", "x,5-7", 9), Some(7));
        assert_eq!(overlap("", "1", 9), None);
    }
}
