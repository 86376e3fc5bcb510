//! What is wrong with a configuration.

use std::path::PathBuf;

/// Why the configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read config file {}: {source}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("config file {}: {message}", file.display())]
    Parse { file: PathBuf, message: String },
    #[error("config file {}, key {key}: {why}", file.display())]
    Invalid { file: PathBuf, key: String, why: String },
}

/// A key and what is wrong with its value.
pub(super) type Wrong = (String, String);

pub(super) fn wrong(key: impl Into<String>, why: impl Into<String>) -> Wrong {
    (key.into(), why.into())
}
