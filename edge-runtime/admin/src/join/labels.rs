//! Labels that a join gives its node: into `config.yaml`, whose other lines stay as they are.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use edge_protocol::node_labels;
use edge_runtime::config::{ConfigError, ConfigFile, read_text};
use sampan_launcher::config_lock;
use sampan_sys::files;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LabelError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{}: it has labels already: put {wanted} among them, and leave it out here", file.display())]
    Others { file: PathBuf, wanted: String },
    #[error("{}: {source}", file.display())]
    Write { file: PathBuf, source: std::io::Error },
}

/// Parses `KEY=VALUE`, a label that a node may give itself.
pub(crate) fn parse(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?}: want KEY=VALUE"))?;
    if let Some(problem) = node_labels::problem(key, value) {
        return Err(format!("{text:?}: {problem}"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Adds the labels that the file lacks; returns whether it added any or all were there.
pub(crate) fn write(file: &Path, labels: &BTreeMap<String, String>) -> Result<bool, LabelError> {
    if labels.is_empty() {
        return Ok(false);
    }
    let at = |source| LabelError::Write { file: file.into(), source };
    let _lock = config_lock::take(file).map_err(at)?;
    let typed = ConfigFile::read(file)?.labels;
    if labels.iter().all(|(key, value)| typed.get(key) == Some(value)) {
        return Ok(false);
    }
    if !typed.is_empty() {
        let wanted = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        return Err(LabelError::Others { file: file.into(), wanted });
    }
    let (mut text, mode) = match read_text(file) {
        Ok(text) => (text, fs::metadata(file).map_err(at)?.permissions().mode() & 0o777),
        Err(error) if error.kind() == ErrorKind::NotFound => (String::new(), 0o644),
        Err(error) => return Err(at(error)),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("labels:\n");
    // Quoted: `true` and `1` are strings, too.
    labels.iter().for_each(|(key, value)| text.push_str(&format!("  {key}: '{value}'\n")));
    files::replace(file, text.as_bytes(), true).map_err(at)?;
    fs::set_permissions(file, Permissions::from_mode(mode)).map_err(at)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[&str]) -> BTreeMap<String, String> {
        all.iter().map(|text| parse(text).unwrap()).collect()
    }

    #[test]
    fn labels_are_those_of_kubernetes() {
        assert_eq!(parse("sampan.dev/site=hall-3").unwrap(), ("sampan.dev/site".into(), "hall-3".into()));
        assert_eq!(parse("a=").unwrap(), ("a".into(), String::new()));
        for bad in [
            "a",
            "=b",
            "-a=b",
            "a=b c",
            "a=-",
            "A_/b=c",
            "a=it's",
            "a/b/c=d",
            "a=b\nc: d",
            "node-role.kubernetes.io/worker=",
        ] {
            parse(bad).unwrap_err();
        }
    }

    #[test]
    fn labels_are_appended_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("etc/config.yaml");
        write(&file, &labels(&["a=true", "b/c=1"])).unwrap();
        assert_eq!(ConfigFile::read(&file).unwrap().labels, labels(&["a=true", "b/c=1"]));
        fs::write(&file, "# labels:\nmax-pods: 7").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        write(&file, &labels(&["a=b"])).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, "# labels:\nmax-pods: 7\nlabels:\n  a: 'b'\n");
        assert!(!write(&file, &labels(&["a=b"])).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        let error = write(&file, &labels(&["a=c"])).unwrap_err();
        assert!(matches!(&error, LabelError::Others { wanted, .. } if wanted == "a=c"), "{error}");
        fs::write(&file, "max-pods: [").unwrap();
        assert!(write(&file, &labels(&["a=c"])).unwrap_err().to_string().contains("config.yaml"));
    }
}
