//! The login that a registry demands: the `WWW-Authenticate` header (RFC 7235, and the distribution project's token
//! authentication). Pure.

/// How to ask again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// The first challenge of the header that can be met; a bearer token is preferred.
pub fn parse(header: &str) -> Option<Challenge> {
    let mut basic = None;
    for (scheme, parameters) in schemes(header) {
        if scheme.eq_ignore_ascii_case("bearer") {
            let get = |name: &str| {
                parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
            };
            if let Some(realm) = get("realm") {
                return Some(Challenge::Bearer { realm, service: get("service"), scope: get("scope") });
            }
        } else if scheme.eq_ignore_ascii_case("basic") {
            basic = Some(Challenge::Basic);
        }
    }
    basic
}

type Parameters = Vec<(String, String)>;

fn schemes(header: &str) -> Vec<(String, Parameters)> {
    let mut found: Vec<(String, Parameters)> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        if word.is_empty() {
            return found;
        }
        let Some(value) = tail.trim_start().strip_prefix('=') else {
            found.push((word.to_owned(), Vec::new()));
            rest = tail;
            continue;
        };
        let (value, tail) = parameter(value.trim_start());
        if let Some((_, parameters)) = found.last_mut() {
            parameters.push((word.to_owned(), value));
        }
        rest = tail;
    }
}

/// A token or a quoted string, and what follows.
fn parameter(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_real_registries() {
        let hub =
            r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#;
        assert_eq!(
            parse(hub),
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".into(),
                service: Some("registry.example".into()),
                scope: Some("repository:a/b:pull,push".into()),
            })
        );
        assert_eq!(parse(r#"Basic realm="Registry Realm""#), Some(Challenge::Basic));
        assert_eq!(parse("basic"), Some(Challenge::Basic));
        assert!(matches!(parse(r#"Basic realm="x", BEARER Realm=http://r"#), Some(Challenge::Bearer { .. })));
        assert!(matches!(parse(r#"Bearer realm="a\"b""#), Some(Challenge::Bearer { realm, .. }) if realm == "a\"b"));
        for none in ["", "Negotiate", "Bearer", "=,=", "Bearer service=x", "\"", "Digest realm=\"x"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_header_ends_in_an_answer(text in "[a-zB\"\\\\=, é]{0,40}") {
            let _ = parse(&text);
            let login = parse(&format!("Bearer realm={text}"));
            let has_realm = matches!(&login, Some(Challenge::Bearer { realm, .. }) if realm.len() <= text.len());
            proptest::prop_assert!(has_realm, "{login:?}");
        }
    }
}
