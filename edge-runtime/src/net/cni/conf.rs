//! Network configurations: files of a folder, in the order of their names, the first usable one wins. Parsing is pure.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{CniError, VERSIONS, bad, has_check};
use crate::sys::files::unless_missing;
use crate::sys::from_json::from_json;
use crate::sys::sort::sort;

/// More than any real configuration.
const SIZE_LIMIT: u64 = 256 * 1024;
const PLUGIN_LIMIT: usize = 32;

/// One network: a list of plugins (a `.conf` of a single one is a list of one).
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkList {
    pub name: String,
    /// One of [`VERSIONS`].
    pub version: String,
    pub disable_check: bool,
    pub plugins: Vec<Plugin>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// Name of its program.
    pub kind: String,
    /// Its configuration as it stands in the file.
    pub config: Map<String, Value>,
}

impl Plugin {
    /// Whether it asks for this part of `runtimeConfig`.
    pub fn wants(&self, capability: &str) -> bool {
        self.config.get("capabilities").and_then(|all| all.get(capability)) == Some(&Value::Bool(true))
    }
}

impl NetworkList {
    pub fn wants(&self, capability: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.wants(capability))
    }

    pub fn checks(&self) -> bool {
        !self.disable_check && has_check(&self.version)
    }

    /// Back to the form that [`parse`] reads.
    pub fn to_json(&self) -> Value {
        let plugins: Vec<Value> = self.plugins.iter().map(|plugin| Value::Object(plugin.config.clone())).collect();
        serde_json::json!({"cniVersion": self.version, "name": self.name, "disableCheck": self.disable_check,
            "plugins": plugins})
    }
}

/// Reads a `.conflist`, or a `.conf` with a single plugin.
///
/// # Errors
/// The field that is missing or of no use.
pub fn parse(bytes: &[u8]) -> Result<NetworkList, CniError> {
    let value: Value = from_json(bytes).map_err(|error| CniError(format!("not JSON: {error}")))?;
    let Value::Object(object) = value else { return bad("not a JSON object") };
    let name = text(&object, "name").unwrap_or_default();
    if !is_name(name) {
        return bad(format!("name {name:?} is no network name (letters, digits, '_', '.' and '-')"));
    }
    let version = version(&object)?;
    let plugins = match object.get("plugins") {
        None if object.contains_key("type") => vec![plugin(&Value::Object(object.clone()))?],
        None => return bad("neither plugins nor type: no plugin to run"),
        Some(Value::Array(list)) if (1..=PLUGIN_LIMIT).contains(&list.len()) => {
            list.iter().map(plugin).collect::<Result<_, _>>()?
        }
        Some(_) => return bad(format!("plugins is not a list of 1 to {PLUGIN_LIMIT} plugins")),
    };
    // The specification allows the text too.
    let disable_check =
        matches!(object.get("disableCheck"), Some(Value::Bool(true))) || text(&object, "disableCheck") == Some("true");
    Ok(NetworkList { name: name.to_owned(), version, disable_check, plugins })
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

/// The newest version both sides know: `cniVersions` (1.1.0), else `cniVersion`.
fn version(object: &Map<String, Value>) -> Result<String, CniError> {
    let listed = object.get("cniVersions").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let all: Vec<&str> = listed.chain(text(object, "cniVersion")).collect();
    match VERSIONS.iter().rev().find(|known| all.contains(known)) {
        Some(version) => Ok((*version).to_owned()),
        None => bad(format!("cniVersion {:?} is not among {}", all.join(", "), VERSIONS.join(", "))),
    }
}

fn plugin(value: &Value) -> Result<Plugin, CniError> {
    let Value::Object(config) = value else { return bad("a plugin is not a JSON object") };
    let kind = text(config, "type").unwrap_or_default();
    // The name of a file in the plugins' folders and nowhere else.
    if !is_name(kind) {
        return bad(format!("type {kind:?} is no plugin name (letters, digits, '_', '.' and '-')"));
    }
    Ok(Plugin { kind: kind.to_owned(), config: config.clone() })
}

fn is_name(text: &str) -> bool {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.len() <= 128 && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(usable)
}

/// Returns the first usable configuration of `folder`, and the problems of those before it.
///
/// # Errors
/// The folder exists and cannot be read.
pub fn load(folder: &Path) -> std::io::Result<(Option<NetworkList>, Vec<String>)> {
    let mut complaints = Vec::new();
    for file in files(folder)? {
        let read = sampan_file::read(&file, SIZE_LIMIT).map_err(|error| error.to_string());
        match read.and_then(|bytes| parse(&bytes).map_err(|error| error.to_string())) {
            Ok(list) => return Ok((Some(list), complaints)),
            Err(error) => complaints.push(format!("{}: {error}", file.display())),
        }
    }
    Ok((None, complaints))
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let Some(entries) = unless_missing(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let ours = |path: &PathBuf| {
        path.extension().and_then(|end| end.to_str()).is_some_and(|end| matches!(end, "conf" | "conflist" | "json"))
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(ours).collect();
    sort(&mut files);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_and_a_single_plugin() {
        let list = parse(br#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","capabilities":{"ipRanges":true}},{"type":"portmap"}]}"#).unwrap();
        assert_eq!((list.plugins.len(), list.checks()), (2, true));
        assert!(list.wants("ipRanges") && !list.wants("portMappings"));
        assert_eq!(parse(list.to_json().to_string().as_bytes()).unwrap(), list);
        let single = parse(br#"{"cniVersion":"0.3.1","name":"net","type":"ptp","mtu":9}"#).unwrap();
        assert_eq!((single.plugins[0].kind.as_str(), single.checks()), ("ptp", false));
        assert_eq!(single.plugins[0].config["mtu"], 9);
    }

    #[test]
    fn the_newest_common_version_is_spoken() {
        let version = |text: &str| parse(format!(r#"{{{text},"name":"n","type":"t"}}"#).as_bytes()).map(|l| l.version);
        assert_eq!(version(r#""cniVersions":["1.0.0","0.4.0","9.0.0"]"#).unwrap(), "1.0.0");
        assert!(version(r#""cniVersion":"0.2.0""#).unwrap_err().0.contains("0.2.0"));
        assert!(version(r#""x":1"#).is_err());
    }

    #[test]
    fn problem_of_a_configuration_is_named() {
        for (text, named) in [
            ("", "JSON"),
            ("[]", "object"),
            (r#"{"cniVersion":"1.0.0","type":"x"}"#, "name"),
            (r#"{"cniVersion":"1.0.0","name":"n"}"#, "plugins"),
            (r#"{"cniVersion":"1.0.0","name":"n","plugins":[]}"#, "plugins"),
            (r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"../sh"}]}"#, "type"),
            (r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":".."}]}"#, "type"),
            (r#"{"cniVersion":"1.0.0","name":"a/b","type":"x"}"#, "name"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn the_first_usable_file_wins() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(load(&temp.path().join("none")).unwrap(), (None, Vec::new()));
        let put = |name: &str, text: &str| fs::write(temp.path().join(name), text).unwrap();
        put("05-broken.conf", "{");
        put("10-first.conflist", r#"{"cniVersion":"1.0.0","name":"first","plugins":[{"type":"x"}]}"#);
        put("20-second.conf", r#"{"cniVersion":"1.0.0","name":"second","type":"x"}"#);
        put("00-readme.txt", "");
        let (list, complaints) = load(temp.path()).unwrap();
        assert_eq!(list.unwrap().name, "first");
        assert!(complaints.len() == 1 && complaints[0].contains("05-broken.conf"), "{complaints:?}");
    }
}
