//! Kubernetes quantities: `100m`, `1.5Gi`, `1e3`. Parse, compare, and write in canonical form. Follows
//! apimachinery's api/resource: a value is exact down to nano units, larger precision is rounded up.

use std::cmp::Ordering;

use serde_json::Value;

/// How the suffix was written, which decides how the canonical form is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `Ki`, `Mi`, ...
    Binary,
    /// `m`, `k`, `M`, ... or none.
    Decimal,
    /// `e3`.
    Exponent,
}

/// An amount in nano units with the way it was written. Equality and order are by amount.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Error of a text that is not a quantity, in the words of the API server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
pub struct ParseQuantityError;

const NANO: i128 = 1_000_000_000;
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::Decimal };

    /// Whole units.
    pub fn from_units(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANO, format: Format::Decimal }
    }

    /// Thousandths.
    pub fn from_millis(millis: i64) -> Self {
        Self { nanos: i128::from(millis) * (NANO / 1000), format: Format::Decimal }
    }

    /// Parses a quantity as a manifest writes it.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let split = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(split);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(ParseQuantityError);
        }
        let (scale, format) = Self::suffix(suffix)?;
        let magnitude = scaled(whole, fraction, scale).ok_or(ParseQuantityError)?;
        Ok(Self { nanos: if negative { -magnitude } else { magnitude }, format })
    }

    /// Reads a quantity field, which JSON may hold as a string or a number.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text).ok(),
            Value::Number(number) => Self::parse(&number.to_string()).ok(),
            _ => None,
        }
    }

    fn suffix(suffix: &str) -> Result<(Scale, Format), ParseQuantityError> {
        if let Some((_, shift)) = BINARY.iter().find(|(s, _)| *s == suffix) {
            return Ok((Scale::Shift(*shift), Format::Binary));
        }
        if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
            return Ok((Scale::Power(*power), Format::Decimal));
        }
        let exponent = suffix.strip_prefix(['e', 'E']).ok_or(ParseQuantityError)?;
        let power: i32 = exponent.parse().map_err(|_| ParseQuantityError)?;
        Ok((Scale::Power(power), Format::Exponent))
    }

    /// Rounded up to whole units.
    pub fn units(self) -> i64 {
        saturate(div_up(self.nanos, NANO))
    }

    /// Rounded up to thousandths.
    pub fn millis(self) -> i64 {
        saturate(div_up(self.nanos, NANO / 1000))
    }

    /// True for a whole number of units.
    pub fn is_integer(self) -> bool {
        self.millis() % 1000 == 0
    }

    /// True below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// True for zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The same amount with precision beyond thousandths rounded up, as pod resources are stored.
    pub fn rounded_to_millis(self) -> Self {
        Self { nanos: div_up(self.nanos, NANO / 1000) * (NANO / 1000), ..self }
    }

    /// The sum, written as `self` is unless `self` is zero.
    pub fn plus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// The difference.
    pub fn minus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos), ..self }
    }
}

#[derive(Debug, Clone, Copy)]
enum Scale {
    /// Times 2 to this power.
    Shift(u32),
    /// Times 10 to this power.
    Power(i32),
}

/// `whole.fraction` times the scale in nano units, rounded up; capped at the largest 64-bit number of units.
fn scaled(whole: &str, fraction: &str, scale: Scale) -> Option<i128> {
    const CAP: i128 = i64::MAX as i128 * NANO;
    // Nine digits after the point are kept exactly; of further ones only matters whether they are all zero.
    let (kept, beyond) = fraction.split_at(fraction.len().min(18));
    let digits = format!("{whole}{kept}");
    let digits = digits.trim_start_matches('0');
    if digits.len() > 36 {
        return Some(CAP);
    }
    let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    if mantissa == 0 && !beyond.bytes().any(|b| b != b'0') {
        return Some(0);
    }
    let mut denominator = 10i128.checked_pow(u32::try_from(kept.len()).ok()?)?;
    let numerator = match scale {
        Scale::Shift(shift) => mantissa.checked_mul(1i128 << shift)?.checked_mul(NANO),
        Scale::Power(power) => match u32::try_from(i64::from(power) + 9) {
            Ok(power) => 10i128.checked_pow(power).and_then(|p| mantissa.checked_mul(p)),
            Err(_) => {
                let down = u32::try_from(-(i64::from(power) + 9)).ok()?;
                denominator = denominator.checked_mul(10i128.checked_pow(down)?)?;
                Some(mantissa)
            }
        },
    };
    let Some(numerator) = numerator else { return Some(CAP) };
    let mut nanos = div_up(numerator, denominator);
    if beyond.bytes().any(|b| b != b'0') && numerator % denominator == 0 {
        nanos += 1;
    }
    Some(nanos.min(CAP))
}

fn div_up(n: i128, d: i128) -> i128 {
    let quotient = n / d;
    if n % d > 0 { quotient + 1 } else { quotient }
}

fn saturate(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl std::fmt::Display for Quantity {
    /// The canonical form: the largest suffix that leaves a whole number, none of the digits lost.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // Binary suffixes cannot write fractions, and the API server does not use them below 1024 either.
        let binary = self.format == Format::Binary && self.nanos.abs() >= 1024 * NANO && self.nanos % NANO == 0;
        if binary {
            let units = self.nanos / NANO;
            let best = BINARY.iter().rev().find(|(_, shift)| units % (1i128 << shift) == 0);
            return match best {
                Some((suffix, shift)) => write!(f, "{}{suffix}", units >> shift),
                None => write!(f, "{units}"),
            };
        }
        let best = DECIMAL.iter().rev().find(|(_, power)| {
            let unit = 10i128.pow(u32::try_from(power + 9).unwrap_or_default());
            self.nanos % unit == 0
        });
        let (suffix, power) = best.copied().unwrap_or(("n", -9));
        let number = self.nanos / 10i128.pow(u32::try_from(power + 9).unwrap_or_default());
        match (self.format, power) {
            (Format::Exponent, 0) => write!(f, "{number}"),
            (Format::Exponent, power) => write!(f, "{number}e{power}"),
            _ => write!(f, "{number}{suffix}"),
        }
    }
}

/// Brings every quantity of a resource list to its canonical form, rounded up to thousandths.
pub fn canonicalize_list(list: &mut Value) {
    for value in list.as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
        if let Some(quantity) = Quantity::from_value(value) {
            *value = quantity.rounded_to_millis().to_string().into();
        }
    }
}

/// Brings one quantity field to its canonical form.
pub fn canonicalize(value: &mut Value) {
    if let Some(quantity) = Quantity::from_value(value) {
        *value = quantity.to_string().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Quantity::parse(text).map_or_else(|e| e.to_string(), |q| q.to_string())
    }

    #[test]
    fn canonical_forms() {
        for (text, expected) in [
            ("0", "0"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("512", "512"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E", "1E"),
            ("64Mi", "64Mi"),
            ("128974848", "128974848"),
            ("-1", "-1"),
            ("+2", "2"),
            (".5", "500m"),
            ("1n", "1n"),
            ("1500u", "1500u"),
            ("100000000000000000000", "9223372036854775807"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn exponents_beyond_reason_do_not_overflow() {
        for exponent in ["2147483647", "-2147483648", "2147483639", "-2147483640", "400", "-400"] {
            let _ = canonical(&format!("1e{exponent}"));
            assert_eq!(canonical(&format!("0e{exponent}")), "0");
        }
        assert_eq!(canonical("1e400"), "9223372036854775807");
    }

    #[test]
    fn junk_is_refused() {
        for text in ["", "x", "1.2.3", "1KiB", "1e", "e3", "1 Gi", "--1"] {
            assert_eq!(Quantity::parse(text), Err(ParseQuantityError), "{text}");
        }
    }

    #[test]
    fn amounts_compare_and_round_up() {
        let q = |t| Quantity::parse(t).expect("a quantity");
        assert!(q("1") > q("999m"));
        assert_eq!(q("1Gi"), q("1073741824"));
        assert_eq!(q("1.0001").millis(), 1001);
        assert_eq!(q("1.1").units(), 2);
        assert_eq!(q("0.0001").rounded_to_millis().to_string(), "1m");
        assert!(!q("1500m").is_integer() && q("2").is_integer());
    }
}
