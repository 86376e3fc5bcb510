//! Names as Kubernetes takes them (K8s apimachinery/util/validation). Pure.

/// RFC 1123 label: `IsDNS1123Label`.
pub fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_plain(name)
}

/// Labels of any length with dots between them: `IsDNS1123Subdomain`.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_plain)
}

fn is_plain(label: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = label.bytes().next().is_some_and(plain) && label.bytes().last().is_some_and(plain);
    ends && label.bytes().all(|b| plain(b) || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        let long = "a".repeat(64);
        for (name, label, subdomain) in [
            ("a", true, true),
            ("a-1", true, true),
            ("a.b", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("A", false, false),
            ("a..b", false, false),
            (long.as_str(), false, true),
        ] {
            assert_eq!((is_label(name), is_subdomain(name)), (label, subdomain), "{name}");
        }
        assert!(!is_subdomain(&"a.".repeat(127)) && !is_subdomain(&format!("{}a", "a.".repeat(127))));
    }
}
