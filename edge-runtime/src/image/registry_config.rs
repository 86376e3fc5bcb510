//! How the administrator describes registries. Owns the entry of `registry` in the configurations of the config file; opens no connection.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One entry of `registry` in the configuration. Without a table a registry is reached by https at its own name, with the system's CAs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RegistryConfig {
    /// Registry as it stands in image names: `docker.io`, `registry.example:5000`. `*` is every registry without a table.
    pub host: String,
    /// Asked in this order before the registry itself. `host[:port]`, or with `http://` or `https://` before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<String>,
    /// Speak http without TLS to the registry itself.
    #[serde(default)]
    pub plain_http: bool,
    /// Accept any certificate of the registry and its mirrors.
    #[serde(default)]
    pub insecure: bool,
    /// PEM file of CAs to trust besides the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Docker config JSON (`auths`), used when no pull secret fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_file: Option<PathBuf>,
}

/// The table that fits `host`: by name, else `*`, else the defaults.
pub fn registry_for(tables: &[RegistryConfig], host: &str) -> RegistryConfig {
    tables
        .iter()
        .find(|t| t.host == host)
        .or_else(|| tables.iter().find(|t| t.host == "*"))
        .cloned()
        .unwrap_or_else(|| RegistryConfig { host: host.to_owned(), ..RegistryConfig::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_table_goes_before_the_star() {
        let tables: Vec<RegistryConfig> = serde_json::from_str(
            r#"[{"host":"*","mirrors":["cache:5000"]},{"host":"r.example:5000","plain-http":true}]"#,
        )
        .unwrap();
        assert!(registry_for(&tables, "r.example:5000").plain_http);
        assert_eq!(registry_for(&tables, "docker.io").mirrors, ["cache:5000"]);
        assert_eq!(registry_for(&[], "docker.io").host, "docker.io");
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = serde_json::from_str::<RegistryConfig>(r#"{"host":"a","plain_htpp":true}"#).unwrap_err();
        assert!(error.to_string().contains("plain_htpp"));
    }
}
