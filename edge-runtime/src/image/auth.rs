//! Logins for registries: docker config JSON documents (pull secrets, the node's own file), matched like the kubelet
//! (`pkg/credentialprovider`). Pure; passwords leave only through [`Credential`].

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use crate::image::Reference;
use crate::image::digest::sha256;
use crate::sys::from_json::from_json;
use crate::sys::sort::sort_by_key;

/// A login.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub username: String,
    pub password: String,
    /// OAuth2 refresh token, used instead of the password at a token server.
    pub identity_token: Option<String>,
    /// Key of the pull secret it is from; none: the node's own.
    pub secret: Option<String>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.username)
    }
}

impl Credential {
    /// The value of an `Authorization` header (RFC 7617).
    pub fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.username, self.password)))
    }

    fn is_empty(&self) -> bool {
        self.username.is_empty() && self.password.is_empty() && self.identity_token.is_none()
    }

    /// Returns a digest that is equal for equal logins from any source; it reveals nothing of the login.
    pub fn digest(&self) -> String {
        let token = self.identity_token.as_deref().unwrap_or_default();
        sha256(format!("{}\0{}\0{token}", self.username, self.password).as_bytes())
    }
}

/// Logins by what of image names they are for, the most special first.
#[derive(Clone, Debug, Default)]
pub struct Keyring(Vec<(Pattern, Credential)>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    host: String,
    port: Option<String>,
    path: String,
}

#[derive(Deserialize)]
struct DockerConfig {
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
    #[serde(default, rename = "identitytoken")]
    identity_token: Option<String>,
}

impl Keyring {
    /// Adds the logins of one document: `{"auths": {...}}`, the older form without `auths`, or a list of such; `secret`
    /// is the key of the pull secret that it is. An entry without a login, as Docker leaves beside a `credsStore`, is
    /// left out (containerd internal/cri/server/images, `ParseAuth`: it "is valid for anonymous registry").
    ///
    /// # Errors
    /// The document has another form, or an `auth` is not base64 of `user:password`. The text contains no secret.
    pub fn add(&mut self, document: &[u8], secret: Option<&str>) -> Result<(), String> {
        let value: serde_json::Value =
            from_json(document).map_err(|e| format!("not JSON: line {} column {}", e.line(), e.column()))?;
        let documents = match value {
            serde_json::Value::Array(list) => list,
            one => vec![one],
        };
        for document in documents {
            let config = if document.get("auths").is_some() {
                serde_json::from_value::<DockerConfig>(document).map(|config| config.auths)
            } else {
                serde_json::from_value(only_objects(document))
            };
            let auths = config.map_err(|_| "not a docker config (\"auths\" by registry)".to_owned())?;
            for (key, entry) in auths {
                let mut credential =
                    entry.credential().ok_or_else(|| format!("the auth of {key} is not base64 of user:password"))?;
                credential.secret = secret.map(str::to_owned);
                if !credential.is_empty() {
                    self.0.push((Pattern::parse(&key), credential));
                }
            }
        }
        // Stable: documents given first are tried first among equals.
        sort_by_key(&mut self.0, |(pattern, _)| std::cmp::Reverse((pattern.path.len(), pattern.host.len())));
        Ok(())
    }

    /// Logins for an image at `host` (the registry itself or a mirror of it), best first.
    pub fn matching(&self, host: &str, reference: &Reference) -> Vec<&Credential> {
        let mut found: Vec<&Credential> = Vec::new();
        for (pattern, credential) in &self.0 {
            if pattern.matches(host, &reference.repository) && !found.contains(&credential) {
                found.push(credential);
            }
        }
        found
    }
}

/// Leaves what can be a registry's entry in a document without `auths`: Docker's own configuration has texts there
/// (`credsStore`).
fn only_objects(mut document: serde_json::Value) -> serde_json::Value {
    if let Some(entries) = document.as_object_mut() {
        entries.retain(|_, entry| entry.is_object());
    }
    document
}

impl Entry {
    fn credential(self) -> Option<Credential> {
        let Self { mut username, mut password, auth, identity_token } = self;
        // Where both stand, this wins (K8s pkg/credentialprovider/config.go, `DockerConfigEntry.UnmarshalJSON`).
        if !auth.is_empty() {
            let bytes = STANDARD.decode(auth.trim()).or_else(|_| STANDARD_NO_PAD.decode(auth.trim())).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (user, pass) = text.split_once(':')?;
            // Docker pads its passwords with zero bytes.
            (username, password) = (user.to_owned(), pass.trim_end_matches('\0').to_owned());
        }
        let identity_token = identity_token.filter(|token| !token.is_empty());
        Some(Credential { username, password, identity_token, secret: None })
    }
}

impl Pattern {
    /// `https://index.docker.io/v1/`, `registry.example:5000`, `*.example/team`.
    fn parse(key: &str) -> Self {
        let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        let path = path.trim_matches('/');
        let path = path.strip_prefix("v1").or_else(|| path.strip_prefix("v2")).unwrap_or(path);
        let (host, port) = split_port(host);
        Self {
            host: docker_hub(host).to_owned(),
            port: port.map(str::to_owned),
            path: path.trim_matches('/').to_owned(),
        }
    }

    fn matches(&self, host: &str, repository: &str) -> bool {
        let (host, port) = split_port(host);
        let mut labels = (self.host.split('.'), docker_hub(host).split('.'));
        let hosts = loop {
            match (labels.0.next(), labels.1.next()) {
                (None, None) => break true,
                (Some(pattern), Some(label)) if glob(pattern, label) => {}
                _ => break false,
            }
        };
        let path = self.path.is_empty()
            || repository.strip_prefix(self.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        hosts && self.port.as_deref() == port && path
    }
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (name, Some(port)),
        _ => (host, None),
    }
}

fn docker_hub(host: &str) -> &str {
    if matches!(host, "index.docker.io" | "registry-1.docker.io") { "docker.io" } else { host }
}

/// One label of a host name with `*` for any run of characters.
fn glob(pattern: &str, label: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == label,
        Some((head, tail)) => {
            let Some(rest) = label.strip_prefix(head) else { return false };
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && glob(tail, &rest[at..]))
        }
    }
}

#[cfg(test)]
mod tests;
