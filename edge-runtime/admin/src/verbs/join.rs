//! `edge-runtime join`: become a node of a cluster with a single-use token, or with a claim token wait for the approval; where
//! this program was installed as a service, also start it and wait until it is up. A second run changes nothing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use edge_runtime::cli::verb::{Flag, Given, Operands, ROOT, Verb};
use edge_runtime::cli::{CliError, print, read};
use edge_runtime::net::proxy::{Server, UrlError};
use edge_runtime::paths::Paths;
use sampan_duration::Typed;

use crate::doctor::finding::Severity;
use crate::doctor::{Which, examine, text};
use crate::join::invitation::Invitation;
use crate::join::proxy::Named;
use crate::join::ready;
use crate::join::service::Service;
use crate::join::{Wanted, become_node, until_joined};

/// Until the node is up: an emulated board takes some ten seconds.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) const VERB: Verb = Verb {
    name: "join",
    about: "Become a node of a cluster with a join token or a claim token",
    operands: Operands::Words("[TOKEN|-]"),
    flags: &[
        Flag::value("token-file", "FILE", "read the token from a file, or from standard input with -"),
        Flag::value("token", "TOKEN", "same as the argument TOKEN"),
        Flag::value("bridge", "URL", "bridge with its port (repeatable; those in the token unless given)"),
        Flag::value("node", "NAME", "name that the token was created for (the one in the token unless given)"),
        Flag::value("label", "KEY=VALUE", "label of the Node object, stored in config.yaml (repeatable)"),
        Flag::value("proxy", "URL", "HTTP proxy of the link and of pulls, stored in config.yaml"),
        Flag::value(
            "proxy-user-file",
            "FILE",
            "login at the proxy in one line, name and password with a colon between; needs --proxy",
        ),
        Flag::value("wait", "DURATION", "how long to wait until the node is up (default 2m)"),
        Flag::switch("no-start", "do not start the service"),
        Flag::switch("no-checks", "skip the preflight checks"),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    if given.has("no-start") && given.has("wait") {
        return Err(CliError::Usage("join --no-start does not take --wait".to_owned()));
    }
    let wanted = wanted(&given)?;
    let patience = given.one::<Typed>("wait")?.map_or(PATIENCE, |typed| typed.0).min(Duration::from_secs(24 * 3600));
    let paths = given.paths()?;
    // Another root is another node, which its creator starts.
    let service = match given.has("no-start") || paths.root() != Path::new("/") {
        true => None,
        false => Service::find(Path::new("/")),
    };
    if service.is_some() && !given.has("no-checks") {
        checks(&paths, &wanted)?;
    }
    let joined = match wanted.node {
        Some(_) => become_node(&paths, &wanted)?,
        // Without standard error there is still the result.
        None => until_joined(&paths, &wanted, |why| drop(writeln!(std::io::stderr(), "{why}")))?,
    };
    let node = &joined.node;
    let Some(service) = service else {
        if let Some(why) = joined.refused {
            return Err(why.into());
        }
        let start = start_command(&given, &paths);
        return print(&format!("joined cluster {} as node {node}; start it with: {start}", joined.cluster));
    };
    print(&match &joined.refused {
        None => format!("joined cluster {} as node {node}", joined.cluster),
        Some(why) => {
            format!("this device is node {node} of cluster {} already and keeps its identity: {why}", joined.cluster)
        }
    })?;
    service.enable_and_start(joined.restart)?;
    print(&format!("{} starts the node, now and at every boot; waiting until it is up", service.name()))?;
    // Without standard error there is still the result.
    let note = |why: &str| drop(writeln!(std::io::stderr(), "node {node} is not up yet: {why}"));
    match ready::wait(&paths, patience, note) {
        Ok(()) => print(&what_next(node)),
        Err(why) => Err(CliError::Failed(format!(
            "node {node} is not up after {} s: {why}; it keeps trying, see edge-runtime status{}",
            patience.as_secs(),
            joined.refused.map(|why| format!("; the token was refused: {why}")).unwrap_or_default()
        ))),
    }
}

/// Whether this machine can be a node at all, before a token is spent. What is merely not good is told.
fn checks(paths: &Paths, wanted: &Wanted) -> Result<(), CliError> {
    let proxy = wanted.proxy.as_ref().map(|named| &named.url);
    let findings = examine(paths, Which::BeforeJoin { bridges: &wanted.bridges, proxy });
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
    let Invitation { token, node, bridges } = Invitation::parse(&token_text(given)?)?;
    let mut typed = given.all("bridge")?;
    if typed.is_empty() {
        typed = bridges;
    }
    if typed.is_empty() {
        return Err(CliError::Usage("this token does not name its bridge: add --bridge https://HOST:PORT".into()));
    }
    let no_node = || CliError::Usage("this token does not name its node: add --node, the name it was made for".into());
    let node = match (token.is_claim(), given.one::<String>("node")?) {
        (true, Some(_)) => {
            return Err(CliError::Usage("the bridge names the boards of a claim token: leave --node out".into()));
        }
        (true, None) => None,
        (false, named) => Some(named.or(node).ok_or_else(no_node)?),
    };
    let labels =
        given.all::<String>("label")?.iter().map(|text| crate::join::labels::parse(text)).collect::<Result<_, _>>();
    let labels = labels.map_err(|why| CliError::Usage(format!("--label {why}")))?;
    Ok(Wanted { bridges: typed, node, token, labels, proxy: proxy(given)? })
}

fn proxy(given: &Given) -> Result<Option<Named>, CliError> {
    let wrong = |error: UrlError| CliError::Usage(format!("--proxy: {error}"));
    // As a text first: an error of the flag would show a password in it.
    let url = given.one::<String>("proxy")?.map(|url| url.parse::<Server>().map_err(wrong)).transpose()?;
    let user_file = given.path("proxy-user-file").map(std::path::absolute).transpose()?;
    match (url, user_file) {
        (Some(url), user_file) => Ok(Some(Named { url, user_file })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(CliError::Usage("--proxy-user-file needs --proxy http://HOST:PORT".to_owned())),
    }
}

/// The token as typed, or from a file: other users of the machine can read a command line.
fn token_text(given: &Given) -> Result<String, CliError> {
    let argument = (!given.operands.is_empty()).then(|| given.operand()).transpose()?;
    let (file, flag) = (given.path("token-file"), given.one::<String>("token")?);
    if given.operands.len() + usize::from(file.is_some()) + usize::from(flag.is_some()) > 1 {
        return Err(CliError::Usage("join takes one token: TOKEN, -, --token-file FILE or --token TOKEN".into()));
    }
    let file = file.or_else(|| argument.as_deref().filter(|word| *word == "-").map(PathBuf::from));
    match (file, argument.or(flag)) {
        (Some(file), _) => Ok(String::from_utf8(read(&file)?)?),
        (None, Some(token)) => Ok(token),
        (None, None) => Err(CliError::Usage(
            "join needs a token: cloud-bridge token create NODE prints the command; - reads the token from standard input"
                .into(),
        )),
    }
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
         link\n  edge-runtime ps            here: its pods\n  edge-runtime reset --all   here: leave the cluster, \
         delete pods and volumes"
    )
}

#[cfg(test)]
mod tests {
    use edge_protocol::join_token::{Place, with_place};

    use super::*;

    fn wanted_of(words: &[&str]) -> Result<Wanted, String> {
        let given = VERB.parse(lexopt::Parser::from_args(words.iter().copied()));
        given.and_then(|given| wanted(&given)).map_err(|error| match error {
            CliError::Usage(why) | CliError::Failed(why) => why,
            CliError::Exit(code) => code.to_string(),
        })
    }

    #[test]
    fn proxy_has_an_address_and_its_login_a_file() {
        let token = format!("sampan1.{}.secret", "0a".repeat(32));
        let read = |more: &[&str]| {
            let words = [token.as_str(), "--node", "n", "--bridge", "https://b:1"];
            wanted_of(&[&words[..], more].concat()).map(|wanted| wanted.proxy)
        };
        assert!(read(&[]).unwrap().is_none());
        let named = read(&["--proxy", "http://p.lan:3128", "--proxy-user-file", "/etc/p"]).unwrap().unwrap();
        assert_eq!((named.url.authority().as_str(), named.user_file), ("p.lan:3128", Some("/etc/p".into())));
        let refused = read(&["--proxy", "http://name:hush@p.lan:3128"]).unwrap_err();
        assert!(refused.contains("--proxy: the address of a proxy") && !refused.contains("hush"), "{refused}");
        assert!(read(&["--proxy-user-file", "/etc/p"]).unwrap_err().contains("needs --proxy"));
    }

    #[test]
    fn one_argument_is_enough_and_flags_override_it() {
        let old = format!("sampan1.{}.secret", "0a".repeat(32));
        let place = Place { node: "edge-1".into(), bridges: vec!["https://b:7443".into()] };
        let token = with_place(&old, &place);
        let read = |words: &[&str]| {
            let wanted = wanted_of(words).unwrap();
            (wanted.node.unwrap(), wanted.bridges.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(read(&[&token]), ("edge-1".into(), "https://b:7443".into()));
        assert_eq!(read(&["--token", &token, "--node", "n"]), ("n".into(), "https://b:7443".into()));
        let both = ["--bridge", "https://c:1", "--bridge", "https://d:1", "--node", "n"];
        assert_eq!(read(&[&[old.as_str()][..], &both[..]].concat()), ("n".into(), "https://c:1 https://d:1".into()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, format!("{token}\n")).unwrap();
        assert_eq!(read(&["--token-file", file.to_str().unwrap()]), ("edge-1".into(), "https://b:7443".into()));
    }

    #[test]
    fn claim_token_takes_no_name() {
        let token = format!("sampan2.{}.secret", "0a".repeat(32));
        let words = [token.as_str(), "--bridge", "https://b:1"];
        assert_eq!(wanted_of(&words).unwrap().node, None);
        assert!(wanted_of(&[&words[..], &["--node", "n"]].concat()).err().unwrap().contains("leave --node out"));
    }

    #[test]
    fn missing_and_repeated_tokens_are_refused() {
        let old = format!("sampan1.{}.secret", "0a".repeat(32));
        let wrong = |words: &[&str]| wanted_of(words).err().unwrap_or_default();
        assert!(wrong(&[]).contains("token create"));
        assert!(wrong(&[&old]).contains("--bridge") && wrong(&[&old, "--bridge", "https://b:1"]).contains("--node"));
        assert!(wrong(&[&old, "--token", &old]).contains("one token") && wrong(&[&old, &old]).contains("one token"));
    }
}
