//! Kubernetes quantities (`100m`, `64Mi`, `1e3`) as exact integers. Pure.

/// A quantity as a decimal: `digits * 10^exponent` or `digits * 10^exponent * 2^shift`.
/// `None` for text that is no quantity or a value outside 128 bits.
fn parts(text: &str) -> Option<(i128, i32, u32)> {
    let text = text.trim();
    let number_end =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let fraction_digits = i32::try_from(fraction.len()).ok()?;
    let (exponent, shift) = match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, 0),
    };
    Some((digits, exponent - fraction_digits, shift))
}

/// The value in units of `10^-scale`, rounded up as Kubernetes does (`scale` 3 gives milli).
fn scaled(text: &str, scale: i32) -> Option<i64> {
    let (digits, exponent, shift) = parts(text)?;
    let digits = digits.checked_mul(1i128.checked_shl(shift)?)?;
    let exponent = exponent.checked_add(scale)?;
    let power = 10i128.checked_pow(exponent.unsigned_abs());
    let value = if exponent >= 0 {
        digits.checked_mul(power?)?
    } else {
        // Dividing by more than 128 bits hold leaves less than one unit.
        power.map_or(digits.signum().max(0), |power| {
            digits.div_euclid(power) + i128::from(digits.rem_euclid(power) != 0)
        })
    };
    i64::try_from(value).ok()
}

/// Whole units, rounded up: bytes of `64Mi`, cores of `1500m` (2).
pub fn value(text: &str) -> Option<i64> {
    scaled(text, 0)
}

/// Thousandths, rounded up: `0.1` and `100m` give 100.
pub fn milli_value(text: &str) -> Option<i64> {
    scaled(text, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact_and_round_up() {
        let whole = [
            ("64Mi", 64 << 20),
            ("1500m", 2),
            ("1e3", 1000),
            ("1.5Gi", 3 << 29),
            ("0", 0),
            ("100k", 100_000),
            ("1E", 1_000_000_000_000_000_000),
            ("12E2", 1200),
            ("-1", -1),
            ("1n", 1),
        ];
        for (text, expected) in whole {
            assert_eq!(value(text), Some(expected), "{text}");
        }
        for (text, expected) in [("0.1", 100), ("100m", 100), ("2", 2000), ("1u", 1), ("0.0005", 1)] {
            assert_eq!(milli_value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_none() {
        for text in ["", "Mi", "1 Mi", "1mi", "--1", "1e", "99999999999999999999E", "1e999999999999"] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
