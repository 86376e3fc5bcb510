//! The rules for names, labels and qualified names, with the texts that explain a breach. Pure.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn lower_label(text: &str) -> bool {
    let ok = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if ok(*first) && ok(*last))
        && bytes.iter().all(|c| ok(*c) || *c == b'-')
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// Why the text is no RFC 1123 label.
pub(super) fn dns_label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some(too_long(63));
    }
    (!lower_label(text)).then(|| LABEL.to_owned())
}

/// Why the text is no RFC 1035 label.
pub(super) fn dns_1035_label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some(too_long(63));
    }
    let letter = text.bytes().next().is_some_and(|c| c.is_ascii_lowercase());
    (!letter || !lower_label(text)).then(|| LABEL_1035.to_owned())
}

/// Why the text is no RFC 1123 subdomain.
pub(super) fn dns_subdomain(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some(too_long(253));
    }
    (!text.split('.').all(lower_label)).then(|| SUBDOMAIN.to_owned())
}

fn word(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(f), Some(l)) if f.is_ascii_alphanumeric() && l.is_ascii_alphanumeric())
        && bytes.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}

/// Why the text is no qualified name (`[prefix/]name`), as label keys and finalizers are.
pub(super) fn qualified_name(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((_, rest)) if rest.contains('/') => {
            return Some(format!(
                "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
        Some((prefix, name)) => (Some(prefix), name),
    };
    match prefix {
        Some("") => return Some("prefix part must be non-empty".into()),
        Some(prefix) => {
            if let Some(why) = dns_subdomain(prefix) {
                return Some(format!("prefix part {why}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some(format!("name part {}", too_long(63)));
    }
    (!word(name)).then(|| format!("name part {QUALIFIED}"))
}

/// Why the text is no label value.
pub(super) fn label_value(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some(too_long(63));
    }
    (!text.is_empty() && !word(text)).then(|| VALUE.to_owned())
}

/// Why the text cannot be one segment of a path.
pub(super) fn path_segment(text: &str) -> Option<String> {
    match text {
        "." | ".." => Some(format!("may not be '{text}'")),
        _ => ['/', '%'].into_iter().find(|c| text.contains(*c)).map(|c| format!("may not contain '{c}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        assert!(dns_label("a-1").is_none() && dns_label("a.b").is_some() && dns_label("-a").is_some());
        assert!(dns_subdomain("a.b-c.d").is_none() && dns_subdomain("a..b").is_some() && dns_subdomain("A").is_some());
        assert!(dns_1035_label("a1").is_none() && dns_1035_label("1a").is_some());
        assert!(qualified_name("example.com/My_name").is_none() && qualified_name("a/b/c").is_some());
        assert!(label_value("").is_none() && label_value("a b").is_some());
        assert!(path_segment("a/b").is_some() && path_segment("a:b").is_none());
    }
}
