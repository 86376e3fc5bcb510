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
use std::time::SystemTime;

use clap::Args;
use edge_protocol::findings;

use crate::flags::bridge_url;
use crate::output::{Structured, print};
use crate::pki::authority::Authority;
use crate::pki::{NAMESPACE, PkiError, keep};
use crate::reach::Reach;
use finding::Finding;

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

    #[test]
    fn missing_authority_of_a_cluster_is_found() {
        assert_found(&[of_cluster(Ok(None)).0], "authority", Severity::Error, "install");
        let error = PkiError::SecretField { name: keep::SECRET.to_owned(), field: "tls.key" };
        assert_found(&[of_cluster(Err(error)).0], "authority", Severity::Error, "rbac.yaml");
        let authority = Authority::create("x").unwrap();
        assert!(of_cluster(Ok(Some(authority))).1.is_some());
    }
}
