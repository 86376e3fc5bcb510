//! The syntax rules for names, labels, ports and keys, each as `fn(&str) -> Vec<String>`: the complaints in the
//! API server's words, empty when the text is fine. Follows apimachinery's util/validation; written without
//! regular expressions because the patterns are this small.

const LABEL_CHARS: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_CHARS: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_RULE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// Longest RFC 1123 subdomain.
const SUBDOMAIN_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// A rule's text with examples and the pattern, as the API server joins them.
pub fn pattern_message(rule: &str, pattern: &str, examples: &[&str]) -> String {
    let mut text = format!("{rule} (e.g. ");
    for (i, example) in examples.iter().enumerate() {
        if i > 0 {
            text.push_str(" or ");
        }
        text.push_str(&format!("'{example}', "));
    }
    text + &format!("regex used for validation is '{pattern}')")
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn is_label(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    between(text, lower, lower, |b| lower(b) || b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// Non-empty, first and last byte of the given classes, all between of the third.
fn between(text: &str, first: impl Fn(u8) -> bool, last: impl Fn(u8) -> bool, any: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&a), Some(&z)) => first(a) && last(z) && bytes.iter().all(|&b| any(b)),
        _ => false,
    }
}

fn is_qualified_part(text: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_alphanumeric();
    between(text, alnum, alnum, |b| alnum(b) || matches!(b, b'-' | b'_' | b'.'))
}

/// RFC 1123 label: `my-name`.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label(text) {
        errors.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            pattern_message(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                LABEL_CHARS,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// RFC 1123 subdomain: `example.com`.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if !is_subdomain(text) {
        errors.push(pattern_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            &format!("{LABEL_CHARS}(\\.{LABEL_CHARS})*"),
            &["example.com"],
        ));
    }
    errors
}

/// RFC 1123 subdomain whose parts may begin with and contain underscores (DNS search paths).
pub fn dns_subdomain_with_underscore(text: &str) -> Vec<String> {
    let part = |text: &str| {
        let rest = text.strip_prefix('_').unwrap_or(text);
        let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        between(rest, lower, lower, |b| lower(b) || matches!(b, b'-' | b'_'))
    };
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if !text.split('.').all(part) {
        let chars = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        errors.push(pattern_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            &format!("{chars}(\\.{chars})*"),
            &["example.com"],
        ));
    }
    errors
}

/// RFC 1035 label: begins with a letter (names in a CustomResourceDefinition).
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(pattern_message(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// Anything that can be one segment of a path (names of events).
pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let bad = ['/', '%'].into_iter().filter(|c| text.contains(*c));
    bad.map(|c| format!("may not contain '{c}'")).collect()
}

/// A label key: an optional DNS subdomain and `/`, then a name.
pub fn qualified_name(text: &str) -> Vec<String> {
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let parts: Vec<&str> = text.split('/').collect();
    let mut errors = Vec::new();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > SUBDOMAIN_MAX {
                    errors.push(format!("prefix part must be no more than {SUBDOMAIN_MAX} bytes"));
                }
                let pattern = dns_subdomain(prefix).into_iter().filter(|m| !m.starts_with("must be no more"));
                errors.extend(pattern.map(|m| format!("prefix part {m}")));
            }
            name
        }
        _ => {
            let rule = pattern_message(QUALIFIED_RULE, QUALIFIED_CHARS, EXAMPLES);
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {rule} {tail}")];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_qualified_part(name) {
        errors.push(format!("name part {}", pattern_message(QUALIFIED_RULE, QUALIFIED_CHARS, EXAMPLES)));
    }
    errors
}

/// A label value: empty, or like the name part of a key.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        errors.push(pattern_message(
            &format!("a valid label must be an empty string or {}", QUALIFIED_RULE.trim_start_matches("must ")),
            &format!("({QUALIFIED_CHARS})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// The name of a port: an IANA service name.
pub fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push(too_long(15));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A port number.
pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// A user or group id.
pub fn user_or_group_id(id: i64) -> Vec<String> {
    in_range(id, 0, i64::from(i32::MAX))
}

/// A number within bounds, both allowed.
pub fn in_range(number: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&number) {
        Vec::new()
    } else {
        vec![format!("must be between {low} and {high}, inclusive")]
    }
}

/// The name of an environment variable, by the relaxed rule of Kubernetes 1.34.
pub fn env_var_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if text.bytes().any(|b| !(b' '..=b'~').contains(&b) || b == b'=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='".into(),
        );
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(fits) {
        errors.push(pattern_message(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match text {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of an HTTP header.
pub fn http_header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    let rule = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![pattern_message(rule, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// An IP address in the API server's legacy sense.
pub fn ip_address(text: &str) -> Vec<String> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Vec::new();
    }
    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rules() {
        assert!(dns_label("a-1").is_empty());
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert!(dns_label("A")[0].contains("(e.g. 'my-name',  or '123-abc', regex used for validation is '"));
        assert!(dns_subdomain("a.b-c.1").is_empty());
        assert!(!dns_subdomain("a..b").is_empty());
        assert!(dns_1035_label("a1").is_empty() && !dns_1035_label("1a").is_empty());
        assert!(path_segment("a:b").is_empty() && !path_segment("a/b").is_empty());
        assert!(qualified_name("example.com/Name_1").is_empty());
        assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
        assert!(label_value("").is_empty());
        assert!(!label_value("-x").is_empty());
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("8080"), ["must contain at least one letter (a-z)"]);
        assert_eq!(config_map_key("..x"), ["must not start with '..'"]);
        assert!(env_var_name("data-1 x").is_empty());
        assert!(!env_var_name("a=b").is_empty());
        assert!(dns_subdomain_with_underscore("_sip._tcp.example").is_empty());
    }
}
