//! `edge-runtime join`: become a node of a cluster with a single-use token; where this program was installed as a service,
//! also start it and wait until it is up. A second run changes nothing.

use std::path::Path;
use std::time::Duration;

use edge_protocol::duration::Typed;
use edge_runtime::cli::verb::{Flag, Given, Operands, ROOT, Verb};
use edge_runtime::cli::{CliError, print, read};
use edge_runtime::link::join::Token;
use edge_runtime::paths::Paths;

use crate::doctor::finding::Severity;
use crate::doctor::{Which, examine, text};
use crate::join::ready;
use crate::join::service::Service;
use crate::join::{Wanted, become_node};

/// Until the node is up: an emulated board takes some ten seconds.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) const VERB: Verb = Verb {
    name: "join",
    about: "Become a node of a cluster with a single-use token",
    operands: Operands::None,
    flags: &[
        Flag::value("bridge", "URL", "bridge with its port (repeatable)"),
        Flag::value("token", "TOKEN", "token that cloud-bridge token create printed"),
        Flag::value("token-file", "FILE", "read the token from a file, or from standard input with -"),
        Flag::value("node", "NAME", "name that the token was created for"),
        Flag::value("label", "KEY=VALUE", "label of the Node object, stored in config.yaml (repeatable)"),
        Flag::value("wait", "DURATION", "how long to wait until the node is up (default 2m)"),
        Flag::switch("no-start", "do not start the service"),
        Flag::switch("no-checks", "skip the preflight checks"),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let wanted = wanted(&given)?;
    let patience = given.one::<Typed>("wait")?.map_or(PATIENCE, |typed| typed.0).min(Duration::from_secs(24 * 3600));
    let paths = given.paths()?;
    // Another root is another node, which its creator starts.
    let service = match given.has("no-start") || paths.root() != Path::new("/") {
        true => None,
        false => Service::find(Path::new("/")),
    };
    if service.is_some() && !given.has("no-checks") {
        checks(&paths)?;
    }
    let joined = become_node(&paths, &wanted)?;
    let node = &wanted.node;
    let Some(service) = service else {
        if let Some(why) = joined.refused {
            return Err(why.into());
        }
        let start = start_command(&given, &paths);
        return print(&format!("joined cluster {} as node {node}; start it with: {start}", joined.cluster));
    };
    print(&match &joined.refused {
        None => format!("joined cluster {} as node {node}", joined.cluster),
        Some(why) => format!("this device is node {node} of cluster {} already, and stays it: {why}", joined.cluster),
    })?;
    service.enable_and_start(joined.restart)?;
    print(&format!("{} starts the node, now and at every boot; waiting until it is up", service.name()))?;
    match ready::wait(&paths, patience) {
        Ok(()) => print(&what_next(node)),
        Err(why) => Err(CliError::Failed(format!(
            "node {node} is not up after {} s: {why}; it goes on trying: edge-runtime status{}",
            patience.as_secs(),
            joined.refused.map(|why| format!("; the token was not taken: {why}")).unwrap_or_default()
        ))),
    }
}

/// Whether this machine can be a node at all, before a token is spent. What is merely not good is told.
fn checks(paths: &Paths) -> Result<(), CliError> {
    let findings = examine(paths, Which::BeforeJoin);
    if findings.iter().all(|one| one.severity <= Severity::Ok) {
        return Ok(());
    }
    let said = text(&findings, false);
    if findings.iter().any(|one| one.severity == Severity::Error) {
        return Err(CliError::Failed(format!(
            "this machine cannot be a node yet; the token is not spent (--no-checks joins all the same):\n{said}"
        )));
    }
    print(said.trim_end())
}

fn wanted(given: &Given) -> Result<Wanted, CliError> {
    let bridges = given.all("bridge")?;
    if bridges.is_empty() {
        return Err(CliError::Usage("join needs --bridge https://HOST:PORT".into()));
    }
    let token = match given.path("token-file") {
        Some(file) => Some(String::from_utf8(read(&file)?)?.trim().to_owned()),
        None => given.one::<String>("token")?,
    };
    let token = token.ok_or_else(|| {
        CliError::Usage("join needs --token or --token-file; cloud-bridge token create prints one".into())
    })?;
    let token = Token::parse(&token)?;
    let node: Option<String> = given.one("node")?;
    let node = node.ok_or_else(|| CliError::Usage("join needs --node, the name the token was made for".into()))?;
    let labels =
        given.all::<String>("label")?.iter().map(|text| crate::join::labels::parse(text)).collect::<Result<_, _>>();
    let labels = labels.map_err(|why| CliError::Usage(format!("--label {why}")))?;
    Ok(Wanted { bridges, node, token, labels })
}

fn start_command(given: &Given, paths: &Paths) -> String {
    match given.path(ROOT.long) {
        Some(_) => format!("edge-runtime run --root {}", paths.root().display()),
        None => "edge-runtime run".to_owned(),
    }
}

fn what_next(node: &str) -> String {
    format!(
        "node {node} is up\n\n  kubectl get node {node}     on the cluster\n  edge-runtime status        here: the node and its \
         link\n  edge-runtime ps            here: its pods\n  edge-runtime reset --all   here: the way back"
    )
}
