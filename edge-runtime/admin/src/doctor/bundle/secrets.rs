//! Known secrets of this node, in the forms in which they could appear in other files.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use edge_runtime::config::{ConfigFile, Overrides};
use edge_runtime::net::tunnel::login;
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use serde_json::Value;

/// A word as short as this stands everywhere, and guards nothing.
const SHORTEST: usize = 6;
/// Minimum length of a secret in an environment: most values there are `true`, `info` or `production`.
const SHORTEST_VALUE: usize = 8;
const BLOT: &str = "(left out)";

#[derive(Default)]
pub(super) struct Secrets {
    words: BTreeSet<String>,
}

impl Secrets {
    pub(super) fn of(paths: &Paths, store: Option<&Store>) -> Self {
        let mut all = Self::default();
        let objects = store.and_then(|store| store.objects_of("Secret").ok());
        for secret in objects.into_iter().flat_map(|(objects, _)| objects) {
            for field in ["data", "stringData"] {
                all.add_below(&secret[field]);
            }
        }
        // The key, line by line. What is public in it is in nothing that is taken, either.
        for name in ["identity.json", "identity.next.json"] {
            all.add_json_file(&paths.identity().join(name), &["key"]);
        }
        let config = paths.config_file();
        for word in super::settings::secret_values(&config) {
            all.add(&word);
        }
        let typed = ConfigFile::read_lenient(&config).ok().map(|(typed, _)| typed);
        // Whatever else is wrong with the file.
        let user_file = typed.as_ref().and_then(|typed| typed.proxy.user_file.as_deref());
        user_file.and_then(|file| login(file).ok()).iter().for_each(|login| all.add(login));
        let overrides = Overrides::default();
        let parsed = typed
            .and_then(|typed| edge_runtime::config::Config::from_file(typed, &config, paths.root(), &overrides).ok());
        if let Some(config) = parsed {
            config.pull.auth_file.iter().for_each(|file| all.add_json_file(file, &[]));
        }
        // As they were sent, and as they run.
        let sent = store.and_then(|store| store.objects_of("Pod").ok()).map(|(pods, _)| pods);
        let run = store.and_then(|store| store.pods().ok()).map(|(pods, _)| pods);
        let run = run.into_iter().flatten().map(|pod| pod.manifest);
        for pod in sent.into_iter().flatten().chain(run) {
            all.add_environment(&pod);
        }
        all
    }

    /// Values of environments: programs take passwords by them, and print what they were started with.
    fn add_environment(&mut self, manifest: &Value) {
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for container in manifest["spec"][list].as_array().into_iter().flatten() {
                for value in container["env"].as_array().into_iter().flatten().filter_map(|env| env["value"].as_str()) {
                    if value.len() >= SHORTEST_VALUE {
                        self.add(value);
                    }
                }
            }
        }
    }

    fn add_json_file(&mut self, file: &Path, keys: &[&str]) {
        let Ok(bytes) = std::fs::read(file) else { return };
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { return };
        match keys {
            [] => self.add_below(&value),
            keys => keys.iter().for_each(|key| self.add_below(&value[*key])),
        }
    }

    fn add_below(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add(text),
            Value::Array(list) => list.iter().for_each(|one| self.add_below(one)),
            Value::Object(map) => map.values().for_each(|one| self.add_below(one)),
            _ => {}
        }
    }

    /// Adds a secret as it is, its base64 form and its decoded form; each of its lines, and the values of JSON in it.
    fn add(&mut self, text: &str) {
        if text.len() < SHORTEST || !self.words.insert(text.to_owned()) {
            return;
        }
        self.words.insert(STANDARD.encode(text));
        text.lines().map(str::trim).filter(|line| line.len() >= SHORTEST).for_each(|line| {
            self.words.insert(line.to_owned());
        });
        // A login of a registry: `user:password`.
        if let Some((_, password)) = text.split_once(':').filter(|(_, password)| password.len() >= SHORTEST) {
            self.words.insert(password.to_owned());
            self.words.insert(STANDARD.encode(password));
        }
        let decoded = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(decoded) = decoded {
            if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(&decoded) {
                self.add_below(&value);
            }
            self.add(&decoded);
        }
    }

    /// The text without any of them: the longest first, so that no rest of one stays.
    pub(super) fn blot(&self, text: &str) -> String {
        let mut words: Vec<&String> = self.words.iter().filter(|word| !word.starts_with("-----")).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.into_iter().fold(text.to_owned(), |text, word| match text.contains(word.as_str()) {
            true => text.replace(word.as_str(), BLOT),
            false => text,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p1_3_login_at_the_proxy_is_redacted() {
        let root = tempfile::tempdir().unwrap();
        let (paths, file) = (Paths::new(root.path()), root.path().join("proxy.user"));
        std::fs::create_dir_all(paths.config()).unwrap();
        std::fs::write(&file, "name:hunter22\n").unwrap();
        let config = format!("node-name: a\nproxy: {{url: 'http://p:1', user-file: {}}}\n", file.display());
        std::fs::write(paths.config_file(), config).unwrap();
        let told = format!("hunter22 name:hunter22 {}", STANDARD.encode("name:hunter22"));
        let blotted = || Secrets::of(&paths, None).blot(&told);
        assert_eq!(blotted(), "(left out) (left out) (left out)");
        let wrong = format!("max-pods: 0\nproxy: {{except: ['*'], user-file: {}}}\n", file.display());
        std::fs::write(paths.config_file(), wrong).unwrap();
        assert_eq!(blotted(), "(left out) (left out) (left out)", "a node does not run with this file");
    }

    #[test]
    fn a_secret_is_blotted_out_in_each_of_its_forms() {
        let mut secrets = Secrets::default();
        let login = json!({"auths": {"r": {"username": "bob", "password": "opensesame", "auth": STANDARD.encode("bob:opensesame")}}});
        secrets.add_below(&json!({
            "password": STANDARD.encode("hunter22"),
            ".dockerconfigjson": STANDARD.encode(login.to_string()),
            "pem": "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMB\n-----END PRIVATE KEY-----\n",
            "short": "abc",
        }));
        let told = format!(
            "pw=hunter22 b64={} login opensesame {} key MIGHAgEAMB abc -----BEGIN PRIVATE KEY-----",
            STANDARD.encode("hunter22"),
            STANDARD.encode("bob:opensesame"),
        );
        let text = secrets.blot(&told);
        for secret in ["hunter22", "opensesame", "MIGHAgEAMB", &STANDARD.encode("hunter22")] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert!(text.contains("pw=(left out)") && text.contains("abc"), "{text}");
    }
}
