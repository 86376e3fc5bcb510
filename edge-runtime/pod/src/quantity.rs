//! Kubernetes quantities (`100m`, `64Mi`, `1e3`) as integers. Pure.

/// Value in thousandths, rounded up, as cpu is counted. `None` if malformed or out of range.
pub fn milli(text: &str) -> Option<i64> {
    scaled(text, 1000)
}

/// Value in whole units, rounded up, as memory is counted. `None` if malformed or out of range.
pub fn value(text: &str) -> Option<i64> {
    scaled(text, 1)
}

/// Bytes as Kubernetes prints them: `100Mi`, and `1000` where no binary unit divides the number.
pub fn binary(amount: u64) -> String {
    with_suffix(amount, 1024, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// Numbers of things as Kubernetes prints them: `50k`, `1234`.
pub fn decimal(amount: u64) -> String {
    with_suffix(amount, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

fn with_suffix(mut amount: u64, unit: u64, suffixes: &[&str]) -> String {
    let mut suffixes = suffixes.iter();
    let mut suffix = suffixes.next();
    while amount > 0 && amount.is_multiple_of(unit) {
        let Some(next) = suffixes.next() else { break };
        suffix = Some(next);
        amount /= unit;
    }
    format!("{amount}{}", suffix.unwrap_or(&""))
}

fn scaled(text: &str, scale: i128) -> Option<i64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 || fraction.len() > 15 {
        return None;
    }
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let (multiply, divide) = suffix_factor(suffix)?;
    let divide = divide.checked_mul(10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let numerator = digits.checked_mul(multiply)?.checked_mul(scale)?;
    let magnitude = numerator / divide + i128::from(!negative && numerator % divide != 0);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Numerator and denominator of a suffix.
fn suffix_factor(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10i128.checked_pow(exponent.unsigned_abs().min(30))?;
            if exponent >= 0 { (factor, 1) } else { (1, factor) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_every_form() {
        assert_eq!(milli("100m"), Some(100));
        assert_eq!(milli("0.1"), Some(100));
        assert_eq!(milli("1.5"), Some(1500));
        assert_eq!(milli("2"), Some(2000));
        assert_eq!(milli("1n"), Some(1));
        assert_eq!(value("64Mi"), Some(64 << 20));
        assert_eq!(value("1.5Gi"), Some(3 << 29));
        assert_eq!(value("128974848"), Some(128_974_848));
        assert_eq!(value("129e6"), Some(129_000_000));
        assert_eq!(value("129M"), Some(129_000_000));
        assert_eq!(value("123456m"), Some(124));
        assert_eq!(value("1E"), Some(1_000_000_000_000_000_000));
        assert_eq!(value("1E3"), Some(1000));
        assert_eq!(value("-5"), Some(-5));
        assert_eq!(value(".5"), Some(1));
        assert_eq!(value("5."), Some(5));
    }

    #[test]
    fn amounts_are_printed_with_the_largest_whole_unit() {
        assert_eq!([0, 1, 1024, 100 << 20, 1500].map(binary), ["0", "1", "1Ki", "100Mi", "1500"]);
        assert_eq!([0, 999, 50_000, 1_000_001].map(decimal), ["0", "999", "50k", "1000001"]);
    }

    #[test]
    fn malformed_quantities_are_refused() {
        for text in ["", ".", "Mi", "1.2.3", "1 Mi", "1mi", "1e", "9223372036854775808", "1Eii", "0x1"] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
