//! Reads a configuration of another version: it omits unknown keys and names them, so that a node whose program was
//! rolled back still runs. It also omits labels and taints that a Node must not have, so that the others are reported.

use std::path::Path;

use serde_yaml_ng::Value;

use super::error::ConfigError;
use super::file::{ConfigFile, read_text};
use super::node::{label_problem, sort_out_taints};

/// A file with more unknown keys is not a configuration of this program.
const LIMIT: usize = 64;

impl ConfigFile {
    /// Same as [`ConfigFile::read`], but leaves out unknown keys, and labels and taints that a Node may not have. Returns a warning
    /// for each.
    ///
    /// # Errors
    /// Same as [`ConfigFile::read`], for everything else.
    pub fn read_lenient(file: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        match read_text(file) {
            Ok(text) => Self::parse_lenient(text, file),
            Err(_) => Self::read(file).map(|parsed| (parsed, Vec::new())),
        }
    }

    /// # Errors
    /// Same as [`ConfigFile::read_lenient`]; `file` only names the file in them.
    pub fn parse_lenient(mut text: String, file: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        let mut left_out = Vec::new();
        loop {
            let error = match Self::parse(&text, file) {
                Ok(mut parsed) => {
                    let invalid = |key: &str, why| ConfigError::Invalid { file: file.into(), key: key.to_owned(), why };
                    parsed.labels.retain(|key, value| {
                        let problem = label_problem(key, value);
                        left_out.extend(problem.iter().map(|why| invalid("labels", why.clone()).to_string()));
                        problem.is_none()
                    });
                    let (taints, problems) = sort_out_taints(std::mem::take(&mut parsed.taints));
                    parsed.taints = taints;
                    left_out.extend(problems.into_iter().map(|why| invalid("taints", why).to_string()));
                    return Ok((parsed, left_out));
                }
                Err(error) => error,
            };
            let shorter = match &error {
                ConfigError::Parse { message, .. } if left_out.len() < LIMIT => without_unknown(&text, message),
                _ => None,
            };
            let Some(shorter) = shorter else { return Err(error) };
            text = shorter;
            left_out.push(error.to_string());
        }
    }
}

/// The text without the key of which `message` says "PATH: unknown field `KEY`, expected ...".
fn without_unknown(text: &str, message: &str) -> Option<String> {
    let (path, rest) = message.split_once("unknown field `")?;
    let (key, _) = rest.split_once('`')?;
    let mut value: Value = serde_yaml_ng::from_str(text).ok()?;
    let path = path.trim_end().trim_end_matches(':');
    at(&mut value, path)?.as_mapping_mut()?.remove(key)?;
    // JSON is YAML, too: the node needs nothing that writes the other kind.
    Some(serde_json::to_value(&value).ok()?.to_string())
}

/// Returns the value at `a.b[2].c`. A key may contain dots.
fn at<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    if path.is_empty() {
        return Some(value);
    }
    if let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        let item = value.as_sequence_mut()?.get_mut(index.parse::<usize>().ok()?)?;
        return at(item, rest.trim_start_matches('.'));
    }
    let begins = |key: &str| path.strip_prefix(key).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let mapping = value.as_mapping_mut()?;
    let key = mapping.keys().filter_map(Value::as_str).filter(|key| begins(key).is_some()).max_by_key(|key| key.len());
    let key = key?.to_owned();
    let rest = path.get(key.len()..)?.trim_start_matches('.');
    at(mapping.get_mut(key.as_str())?, rest)
}
