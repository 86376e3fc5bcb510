//! The HTTP proxy that a join gives its node: into `config.yaml`, whose other lines stay as they are.

use std::io;
use std::path::{Path, PathBuf};

use edge_runtime::config::read_text;
use edge_runtime::net::proxy::Server;
use sampan_launcher::config_lock;
use sampan_sys::files::unless_missing;
use serde_yaml_ng::Value;

use crate::config_text;

/// A proxy as a person names it.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) url: Server,
    /// The file with the login stays where it is.
    pub(crate) user_file: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub(crate) struct ProxyError {
    file: PathBuf,
    why: String,
}

/// Sets what is named; returns whether the file has changed.
pub(crate) fn write(file: &Path, named: &Named) -> Result<bool, ProxyError> {
    let wrong = |why: String| ProxyError { file: file.into(), why };
    let failed = |error: io::Error| wrong(error.to_string());
    let _lock = config_lock::take(file).map_err(failed)?;
    let before = unless_missing(read_text(file)).map_err(failed)?.unwrap_or_default();
    let mut text = before.clone();
    let user_file = named.user_file.as_ref().map(|file| ("user-file", file.display().to_string()));
    for (key, value) in [("url", String::from(named.url.clone()))].into_iter().chain(user_file) {
        text = config_text::set(&text, &["proxy", key], &Value::String(value)).map_err(wrong)?;
    }
    if text == before {
        return Ok(false);
    }
    config_text::write(file, &text).map_err(failed)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use edge_runtime::config::ConfigFile;

    use super::*;

    #[test]
    fn proxy_is_set_once_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("etc/config.yaml");
        let named = |url: &str, user_file: Option<&str>| Named {
            url: url.parse().unwrap(),
            user_file: user_file.map(PathBuf::from),
        };
        assert!(write(&file, &named("http://proxy.lan:3128/", None)).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "proxy:\n  url: http://proxy.lan:3128\n");
        let before = "max-pods: 7  # few\nproxy:\n  except: [.lan]\n  url: http://old.lan:1\n";
        fs::write(&file, before).unwrap();
        let new = named("http://[fd00::1]:3128", Some("/etc/edge-runtime/proxy.user"));
        assert!(write(&file, &new).unwrap());
        assert!(!write(&file, &new).unwrap());
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("max-pods: 7  # few\nproxy:\n  except: [.lan]\n"), "{text}");
        let read = ConfigFile::read(&file).unwrap().proxy;
        assert_eq!((read.url, read.user_file), (Some(new.url), new.user_file));
        fs::write(&file, "proxy:\n  user-file: /etc/proxy.user\n").unwrap();
        write(&file, &named("http://proxy.lan:3128", None)).unwrap();
        let read = ConfigFile::read(&file).unwrap().proxy;
        assert_eq!(read.user_file, Some("/etc/proxy.user".into()), "an image for a first boot has the login");
        fs::write(&file, "proxy: [").unwrap();
        assert!(write(&file, &named("http://proxy.lan:3128", None)).unwrap_err().to_string().contains("config.yaml"));
    }
}
