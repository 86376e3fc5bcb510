//! `cloud-bridge doctor`: what is wrong with a bridge, why it matters, what fixes it. Works on a bridge that does not run, too.
//!
//! | file | owns |
//! |---|---|
//! | `finding` | what a finding is, and how it is printed |
//! | `clock` | the clock of this machine |
//! | `state` | the state folder of a standalone bridge: disk, database, certificates |
//! | `running` | the API, the port of the nodes, the process, the nodes |

mod clock;
mod finding;
mod running;
mod state;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use edge_protocol::findings;

use crate::flags::bridge_url;
use crate::output::{Structured, print, rough};
use crate::pki::authority::Authority;
use crate::pki::rotation::Rotation;
use crate::pki::{self, NAMESPACE, PkiError, keep};
use crate::reach::Reach;
use finding::Finding;

/// Nodes that are used at all have renewed after this time of a rotation.
const ROTATION: Duration = Duration::from_secs(30 * 86_400);

/// `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    reach: Reach,
    /// Address of the bridge, https://HOST:PORT [default: as it advertises itself].
    #[arg(long, value_name = "URL", value_parser = bridge_url)]
    bridge: Option<String>,
    /// Show passed checks, too.
    #[arg(long, short)]
    all: bool,
    /// Print the findings in this form.
    #[arg(long, short, value_enum, value_name = "FORM")]
    output: Option<Structured>,
}

/// Examines and prints. The exit code is that of the most severe finding.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let (client, folder) = options.reach.client().await?;
    let mut found = vec![clock::judge(SystemTime::now(), clock::synchronized())];
    let authority = match &folder {
        Some(folder) => {
            let (facts, authority) = state::look(folder);
            found.extend(state::judge(&facts));
            authority
        }
        None => {
            let (finding, authority) = of_cluster(keep::of_cluster(&client).await);
            found.push(finding);
            authority
        }
    };
    let rotation = authority.as_ref().and_then(Authority::rotation);
    found.extend(rotation.and_then(|rotation| of_rotation(rotation, pki::clock::now())));
    let facts = running::look(&client, authority.as_ref(), options.bridge, folder.is_some()).await;
    found.extend(running::judge(&facts));
    print(&match options.output {
        Some(form) => form.text(&found)?,
        None => {
            let text = finding::text(&found, options.all);
            findings::for_output(text, std::io::stdout().is_terminal(), std::env::var_os)
        }
    })?;
    Ok(finding::code(&found).into())
}

/// A rotation of the authority that is not finished.
fn of_rotation(rotation: &Rotation, now: SystemTime) -> Option<Finding> {
    if !rotation.lasts() {
        return None;
    }
    let age = now.duration_since(UNIX_EPOCH + Duration::from_millis(rotation.began_ms)).unwrap_or_default();
    let what = format!("a rotation of the authority began {} ago and is not finished", rough(age));
    let cure = "cloud-bridge authority status, then cloud-bridge authority finish: docs/rotation.md";
    Some(if age < ROTATION {
        Finding::info("rotation", format!("{what}: {cure}"))
    } else {
        Finding::warning("rotation", what, "the old authority is trusted until then", cure)
    })
}

/// The authority of a bridge beside a cluster, which the first bridge makes.
fn of_cluster(read: Result<Option<Authority>, PkiError>) -> (Finding, Option<Authority>) {
    let why = "without it no bridge can be asked, and no node joins";
    let name = keep::SECRET;
    match read {
        Ok(Some(authority)) => (Finding::ok("authority", format!("secret {NAMESPACE}/{name}")), Some(authority)),
        Ok(None) => {
            let what = format!("there is no secret {NAMESPACE}/{name}: no bridge has run on this cluster");
            (Finding::error("authority", what, why, "install the bridge: docs/install.md"), None)
        }
        Err(error) => {
            let cure = "use a kubeconfig with the rights of deploy/bridge/rbac.yaml";
            (Finding::error("authority", error.to_string(), why, cure), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::finding::Severity;
    use super::finding::tests::assert_found;
    use super::*;
    use crate::pki::rotation::Pair;

    #[test]
    fn rotation_that_lasts_too_long_is_found() {
        let next = Pair { certificate: String::new(), key: String::new() };
        let began = UNIX_EPOCH + 1000 * ROTATION / 30;
        let rotation = Rotation::begin(next, began, Duration::ZERO, Duration::ZERO);
        let at = |rotation: &Rotation, age: Duration| of_rotation(rotation, began + age);
        assert_found(&[at(&rotation, ROTATION / 2).unwrap()], "rotation", Severity::Info, "");
        assert_found(&[at(&rotation, ROTATION).unwrap()], "rotation", Severity::Warning, "authority finish");
        assert_eq!(at(&rotation.finish(began, Duration::ZERO), ROTATION), None);
    }

    #[test]
    fn missing_authority_of_a_cluster_is_found() {
        assert_found(&[of_cluster(Ok(None)).0], "authority", Severity::Error, "install");
        let error = PkiError::SecretField { name: keep::SECRET.to_owned(), field: "tls.key" };
        assert_found(&[of_cluster(Err(error)).0], "authority", Severity::Error, "rbac.yaml");
        let authority = Authority::create("x").unwrap();
        assert!(of_cluster(Ok(Some(authority))).1.is_some());
    }
}
