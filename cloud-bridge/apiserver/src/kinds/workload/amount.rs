//! A count of pods or a percentage of them (ValidatePositiveIntOrPercent of pkg/apis/apps/validation).

use serde_json::Value;

use apimachinery::field::{Errors, FieldError, not_negative};

/// The number of a count or of a percentage; `None` for one that is wrong.
pub(crate) fn amount(errors: &mut Errors, path: &str, value: &Value) -> Option<u64> {
    if let Value::String(text) = value {
        let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.filter(|digits| !digits.is_empty()).map(|digits| digits.parse().unwrap_or(u64::MAX));
        if number.is_none() {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                          '93%', regex used for validation is '[0-9]+%')";
            errors.push(FieldError::invalid(path, value, detail));
        }
        return number;
    }
    let count = value.as_i64().unwrap_or_default();
    not_negative(errors, path.to_owned(), count);
    u64::try_from(count).ok()
}

/// A percentage is at most all.
pub(crate) fn at_most_all(errors: &mut Errors, path: &str, value: &Value, amount: Option<u64>) {
    if value.is_string() && amount.is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, value, "must not be greater than 100%"));
    }
}
