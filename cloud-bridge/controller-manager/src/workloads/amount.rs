//! Counts that may be percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A count, or a percentage of `total`, rounded up or down (K8s `GetScaledValueFromIntOrPercent`).
pub(crate) fn scaled(value: Option<&IntOrString>, total: i64, up: bool) -> i64 {
    match value {
        None => 0,
        Some(IntOrString::Int(count)) => (*count).into(),
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.strip_suffix('%').and_then(|digits| digits.parse().ok()).unwrap_or_default();
            let parts = percent.saturating_mul(total);
            if up { parts.saturating_add(99) / 100 } else { parts / 100 }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn percentages_round_up_for_surge_and_down_for_unavailable() {
        let cases = [(json!(3), 10, 3, 3), (json!("25%"), 10, 3, 2), (json!("1%"), 1, 1, 0), (json!("x"), 10, 0, 0)];
        for (value, total, up, down) in cases {
            let value = serde_json::from_value(value).unwrap();
            assert_eq!(
                (scaled(Some(&value), total, true), scaled(Some(&value), total, false)),
                (up, down),
                "{value:?}"
            );
        }
        assert_eq!(scaled(None, 10, true), 0);
    }
}
