//! Changes values in the text of a configuration. Pure. A job must not change values that could cut the node off
//! permanently, or give others power over it: its name, its networks, its cgroups, its runtimes, security, and the keys
//! for upgrades.

use std::collections::BTreeMap;

use serde_yaml_ng::{Mapping, Value};

/// First words of the paths that may be changed.
const ALLOWED: [&str; 10] =
    ["eviction", "images", "labels", "logs", "max-pods", "pull", "reserved", "resources", "services", "shutdown"];
/// Below these a key may have dots itself: `labels.example.com/zone`.
const FLAT: [&str; 2] = ["labels", "eviction.hard"];

/// The text with these values, by path; none if it has them.
///
/// # Errors
/// A path or a value that is not to be, by name.
pub(super) fn changed(text: &str, wanted: &BTreeMap<String, String>) -> Result<Option<String>, String> {
    let before: Value = serde_yaml_ng::from_str(text).map_err(|error| format!("the configuration: {error}"))?;
    let mut all = before.clone();
    if all.is_null() {
        all = Value::Mapping(Mapping::new());
    }
    for (path, value) in wanted {
        let first = path.split('.').next().unwrap_or_default();
        if !ALLOWED.contains(&first) {
            return Err(format!("updateFields: {path} cannot be changed by a job (only {})", ALLOWED.join(", ")));
        }
        let value: Value = serde_yaml_ng::from_str(value).map_err(|error| format!("updateFields: {path}: {error}"))?;
        set(&mut all, &keys(path), value).ok_or_else(|| format!("updateFields: {path}: there is no such key"))?;
    }
    if all == before {
        return Ok(None);
    }
    serde_yaml_ng::to_string(&all).map(Some).map_err(|error| error.to_string())
}

fn keys(path: &str) -> Vec<&str> {
    let flat = FLAT.iter().find_map(|flat| path.strip_prefix(flat)?.strip_prefix('.').map(|rest| (*flat, rest)));
    match flat {
        Some((flat, rest)) => flat.split('.').chain([rest]).collect(),
        None => path.split('.').collect(),
    }
}

/// Sets the value that the keys lead to. `None` if they lead through a value that is not a mapping.
pub(crate) fn set(at: &mut Value, keys: &[&str], value: Value) -> Option<()> {
    let (key, rest) = keys.split_first()?;
    if at.is_null() {
        *at = Value::Mapping(Mapping::new());
    }
    let mapping = at.as_mapping_mut()?;
    if rest.is_empty() {
        mapping.insert((*key).into(), value);
        return Some(());
    }
    set(mapping.entry((*key).into()).or_insert(Value::Null), rest, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str, wanted: &[(&str, &str)]) -> Result<Option<String>, String> {
        changed(text, &wanted.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn values_are_set_at_their_path() {
        let text = "# mine\nlogs: {max-files: 3}\nlabels: {a: b}\n";
        let new = change(text, &[("logs.max-files", "7"), ("pull.window", "'02:00-05:00'"), ("labels.a.b/c", "x")]);
        let new: Value = serde_yaml_ng::from_str(&new.unwrap().unwrap()).unwrap();
        assert_eq!(new["logs"]["max-files"], Value::from(7));
        assert_eq!(new["pull"]["window"], Value::from("02:00-05:00"));
        assert_eq!((&new["labels"]["a"], &new["labels"]["a.b/c"]), (&Value::from("b"), &Value::from("x")));
        assert_eq!(change(text, &[("logs.max-files", "3")]).unwrap(), None);
        assert!(
            change("", &[("eviction.hard.memory.available", "50Mi")])
                .unwrap()
                .unwrap()
                .contains("memory.available: 50Mi")
        );
    }

    #[test]
    fn dangerous_fields_are_refused() {
        for path in
            ["node-name", "network.subnet", "security", "runtime.command", "upgrade.keys", "cgroup-parent", "", "."]
        {
            assert!(change("", &[(path, "x")]).unwrap_err().contains(path), "{path}");
        }
        assert!(change("logs: 7", &[("logs.max-files", "1")]).is_err());
        assert!(change("logs: {", &[("logs.max-files", "1")]).is_err());
        assert!(change("", &[("logs.max-files", "[")]).is_err());
    }
}
