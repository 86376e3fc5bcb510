//! How a command finds the API of its bridge: by flags, else by what is on this machine; and what it says if that does not answer.

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio::time::timeout;

use crate::flags;

/// Where the packaged service keeps the state of `standalone`.
const PACKAGED: &str = "/var/lib/cloud-bridge";
/// Arguments of the packaged service.
const SERVICE: &str = "/etc/default/cloud-bridge";
const ENVIRONMENT: &str = "CLOUD_BRIDGE_STATE";
/// Time for the first answer of an API: a client of kube waits forever. An API under load takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Flags of commands that ask a bridge's API.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reach {
    /// State folder of a standalone bridge; absent (with --kubeconfig, too): $CLOUD_BRIDGE_STATE, else the kubeconfig of the
    /// packaged service if that runs serve, else /var/lib/cloud-bridge if a bridge keeps its state there, else the cluster of
    /// the pod that this runs in.
    #[arg(long, value_name = "FOLDER", conflicts_with = "kubeconfig")]
    state: Option<PathBuf>,
    /// Kubeconfig of the API that the bridge serves.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// The state folder that a command means: its flag, else `$CLOUD_BRIDGE_STATE`, else that of the packaged service.
///
/// # Errors
/// The packaged service runs beside a cluster: what is in its folder is of an earlier bridge. Or only root may read the folder.
#[cfg(feature = "standalone")]
pub(crate) fn state_folder(flag: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let service = std::fs::read_to_string(SERVICE).ok().and_then(|text| of_service(&text));
    let folder = folder(flag, std::env::var_os(ENVIRONMENT), service.is_some())?;
    ensure_allowed(&folder, std::fs::read_dir(&folder).map(drop))?;
    Ok(folder)
}

#[cfg(feature = "standalone")]
fn folder(flag: Option<PathBuf>, environment: Option<OsString>, has_cluster: bool) -> anyhow::Result<PathBuf> {
    let named = environment.filter(|value| !value.is_empty()).map(PathBuf::from);
    match flag.or(named) {
        Some(folder) => Ok(folder),
        None if has_cluster => bail!(
            "the bridge of {SERVICE} runs beside a cluster, which has all its state; --state FOLDER names a standalone bridge"
        ),
        None => Ok(PACKAGED.into()),
    }
}

/// Any other error is told by what reads the folder.
#[cfg(feature = "standalone")]
fn ensure_allowed(folder: &Path, seen: io::Result<()>) -> anyhow::Result<()> {
    match seen {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(error).with_context(|| format!("reading {} needs root: use sudo", folder.display()))
        }
        _ => Ok(()),
    }
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The state folder of a standalone bridge.
    State(PathBuf),
    Kubeconfig(PathBuf),
    /// The cluster of this pod.
    Cluster,
}

impl Reach {
    /// A client, and the state folder if it is a standalone bridge's.
    pub(crate) async fn client(self) -> anyhow::Result<(kube::Client, Option<PathBuf>)> {
        let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let service = std::fs::read_to_string(SERVICE).ok().and_then(|text| of_service(&text));
        let found = self.find(std::env::var_os(ENVIRONMENT), service, in_pod, |path| path.try_exists())?;
        let (kubeconfig, state) = match found {
            Found::State(state) => (Some(state.join("kubeconfig")), Some(state)),
            Found::Kubeconfig(path) => (Some(path), None),
            Found::Cluster => (None, None),
        };
        Ok((flags::client(kubeconfig).await?, state))
    }

    /// Same as [`Reach::client`], of an API that answers.
    ///
    /// # Errors
    /// It does not answer: why, and what to do.
    pub(crate) async fn running(self) -> anyhow::Result<(kube::Client, Option<PathBuf>)> {
        let (client, state) = self.client().await?;
        match silence(&client, PATIENCE).await {
            Some(cause) => bail!(unanswered(&cause, state.as_deref())),
            None => Ok((client, state)),
        }
    }

    fn find(
        self,
        environment: Option<OsString>,
        service: Option<PathBuf>,
        in_pod: bool,
        exists: impl Fn(&Path) -> io::Result<bool>,
    ) -> anyhow::Result<Found> {
        let named = environment.filter(|value| !value.is_empty()).map(PathBuf::from);
        match (self.state, self.kubeconfig) {
            (Some(state), _) => return Ok(Found::State(state)),
            (None, Some(kubeconfig)) => return Ok(Found::Kubeconfig(kubeconfig)),
            (None, None) => {}
        }
        if let Some(state) = named {
            return Ok(Found::State(state));
        }
        if let Some(kubeconfig) = service {
            return Ok(Found::Kubeconfig(kubeconfig));
        }
        let packaged = Path::new(PACKAGED);
        match exists(&packaged.join("kubeconfig")) {
            Ok(true) => return Ok(Found::State(packaged.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !in_pod => {
                return Err(error).context(format!("reading {PACKAGED} needs root: use sudo, or --kubeconfig FILE"));
            }
            _ => {}
        }
        if !in_pod {
            bail!(
                "no bridge is found: there is no {PACKAGED}/kubeconfig, and this is not a pod of a cluster; name one with --state FOLDER \
                 (or ${ENVIRONMENT}) for a standalone bridge, or with --kubeconfig FILE for one beside a cluster"
            );
        }
        Ok(Found::Cluster)
    }
}

/// Why an API does not answer within `patience`; `None` if it does. What it refuses is told where it is needed.
async fn silence(client: &kube::Client, patience: Duration) -> Option<String> {
    match timeout(patience, client.apiserver_version()).await {
        Err(_) => Some(format!("no answer within {} s", patience.as_secs())),
        Ok(Err(error @ (kube::Error::Service(_) | kube::Error::HyperError(_)))) => Some(cause(&error)),
        Ok(_) => None,
    }
}

/// The last cause, which is what the kernel or TLS says; those before it only say that a request failed.
fn cause(error: &kube::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// What to look at if an API does not answer.
fn unanswered(cause: &str, state: Option<&Path>) -> String {
    match state {
        Some(state) => format!(
            "the bridge of {} does not answer: {cause}; see systemctl status cloud-bridge, or cloud-bridge doctor",
            state.display()
        ),
        None => format!("the API does not answer: {cause}"),
    }
}

/// Kubeconfig of the packaged service, by the text of its environment file, if it runs `serve`. The kubeconfig of an earlier
/// `standalone` stays in the state folder, and nothing answers at its address.
fn of_service(text: &str) -> Option<PathBuf> {
    let options = text.lines().rev().find_map(|line| line.trim().strip_prefix("CLOUD_BRIDGE_OPTIONS="))?;
    let mut words = options.trim_matches(['"', '\'']).split_whitespace();
    if words.next() != Some("serve") {
        return None;
    }
    match words.find_map(|word| word.strip_prefix("--kubeconfig"))?.strip_prefix('=') {
        Some(file) => Some(file.into()),
        None => words.next().map(PathBuf::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(
        state: &str,
        kubeconfig: &str,
        named: &str,
        in_pod: bool,
        there: io::Result<bool>,
    ) -> anyhow::Result<Found> {
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let reach = Reach { state: path(state), kubeconfig: path(kubeconfig) };
        let there = std::cell::Cell::new(Some(there));
        reach.find(Some(named.into()), None, in_pod, |_| there.take().unwrap_or(Ok(false)))
    }

    #[test]
    fn a_bridge_is_found_without_flags() {
        let state = |path: &str| Found::State(path.into());
        assert_eq!(find("/a", "", "/b", true, Ok(true)).unwrap(), state("/a"));
        assert_eq!(find("", "/k", "/b", true, Ok(true)).unwrap(), Found::Kubeconfig("/k".into()));
        assert_eq!(find("", "", "/b", true, Ok(true)).unwrap(), state("/b"));
        assert_eq!(find("", "", "", false, Ok(true)).unwrap(), state(PACKAGED));
        assert_eq!(find("", "", "", true, Ok(false)).unwrap(), Found::Cluster);
    }

    #[cfg(feature = "standalone")]
    #[test]
    fn flag_comes_before_environment_and_package() {
        let of = |flag: Option<&str>, named: &str| folder(flag.map(PathBuf::from), Some(named.into()), false).unwrap();
        assert_eq!(of(Some("/a"), "/b"), Path::new("/a"));
        assert_eq!(of(None, "/b"), Path::new("/b"));
        assert_eq!(of(None, ""), Path::new(PACKAGED));
    }

    #[cfg(feature = "standalone")]
    #[test]
    fn earlier_state_of_a_bridge_beside_a_cluster_is_only_used_by_name() {
        let why = folder(None, Some("".into()), true).unwrap_err().to_string();
        assert!(why.contains("beside a cluster") && why.contains("--state"), "{why}");
        assert_eq!(folder(Some("/a".into()), None, true).unwrap(), Path::new("/a"));
    }

    #[cfg(feature = "standalone")]
    #[test]
    fn folder_of_the_service_needs_root() {
        let of = |seen: io::Result<()>| ensure_allowed(Path::new("/a"), seen).map_err(|error| error.to_string());
        assert!(of(Err(io::ErrorKind::PermissionDenied.into())).unwrap_err().contains("/a needs root: use sudo"));
        of(Err(io::ErrorKind::NotFound.into())).unwrap();
        of(Ok(())).unwrap();
    }

    #[test]
    fn service_beside_a_cluster_is_asked_and_not_an_earlier_state() {
        for (text, wanted) in [
            ("# x\nCLOUD_BRIDGE_OPTIONS=\"serve --kubeconfig /k --listen 0.0.0.0:7443\"\n", Some("/k")),
            ("CLOUD_BRIDGE_OPTIONS='serve --listen 0.0.0.0:7443 --kubeconfig=/k'", Some("/k")),
            ("CLOUD_BRIDGE_OPTIONS=\"standalone --state /s\"\n#CLOUD_BRIDGE_OPTIONS=\"serve --kubeconfig /k\"\n", None),
            ("CLOUD_BRIDGE_OPTIONS=\"serve\"", None),
            ("", None),
        ] {
            assert_eq!(of_service(text), wanted.map(PathBuf::from), "{text}");
        }
        let found = |state: Option<PathBuf>| {
            Reach { state, kubeconfig: None }.find(None, Some("/k".into()), false, |_| Ok(true)).unwrap()
        };
        assert_eq!(found(None), Found::Kubeconfig("/k".into()));
        assert_eq!(found(Some("/s".into())), Found::State("/s".into()));
    }

    #[test]
    fn stopped_bridge_is_named_with_the_cause() {
        let cause = cause(&kube::Error::Service(io::Error::from(io::ErrorKind::ConnectionRefused).into()));
        let why = unanswered(&cause, Some(Path::new("/s")));
        assert!(why.starts_with("the bridge of /s does not answer: connection refused; see systemctl"), "{why}");
        assert_eq!(unanswered(&cause, None), "the API does not answer: connection refused");
    }

    #[tokio::test]
    async fn api_that_never_answers_is_left_in_time() {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, io::Error>>()
        });
        let client = kube::Client::new(silent, "default");
        let why = silence(&client, Duration::from_millis(10)).await.unwrap();
        assert!(why.contains("no answer within"), "{why}");
    }

    #[test]
    fn the_error_names_every_way_to_a_bridge() {
        let why = find("", "", "", false, Ok(false)).unwrap_err().to_string();
        for way in ["--state", ENVIRONMENT, PACKAGED, "--kubeconfig"] {
            assert!(why.contains(way), "{way}: {why}");
        }
        let why = find("", "", "", false, Err(io::ErrorKind::PermissionDenied.into())).unwrap_err().to_string();
        assert!(why.contains("sudo"), "{why}");
    }
}
