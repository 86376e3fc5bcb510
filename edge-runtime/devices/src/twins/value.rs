//! Types and ranges of values in a model, and whether a value fits. Does not know devices.

/// A property of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    /// Type in lower case.
    pub(super) kind: String,
    pub(super) access: String,
    pub(super) min: String,
    pub(super) max: String,
}

impl Rule {
    /// # Errors
    /// Returns the problem of the value as text.
    pub(super) fn check(&self, value: &str) -> Result<(), String> {
        match self.kind.as_str() {
            "int" | "integer" => match value.parse::<i128>() {
                Ok(number) => self.check_range(value, |bound| Some(number.cmp(&bound.parse().ok()?))),
                Err(_) => Err(format!("{} is no integer", quoted(value))),
            }
            .map_err(|why| self.named(&why)),
            "float" | "double" => match value.parse::<f64>().ok().filter(|number| number.is_finite()) {
                Some(_) => self.check_range(value, |_| None),
                None => Err(format!("{} is no finite number", quoted(value))),
            }
            .map_err(|why| self.named(&why)),
            "boolean" | "bool" => match value.to_ascii_lowercase().as_str() {
                "true" | "false" | "1" | "0" => Ok(()),
                _ => Err(self.named(&format!("{} is neither true nor false", quoted(value)))),
            },
            _ => Ok(()),
        }
    }

    /// `exact` compares with a bound where doubles would not do.
    fn check_range(&self, value: &str, exact: impl Fn(&str) -> Option<std::cmp::Ordering>) -> Result<(), String> {
        let compare = |bound: &str| {
            let bound = bound.trim();
            exact(bound).or_else(|| value.parse::<f64>().ok()?.partial_cmp(&bound.parse().ok()?))
        };
        // A bound that is not a number is ignored.
        if compare(&self.min).is_some_and(std::cmp::Ordering::is_lt) {
            return Err(format!("{} is below the minimum {}", quoted(value), self.min.trim()));
        }
        if compare(&self.max).is_some_and(std::cmp::Ordering::is_gt) {
            return Err(format!("{} is above the maximum {}", quoted(value), self.max.trim()));
        }
        Ok(())
    }

    fn named(&self, why: &str) -> String {
        format!("{why} (type {})", self.kind)
    }
}

/// A value that may stand in an answer: cut, because answers are kept small.
fn quoted(value: &str) -> String {
    let shown: String = value.chars().take(64).collect();
    format!("{shown:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: &str, min: &str, max: &str) -> Rule {
        Rule { kind: kind.into(), min: min.into(), max: max.into(), access: String::new() }
    }

    #[test]
    fn values_fit_their_type() {
        for (kind, good, bad) in [
            ("int", &["0", "-7", "+3", "9223372036854775808"][..], &["", "1.0", "x", "1e3"][..]),
            ("float", &["1", "-2.5", "1e-3"], &["", "NaN", "inf", "1,5"]),
            ("double", &["1.7976931348623157e308"], &["1e999"]),
            ("boolean", &["true", "FALSE", "1"], &["", "yes", "2"]),
            ("string", &["", "{ \"a\": 1 }"], &[]),
            ("bytes", &["\u{1f600}"], &[]),
            ("stream", &["rtsp://x"], &[]),
            ("updated", &["anything"], &[]),
        ] {
            for value in good {
                assert_eq!(rule(kind, "", "").check(value), Ok(()), "{kind} {value}");
            }
            for value in bad {
                assert!(rule(kind, "", "").check(value).is_err(), "{kind} {value}");
            }
        }
    }

    #[test]
    fn values_stay_between_minimum_and_maximum() {
        let temp = rule("float", "-40", "125");
        assert_eq!(temp.check("125.0"), Ok(()));
        assert_eq!(temp.check("125.1"), Err("\"125.1\" is above the maximum 125 (type float)".into()));
        assert_eq!(temp.check("-41"), Err("\"-41\" is below the minimum -40 (type float)".into()));
        // Beyond what a double tells apart.
        let big = rule("int", "9007199254740993", "");
        assert!(big.check("9007199254740992").is_err());
        assert_eq!(big.check("9007199254740993"), Ok(()));
        assert_eq!(rule("int", "low", "1.5").check("1"), Ok(()));
        assert!(rule("int", "low", "1.5").check("2").is_err());
        assert_eq!(rule("string", "1", "2").check("9"), Ok(()));
    }
}
