//! The configuration for others' eyes: values of keys that sound secret are masked, and logins in addresses.

use std::path::Path;

use edge_runtime::config::read_text;
use serde_yaml_ng::Value;

const MASK: &str = "(left out)";
const SECRET: [&str; 6] = ["password", "passwd", "token", "secret", "credential", "private"];

fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    // `auth-file` names a file; `username` is not a secret.
    SECRET.iter().any(|word| key.contains(word)) && !key.ends_with("-file") && !key.ends_with("-in-memory")
        || matches!(key.as_str(), "key" | "auth" | "pass")
}

/// The file as YAML, with secrets masked; left out if it is malformed, because its secrets cannot be found then.
pub(super) fn masked(file: &Path) -> String {
    let Ok(text) = read_text(file) else { return "# there is none\n".to_owned() };
    match serde_yaml_ng::from_str::<Value>(&text) {
        Ok(mut value) => {
            walk(&mut value, false, &mut |text| *text = mask(text));
            serde_yaml_ng::to_string(&value).unwrap_or_default()
        }
        Err(error) => format!("# left out: it is no YAML: {error}\n"),
    }
}

/// What [`masked`] masks.
pub(super) fn secret_values(file: &Path) -> Vec<String> {
    let text = read_text(file).unwrap_or_default();
    let Ok(mut value) = serde_yaml_ng::from_str::<Value>(&text) else { return Vec::new() };
    let mut found = Vec::new();
    walk(&mut value, false, &mut |text| {
        match login(text) {
            Some((_, login, _)) => found.extend(login.split(':').map(str::to_owned)),
            None => found.push(text.clone()),
        };
    });
    found
}

/// Hands over each text that is secret or has a login in it.
fn walk(value: &mut Value, secret: bool, found: &mut dyn FnMut(&mut String)) {
    match value {
        Value::Mapping(map) => {
            for (key, value) in map.iter_mut() {
                walk(value, secret || key.as_str().is_some_and(is_secret), found);
            }
        }
        Value::Sequence(list) => list.iter_mut().for_each(|one| walk(one, secret, found)),
        Value::String(text) if secret || login(text).is_some() => found(text),
        Value::Number(number) if secret => {
            let mut text = number.to_string();
            found(&mut text);
            *value = Value::String(text);
        }
        _ => {}
    }
}

fn mask(text: &str) -> String {
    login(text).map_or_else(|| MASK.to_owned(), |(scheme, _, rest)| format!("{scheme}://{MASK}@{rest}"))
}

/// `https://user:password@host`, in three parts.
fn login(text: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let (login, rest) = rest.split_once('@')?;
    (!login.contains('/')).then_some((scheme, login, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_look_secret_are_redacted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let text = "max-pods: 7\ndevice-twin:\n  mqtt: {broker: 'tcp://u:sesame99@b:1883', username: u, password: 123456}\n\
                    registry:\n- {host: r, mirrors: ['https://bob:hunter22@m/x', 'https://plain']}\nlabels: {token: abcdef}\n\
                    pull: {auth-file: /etc/auth.json}\nsecurity: {secrets-in-memory: true}\n";
        std::fs::write(&file, text).unwrap();
        let shown = masked(&file);
        for secret in ["sesame99", "123456", "hunter22", "abcdef"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
            assert!(secret_values(&file).iter().any(|value| value == secret), "{secret}");
        }
        for kept in
            ["max-pods: 7", "/etc/auth.json", "https://plain", "b:1883", "secrets-in-memory: true", "username: u"]
        {
            assert!(shown.contains(kept), "{kept} in {shown}");
        }
        std::fs::write(&file, "password: [hunter22").unwrap();
        assert!(!masked(&file).contains("hunter22"));
    }
}
