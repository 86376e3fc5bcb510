//! Names of properties as rules write them.

/// Words that CEL keeps for itself (K8s apiserver pkg/cel escaping).
const RESERVED: [&str; 18] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
];

/// How a rule names this property; `None` when no rule can.
pub(crate) fn escape(name: &str) -> Option<String> {
    let fits = |(at, c): (usize, char)| match c {
        'a'..='z' | 'A'..='Z' | '_' | '.' | '-' | '/' => true,
        '0'..='9' => at > 0,
        _ => false,
    };
    if name.is_empty() || !name.char_indices().all(fits) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let escaped = name.replace("__", "__underscores__").replace('.', "__dot__");
    Some(escaped.replace('-', "__dash__").replace('/', "__slash__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_kubernetes_does() {
        for (name, escaped) in [
            ("replicas", Some("replicas")),
            ("one_two", Some("one_two")),
            ("one__two", Some("one__underscores__two")),
            ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
            ("namespace", Some("__namespace__")),
            ("$ref", None),
            ("9a", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }
}
