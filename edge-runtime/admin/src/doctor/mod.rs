//! `edge-runtime doctor`: what is wrong here, why it matters, what cures it. Works without a cloud and without the daemon.
//!
//! | file | owns |
//! |---|---|
//! | `finding` | what a finding is |
//! | `host` | which node is meant, and how programs of the host are asked |
//! | `areas` | what is looked at: facts, and decisions about them |
//! | `bundle` | all of it in one file for support, without secrets |

mod areas;
mod bundle;
pub(crate) mod finding;
pub(crate) mod host;

use std::io::{IsTerminal, Write};

use edge_protocol::findings::{for_output, summary};
use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::link::address::BridgeAddress;
use edge_runtime::link::identity::Identity;
use edge_runtime::net::proxy::{Proxy, Server, Use};
use edge_runtime::paths::Paths;

pub(crate) use areas::board::degrees;
pub(crate) use areas::daemon::{get as ask_daemon, pid as daemon_pid};
pub(crate) use areas::disk::worn;
pub(crate) use areas::limits::{load, meminfo};
use areas::{
    board, cgroups, clock, config, daemon, disk, kernel, limits, link, local_api, network, plugins, proxy, runtime,
    unit,
};
use finding::{Finding, Severity, worst};
use host::Host;

use crate::output::{Form, JSON, OUTPUT};
use crate::takes;

pub(crate) const VERB: Verb = Verb {
    name: "doctor",
    about: "Find problems of this node and suggest fixes",
    operands: Operands::None,
    flags: &[
        OUTPUT,
        JSON,
        Flag::switch("all", "also list passed checks").short('a'),
        Flag::value("bundle", "FILE", "write a report for others to FILE, a tar.gz with secrets redacted"),
    ],
    run,
};

/// Which checks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    All,
    /// Checks a device before it becomes a node: expects no daemon and no identity. `proxy`: in place of the configured one.
    BeforeJoin {
        bridges: &'a [BridgeAddress],
        proxy: Option<&'a Server>,
    },
}

/// The bridges, and the proxy on the way to them.
fn way(host: &Host, which: Which<'_>) -> (Vec<BridgeAddress>, Proxy) {
    let mut proxy = host.config.as_ref().map(|config| config.proxy.clone()).unwrap_or_default();
    let bridges = match which {
        Which::All => Identity::load(&host.paths).ok().flatten().map(|identity| identity.bridges).unwrap_or_default(),
        Which::BeforeJoin { bridges, proxy: wanted } => {
            proxy.url = wanted.cloned().or(proxy.url);
            bridges.to_vec()
        }
    };
    (bridges, proxy.of(Use::Link))
}

/// Looks at everything and decides. Takes some seconds where a bridge does not answer.
pub(crate) fn examine(paths: &Paths, which: Which<'_>) -> Vec<Finding> {
    let host = Host::new(paths);
    let (bridges, link_proxy) = way(&host, which);
    let daemon = daemon::pid(paths);
    let mut all = Vec::new();
    all.extend(rights(nix::unistd::geteuid().is_root()));
    all.extend(config::judge(&config::look(&host)));
    all.extend(cgroups::judge(&cgroups::look()));
    all.extend(kernel::judge(&kernel::look()));
    all.extend(clock::judge(&clock::look()));
    all.extend(disk::judge(&disk::look(paths)));
    all.extend(board::judge(&board::look(paths)));
    all.extend(limits::judge(&limits::look(daemon)));
    all.extend(runtime::judge(&runtime::look(&host)));
    all.extend(network::judge(&network::look(&host, daemon, &bridges, &link_proxy)));
    if matches!(which, Which::All) {
        all.extend(link::judge(&link::look(&host, daemon)));
        all.extend(proxy::judge(&proxy::look(&host, daemon)));
        all.extend(local_api::judge(&local_api::look(&host, &bridges)));
        all.extend(plugins::judge(&plugins::look(&host)));
        all.extend(unit::judge(&unit::look(&host)));
        all.extend(daemon::judge(&daemon::look(&host)));
    }
    all
}

/// Files of the node are root's, and so are sockets and nft.
fn rights(is_root: bool) -> Option<Finding> {
    let why = "what only root may see seems wrong, or is not there";
    let finding = || Finding::warning("rights", "doctor does not run as root", why, "sudo edge-runtime doctor");
    (!is_root).then(finding)
}

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    let form = Form::of(&given)?;
    if given.has("bundle") {
        takes::only(&given, VERB.flags, "doctor --bundle", &["bundle"])?;
        // A bridge or a program of the host may not answer for a while. Without standard error there is still the file.
        let _ = writeln!(std::io::stderr(), "checking the node and collecting its state");
    }
    let findings = examine(&paths, Which::All);
    if let Some(file) = given.path("bundle") {
        bundle::write(&paths, &findings, &file)?;
        return print(&format!(
            "{} is written; check it before you share it: tar tzf {}",
            file.display(),
            file.display()
        ));
    }
    let all = given.has("all");
    let is_shown = |one: &&Finding| all || one.severity > Severity::Ok;
    let names = || findings.iter().filter(is_shown).map(|one| one.check.to_owned()).collect::<Vec<_>>();
    let is_terminal = std::io::stdout().is_terminal();
    let table = |_: bool| for_output(text(&findings, all), is_terminal, std::env::var_os);
    form.print(&findings, table, names)?;
    match worst(&findings).code() {
        0 => Ok(()),
        code => Err(CliError::Exit(code)),
    }
}

/// The worst last, where a terminal shows it.
pub(crate) fn text(findings: &[Finding], all: bool) -> String {
    let mut shown: Vec<&Finding> = findings.iter().filter(|one| all || one.severity > Severity::Ok).collect();
    shown.sort_by_key(|one| one.severity);
    let mut out = String::new();
    for one in shown {
        out.push_str(&format!("{:<8} {}: {}\n", one.severity.name(), one.check, one.what));
        for (name, text) in [("why", one.why), ("cure", &one.cure)] {
            if !text.is_empty() {
                out.push_str(&format!("         {name}: {text}\n"));
            }
        }
    }
    let count = |severity| findings.iter().filter(|one| one.severity == severity).count();
    out + &summary(count(Severity::Error), count(Severity::Warning), findings.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_not_look_is_told_so() {
        finding::tests::assert_found(rights(false).as_slice(), "rights", Severity::Warning, "sudo edge-runtime doctor");
        assert_eq!(rights(true), None);
    }

    #[test]
    fn people_are_shown_what_is_wrong_with_its_cure_and_the_worst_last() {
        let all = [
            Finding::error("b", "broken", "matters", "mend it"),
            Finding::ok("a", "fine"),
            Finding::warning("c", "so so", "matters", "look"),
        ];
        let shown = text(&all, false);
        let wanted = "warning  c: so so\n         why: matters\n         cure: look\nerror    b: broken\n         why: matters\n         \
                      cure: mend it\n1 error, 1 warning (3 checks)\n";
        assert_eq!(shown, wanted);
        assert!(text(&all, true).starts_with("ok       a: fine\n"));
        assert_eq!(text(&all[1..2], false), "all is well (1 check)\n");
    }
}
