//! Kubeconfigs of the embedded API: the administrator's, which the state folder has, and those that `cloud-bridge kubeconfig`
//! prints for other machines and people.

use std::fs::{File, Metadata};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use http::Uri;
use serde_json::{Value, json};

use crate::flags::{self, bridge_url};
use crate::info;
use crate::output::{Structured, print};
use crate::pki::authority::{Authority, Signed};
use crate::pki::encoding::to_pem;
use crate::pki::{clock, keep};
use crate::reach::Reach;

/// The user and the group of the administrator's certificate.
const ADMIN: (&str, &str) = ("sampan-admin", "system:masters");
/// Lifetime of the administrator's certificate in the state folder, which the bridge renews every month.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// The API's port unless the bridge names another.
const PORT: u16 = 6443;

/// `kubeconfig`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    reach: Reach,
    /// Name or address by which clients reach the API: HOST, HOST:PORT or https://HOST:PORT. Its certificate must hold the host, see
    /// --advertise of `standalone` [default: as the bridge advertises its API].
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    /// Identify the client as this user, who has the rights that bindings give.
    #[arg(long, value_name = "NAME", conflicts_with = "admin", value_parser = user_name)]
    user: Option<String>,
    /// Identify the client as the administrator, who has all rights. This is the default.
    #[arg(long)]
    admin: bool,
    /// Lifetime of the client's certificate. It cannot be revoked before its end.
    #[arg(long, value_name = "DURATION", default_value = "365d", value_parser = flags::life)]
    ttl: Duration,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let (client, state) = options.reach.running().await?;
    let state = state
        .context("only a standalone bridge has an API of its own: beside a cluster, use a kubeconfig of the cluster")?;
    let api = info::known(&client).await?.api;
    let server = server(options.server.as_deref(), api.as_deref())?;
    let authority = keep::of_folder(&state)?;
    let person = options.user.filter(|_| !options.admin);
    let (user, group) = person.as_deref().map_or((ADMIN.0, Some(ADMIN.1)), |person| (person, None));
    let signed = authority.user(user, group, options.ttl)?;
    print(&Structured::Yaml.text(&document(&authority, &server, user, &signed))?)?;
    let printed_to = std::io::stdout().as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    if printed_to.is_ok_and(|file| is_open_to_others(&file)) {
        log::warn!("other users of this machine can read the file, which holds a key: chmod 600 it");
    }
    if info::is_loopback(&server) {
        log::warn!(
            "only this machine reaches {server}: for others start the bridge with --api-listen 0.0.0.0:{PORT} --advertise \
             NAME-OR-ADDRESS, or give --server"
        );
    }
    if let Some(user) = person {
        log::info!(
            "bindings give {user} its rights, as in: kubectl create clusterrolebinding {user} --clusterrole=view --user={user}"
        );
    }
    Ok(())
}

/// Whether these are of a file, not of a terminal or pipe, that other users may read.
fn is_open_to_others(file: &Metadata) -> bool {
    file.is_file() && file.mode() & 0o044 != 0
}

/// Names with this prefix are those of nodes and components.
fn user_name(text: &str) -> anyhow::Result<String> {
    ensure!(!text.is_empty() && !text.chars().any(char::is_control), "want the name of a user");
    ensure!(!text.starts_with("system:"), "names that begin with system: are reserved");
    Ok(text.to_owned())
}

/// URL of the API for clients: as typed, with what is missing from the URL that the bridge advertises.
fn server(typed: Option<&str>, api: Option<&str>) -> anyhow::Result<String> {
    let Some(typed) = typed else {
        let api =
            api.context("the running bridge does not say where its API is: restart it, or give --server HOST:PORT")?;
        return Ok(api.to_owned());
    };
    let port_of = |url: &str| url.parse::<Uri>().ok().and_then(|url| url.port_u16());
    let port = api.and_then(port_of).unwrap_or(PORT);
    if typed.parse::<IpAddr>().is_ok() {
        return Ok(info::https(typed, port));
    }
    let mut url = if typed.starts_with("https://") { typed.to_owned() } else { format!("https://{typed}") };
    if port_of(&url).is_none() {
        url = format!("{url}:{port}");
    }
    bridge_url(&url).with_context(|| format!("--server {typed}"))
}

/// A kubeconfig with one cluster, one user and one context.
pub fn document(authority: &Authority, server: &str, user: &str, signed: &Signed) -> Value {
    let base64 = |text: String| STANDARD.encode(text);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sampan", "cluster": {
            "server": server,
            "certificate-authority-data": base64(authority.trusted_pem()),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": base64(to_pem("CERTIFICATE", &signed.certificate)),
            "client-key-data": base64(to_pem("PRIVATE KEY", signed.key.secret_der())),
        }}],
        "contexts": [{"name": "sampan", "context": {"cluster": "sampan", "user": user}}],
        "current-context": "sampan",
    })
}

/// Writes the administrator's kubeconfig. Done at every start, with a certificate that is valid for a year from then,
/// and last of all, so that a script that waits for the file finds the API answering.
pub(crate) fn write(path: &Path, authority: &Authority, address: SocketAddr) -> anyhow::Result<()> {
    let admin = authority.user(ADMIN.0, Some(ADMIN.1), LIFE)?;
    // A wildcard address is one to listen on, not one to connect to.
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(ip) if ip.is_unspecified() => "::1".to_owned(),
        ip => ip.to_string(),
    };
    let config = document(authority, &info::https(&host, address.port()), ADMIN.0, &admin);
    keep::write_private(path, serde_json::to_string_pretty(&config)?.as_bytes())?;
    Ok(())
}

/// Writes it again every month: a bridge may run for longer than its certificate. The first one was written by the caller.
pub(crate) async fn keep_fresh(path: &Path, authority: &Authority, address: SocketAddr) {
    loop {
        clock::due(clock::now()).await;
        if let Err(error) = write(path, authority, address) {
            log::error!("the administrator's kubeconfig was not renewed: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_completed_from_the_advertised_url() {
        let api = Some("https://10.0.0.1:16443");
        for (typed, wanted) in [
            ("pi-1.local", "https://pi-1.local:16443"),
            ("pi-1.local:443", "https://pi-1.local:443"),
            ("https://api.example.com:8443/", "https://api.example.com:8443"),
            ("192.168.1.10", "https://192.168.1.10:16443"),
            ("fd00::1", "https://[fd00::1]:16443"),
            ("[fd00::1]:6443", "https://[fd00::1]:6443"),
        ] {
            assert_eq!(server(Some(typed), api).unwrap(), wanted);
        }
        assert_eq!(server(None, api).unwrap(), "https://10.0.0.1:16443");
        assert_eq!(server(Some("a"), None).unwrap(), "https://a:6443");
        assert!(server(None, None).unwrap_err().to_string().contains("--server"));
        for bad in ["http://a:1", "a b", "a:1/x", "https://a/x"] {
            server(Some(bad), api).unwrap_err();
        }
    }

    #[test]
    fn only_files_of_others_are_warned_of() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let is_open = |mode: u32| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            is_open_to_others(&file.as_file().metadata().unwrap())
        };
        assert_eq!((is_open(0o600), is_open(0o640), is_open(0o644)), (false, true, true));
        assert!(!is_open_to_others(&std::fs::metadata("/dev/null").unwrap()));
    }

    #[test]
    fn names_of_components_are_refused() {
        assert_eq!(user_name("ann").unwrap(), "ann");
        for bad in ["", "system:node:pi-1", "a\n"] {
            user_name(bad).unwrap_err();
        }
    }
}
