//! A support bundle: what helps another person to find a fault, in one tar.gz. Secrets are kept out in three ways:
//! files with secrets are not included, of objects only named fields are, and known secrets are redacted everywhere.
//!
//! | file | owns |
//! |---|---|
//! | `secrets` | the known secrets of this node, and their redaction |
//! | `pods` | what of a pod may be shown |
//! | `settings` | the configuration with its secrets masked |

mod pods;
mod secrets;
mod settings;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use edge_runtime::cli::CliError;
use edge_runtime::link::identity::Identity;
use edge_runtime::link::status;
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use self::secrets::Secrets;
use super::finding::Finding;
use super::host::{ask, text};

/// Maximum size of one file in it, in bytes.
const LONGEST: usize = 2 << 20;
const LOG_LINES: &str = "2000";

/// Files of the kernel and the distribution.
const FACTS: [&str; 16] = [
    "/proc/version",
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/self/mountinfo",
    "/proc/filesystems",
    "/proc/modules",
    "/proc/cgroups",
    "/proc/pressure/cpu",
    "/proc/pressure/memory",
    "/proc/pressure/io",
    "/proc/net/dev",
    "/proc/net/route",
    "/etc/os-release",
    "/etc/resolv.conf",
];

/// Writes the bundle, for its owner only.
///
/// # Errors
/// The file cannot be written. Unreadable inputs are named in it.
pub(super) fn write(paths: &Paths, findings: &[Finding], file: &Path) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::Failed(format!("{}: {error}", file.display()));
    // A name of its own first: a file or a link that is there already may be another user's.
    let part = PathBuf::from(format!("{}.part-{}", file.display(), std::process::id()));
    let out = File::options().create_new(true).write(true).mode(0o600).open(&part).map_err(failed)?;
    let written = write_to(out, paths, findings).and_then(|()| fs::rename(&part, file));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written.map_err(failed)
}

fn write_to(out: File, paths: &Paths, findings: &[Finding]) -> std::io::Result<()> {
    let store = if paths.store().exists() {
        Store::open_shared(&paths.store()).map_err(|error| error.to_string())
    } else {
        Err("no node has run here".into())
    };
    let secrets = Secrets::of(paths, store.as_ref().ok());
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for (name, content) in members(paths, findings, &store) {
        let text = secrets.blot(&content);
        add(&mut archive, &name, text.as_bytes())?;
    }
    archive.into_inner().and_then(GzEncoder::finish).and_then(|mut out| out.flush())
}

fn add(archive: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> std::io::Result<()> {
    // The end of it: of logs the newest.
    let content = content.split_at(content.len().saturating_sub(LONGEST)).1;
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default());
    archive.append_data(&mut header, Path::new("edge-runtime-bundle").join(name), content)
}

fn members(paths: &Paths, findings: &[Finding], store: &Result<Store, String>) -> Vec<(String, String)> {
    let pretty = |value: &serde_json::Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let daemon = |what| match super::areas::daemon::get(&paths.health(), what) {
        Ok((_, body)) => body,
        Err(error) => format!("{error}\n"),
    };
    let mut all = vec![
        ("doctor.json".to_owned(), serde_json::to_string_pretty(findings).unwrap_or_default()),
        ("versions.json".to_owned(), pretty(&versions())),
        ("node.json".to_owned(), pretty(&node(paths))),
        ("config.yaml".to_owned(), settings::masked(&paths.config_file())),
        ("link.json".to_owned(), text(status::file(paths))),
        ("readyz.txt".to_owned(), daemon("/readyz?verbose")),
        ("metrics.txt".to_owned(), daemon("/metrics")),
        ("events.jsonl".to_owned(), [text(paths.old_events()), text(paths.events())].join("\n")),
    ];
    all.push(match store {
        Ok(store) => ("pods.json".to_owned(), pretty(&pods::shown(store))),
        Err(error) => ("pods.txt".to_owned(), error.clone()),
    });
    if paths.root() == Path::new("/") {
        let args = ["-u", "edge-runtime.service", "-n", LOG_LINES, "-o", "short-iso", "--no-pager", "-q"];
        all.push(("log.txt".to_owned(), ask("journalctl", &args).unwrap_or_else(|error| error)));
        all.push((
            "unit.txt".to_owned(),
            ask("systemctl", &["cat", "edge-runtime.service"]).unwrap_or_else(|error| error),
        ));
    }
    for file in FACTS {
        all.push((format!("host{file}"), text(file)));
    }
    for (name, program, args) in [
        ("host/dmesg.txt", "dmesg", &[][..]),
        ("host/df.txt", "df", &["-h"]),
        ("host/nft.txt", "nft", &["list", "ruleset"]),
        ("host/runc-features.json", "runc", &["features"]),
    ] {
        all.push((name.to_owned(), ask(program, args).unwrap_or_else(|error| error)));
    }
    all
}

fn versions() -> serde_json::Value {
    let facts = sampan_sys::host::facts();
    json!({
        "edge-runtime": env!("CARGO_PKG_VERSION"),
        "kernel": facts.kernel_version,
        "system": facts.os_image,
        "architecture": facts.architecture,
        "cpus": facts.cpus,
        "memoryBytes": facts.memory_bytes,
        "systemd": sampan_sys::systemd::is_init(),
    })
}

/// The identity without its key and certificates.
fn node(paths: &Paths) -> serde_json::Value {
    match Identity::load(paths) {
        Ok(None) => json!({"joined": false}),
        Ok(Some(identity)) => json!({
            "joined": true,
            "node": identity.node,
            "cluster": identity.cluster,
            "bridges": identity.bridges.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "certificateEnd": identity.certificate_end(),
        }),
        Err(error) => json!({"joined": false, "error": error.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn bundle_replaces_a_file_or_link_and_is_for_its_owner_only() {
        let temp = tempfile::tempdir().unwrap();
        let (file, other) = (temp.path().join("bundle.tar.gz"), temp.path().join("other"));
        fs::write(&other, "mine").unwrap();
        symlink(&other, &file).unwrap();
        write(&Paths::new(temp.path()), &[], &file).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"mine", "no link is followed");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        write(&Paths::new(temp.path()), &[], &file).unwrap();
        assert_eq!(fs::symlink_metadata(&file).unwrap().permissions().mode(), 0o100_600);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2, "nothing is left beside it");
    }
}
