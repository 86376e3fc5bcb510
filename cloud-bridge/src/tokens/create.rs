//! `cloud-bridge token create`: tokens for one node or a list of nodes. Owns what is printed of them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use apimachinery::meta::rfc3339;
use clap::Args;
use serde_json::json;

use crate::flags::{bridge_url, duration, words};
use crate::info;
use crate::invitation::Invitation;
use crate::output::{Structured, print};
use crate::pki::claim;
use crate::pki::identity::is_node_name;
use crate::pki::token::{self, TokenError};
use crate::reach::Reach;

/// Bytes of a list of nodes: some ten thousand of the longest names.
const MAX_LIST: u64 = 4 << 20;

/// `token create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Names of nodes.
    #[arg(required_unless_present = "nodes")]
    node: Vec<String>,
    /// Read more names of nodes from this file, one a line; - is standard input. Lines that begin with # are comments.
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// Lifetime of the token: 90s, 30m, 2h, 3d; at most 7d [default: 1h, with --file 7d].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    reach: Reach,
    /// Address of a bridge for the node, https://HOST:PORT (repeatable) [default: as the bridge advertises itself].
    #[arg(long, value_name = "URL", value_parser = bridge_url)]
    bridge: Vec<String>,
    /// Print the command as a QR code, too.
    #[arg(long)]
    qr: bool,
    /// Write a file for an unattended first boot instead of printing the token. Put it on the boot partition of the
    /// card, as edge-runtime.join. A folder gets NODE.join for each node; several nodes need one.
    #[arg(long, value_name = "FILE", conflicts_with = "qr")]
    file: Option<PathBuf>,
    /// Print token, node, expiry, bridges and command in this form.
    #[arg(long, short, value_enum, value_name = "FORM", conflicts_with_all = ["qr", "file"])]
    output: Option<Structured>,
}

impl Create {
    /// A file waits for its card to be written, carried and switched on.
    fn life(&self) -> Duration {
        self.ttl.unwrap_or(if self.file.is_some() { token::MAX_TTL } else { token::DEFAULT_TTL })
    }
}

pub(super) async fn run(options: Create) -> anyhow::Result<()> {
    let life = options.life();
    let listed = options.nodes.as_deref().map(read).transpose()?;
    let is_list = listed.is_some() || options.node.len() > 1;
    let nodes = names(&options.node, listed.as_deref().unwrap_or_default())?;
    if is_list && options.qr {
        bail!("--qr takes one node");
    }
    if let Some(folder) = options.file.as_ref().filter(|path| is_list && !path.is_dir()) {
        bail!("{} is not a folder: with several nodes, --file names one", folder.display());
    }
    let (client, _) = options.reach.running().await?;
    let about = info::known(&client).await?;
    let now = apimachinery::clock::timestamp();
    let bridges = if options.bridge.is_empty() { vec![about.url] } else { options.bridge };
    for node in &nodes {
        let token = token::create(&client, &about.authority, node, life, now).await?;
        let secret = token.text();
        let invitation = Invitation { bridges: &bridges, node: Some(node), token: &secret };
        let text = match (&options.file, options.output) {
            (Some(path), _) => {
                let path = if path.is_dir() { path.join(format!("{node}.join")) } else { path.clone() };
                invitation.write(&path).with_context(|| path.display().to_string())?;
                format!("{}: for the boot partition, as edge-runtime.join, within {}\n", path.display(), words(life))
            }
            (None, Some(form)) => document(&invitation, &token.name(), &rfc3339(now + life), form)?,
            (None, None) if is_list => format!("{node} {}\n", invitation.text()),
            (None, None) => with_command(&invitation, life, options.qr)?,
        };
        // At once: a failure at a later one leaves this one usable.
        print(&text)?;
    }
    if let Err(error) = claim::clear_expired(&client, now).await {
        log::warn!("expired tokens were not deleted: {error}");
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<String> {
    let is_stdin = path.as_os_str() == "-";
    let text = if is_stdin { io::read_to_string(io::stdin()) } else { sampan_file::read_text(path, MAX_LIST) };
    text.with_context(|| path.display().to_string())
}

/// The given names and those in the lines of a list, each once. A wrong one is an error before any token is made.
fn names(given: &[String], list: &str) -> anyhow::Result<Vec<String>> {
    let lines = list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut known = BTreeSet::new();
    let names: Vec<String> =
        given.iter().map(String::as_str).chain(lines).filter(|name| known.insert(*name)).map(str::to_owned).collect();
    match names.iter().find(|name| !is_node_name(name)) {
        Some(wrong) => Err(TokenError::NodeName(wrong.clone()).into()),
        None if names.is_empty() => bail!("there are no names of nodes in the list"),
        None => Ok(names),
    }
}

/// A token as a document. YAML documents begin with a line of their own, so that several can follow each other.
fn document(invitation: &Invitation<'_>, name: &str, expires: &str, form: Structured) -> anyhow::Result<String> {
    let text = form.text(&json!({
        "name": name,
        "node": invitation.node,
        "expires": expires,
        "bridges": invitation.bridges,
        "token": invitation.text(),
        "command": invitation.command(),
    }))?;
    Ok(if form == Structured::Yaml { format!("---\n{text}") } else { text })
}

/// A token for people.
fn with_command(invitation: &Invitation<'_>, life: Duration, qr: bool) -> anyhow::Result<String> {
    let (token, command) = (invitation.text(), invitation.command());
    let code = if qr { format!("\n{}\n", invitation.code()?) } else { String::new() };
    Ok(format!("{token}\n\nOn the node, within {}:\n\n  {command}\n{code}", words(life)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::tokens::TokenVerb;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(subcommand)]
        verb: TokenVerb,
    }

    #[test]
    fn token_in_a_file_lives_longer() {
        let life = |more: &[&str]| {
            let words = ["token", "create", "n"].iter().chain(more);
            match Typed::try_parse_from(words).unwrap().verb {
                TokenVerb::Create(create) => create.life().as_secs() / 3600,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((life(&[]), life(&["--file", "f"]), life(&["--file", "f", "--ttl", "2h"])), (1, 168, 2));
    }

    #[test]
    fn names_come_from_arguments_and_a_list_once_each() {
        let given = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let found = names(&given(&["pi-1", "pi-2"]), "# ground floor\n\n  pi-3\r\npi-1\n").unwrap();
        assert_eq!(found, ["pi-1", "pi-2", "pi-3"]);
        assert!(names(&[], "\n# none\n").unwrap_err().to_string().contains("no names"));
        let error = names(&given(&["pi-1"]), "pi-2\npi 3\n").unwrap_err().to_string();
        assert!(error.contains("pi 3"), "{error}");
    }

    #[test]
    fn create_needs_a_name_or_a_list() {
        let typed = |words: &[&str]| Typed::try_parse_from(["token", "create"].iter().chain(words));
        typed(&[]).unwrap_err();
        for words in [&["a"][..], &["a", "b"], &["--nodes", "-"], &["a", "--nodes", "boards", "--file", "cards"]] {
            typed(words).unwrap();
        }
    }

    #[test]
    fn yaml_documents_of_several_tokens_are_apart() {
        let bridges = ["https://b:1".to_owned()];
        let invitation = Invitation { bridges: &bridges, node: Some("pi-1"), token: "sampan1.0a.s" };
        let text = |form| document(&invitation, "join-a", "2030-01-01T00:00:00Z", form).unwrap();
        assert!(text(Structured::Yaml).starts_with("---\n") && text(Structured::Yaml).ends_with('\n'));
        let read: serde_json::Value = serde_json::from_str(&text(Structured::Json)).unwrap();
        assert_eq!((&read["node"], &read["name"]), (&json!("pi-1"), &json!("join-a")));
    }
}
