//! `cloud-bridge token`: makes, lists and deletes join tokens. Owns what is printed; `pki::token` does the work.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use crate::flags::{bridge_url, duration, words};
use crate::info;
use crate::invitation::Invitation;
use crate::output::{Form, Structured, print, rough, table};
use crate::pki::token::{self, Unused};
use crate::reach::Reach;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a single-use token with which one node may join, and print it with the command that uses it.
    #[command(after_help = "Examples:
  cloud-bridge token create pi-1
  cloud-bridge token create pi-1 --ttl 1d --qr
  cloud-bridge token create pi-1 --file edge-runtime.join    # for the boot partition of a card
  cloud-bridge token create pi-1 --bridge https://a.example.com:7443 --bridge https://b.example.com:7443")]
    Create(Create),
    /// List unused tokens, without their secrets.
    List(List),
    /// Delete tokens, so that no node can join with them.
    #[command(after_help = "Examples:
  cloud-bridge token delete join-4f1a22c09b7e61d35a80
  cloud-bridge token list -o name | xargs cloud-bridge token delete")]
    Delete(Delete),
}

/// `token create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Name of the node.
    node: String,
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
    /// card, as edge-runtime.join.
    #[arg(long, value_name = "FILE", conflicts_with = "qr")]
    file: Option<PathBuf>,
    /// Print token, node, expiry, bridges and command in this form.
    #[arg(long, short, value_enum, value_name = "FORM", conflicts_with_all = ["qr", "file"])]
    output: Option<Structured>,
}

/// `token list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    reach: Reach,
    /// Form of the list [default: a table].
    #[arg(long, short, value_enum, value_name = "FORM")]
    output: Option<Form>,
}

/// `token delete`.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Names of tokens, as `token list` shows them.
    #[arg(required = true)]
    name: Vec<String>,
    #[command(flatten)]
    reach: Reach,
}

impl Create {
    /// A file waits for its card to be written, carried and switched on.
    fn life(&self) -> Duration {
        self.ttl.unwrap_or(if self.file.is_some() { token::MAX_TTL } else { token::DEFAULT_TTL })
    }
}

pub(crate) async fn run(verb: TokenVerb) -> anyhow::Result<()> {
    match verb {
        TokenVerb::Create(options) => create(options).await,
        TokenVerb::List(options) => {
            let (client, _) = options.reach.client().await?;
            print(&listed(&token::list(&client).await?, options.output, apimachinery::clock::timestamp())?)
        }
        TokenVerb::Delete(options) => {
            let (client, _) = options.reach.client().await?;
            for name in &options.name {
                let deleted = token::delete(&client, name).await?;
                print(&format!("token {name} of node {} deleted\n", deleted.node))?;
            }
            Ok(())
        }
    }
}

async fn create(options: Create) -> anyhow::Result<()> {
    let life = options.life();
    let (client, _) = options.reach.client().await?;
    let about = info::known(&client).await?;
    let now = apimachinery::clock::timestamp();
    let token = token::create(&client, &about.authority, &options.node, life, now).await?;
    let bridges = if options.bridge.is_empty() { vec![about.url] } else { options.bridge };
    let (secret, ttl) = (token.text(), words(life));
    let invitation = Invitation { bridges: &bridges, node: &options.node, token: &secret };
    if let Some(path) = options.file {
        invitation.write(&path).with_context(|| path.display().to_string())?;
        return print(&format!("{}: for the boot partition, as edge-runtime.join, within {ttl}\n", path.display()));
    }
    let (text, command) = (invitation.text(), invitation.command());
    if let Some(form) = options.output {
        let expires = token::shown(now + life);
        return print(&form.text(&json!({
            "name": token.name(),
            "node": options.node,
            "expires": expires,
            "bridges": bridges,
            "token": text,
            "command": command,
        }))?);
    }
    let mut printed = format!("{text}\n\nOn the node, within {ttl}:\n\n  {command}\n");
    if options.qr {
        printed = format!("{printed}\n{}\n", invitation.code()?);
    }
    print(&printed)
}

/// The list as it is printed. An expired token stays until the next one is made.
fn listed(tokens: &[Unused], form: Option<Form>, now: Timestamp) -> anyhow::Result<String> {
    match form {
        Some(Form::Json) => return Structured::Json.text(&tokens),
        Some(Form::Yaml) => return Structured::Yaml.text(&tokens),
        Some(Form::Name) => return Ok(tokens.iter().map(|one| format!("{}\n", one.name)).collect()),
        None | Some(Form::Wide) => {}
    }
    let mut rows = vec![["NAME", "NODE", "EXPIRES", "LEFT"].map(str::to_owned).to_vec()];
    rows.extend(tokens.iter().map(|one| {
        let end: Option<Timestamp> = one.expires.parse().ok();
        let seconds = end.map_or(0, |end| end.as_second() - now.as_second());
        let left = u64::try_from(seconds).ok().filter(|left| *left > 0);
        let left = left.map_or("expired".to_owned(), |left| rough(Duration::from_secs(left)));
        vec![one.name.clone(), one.node.clone(), one.expires.clone(), left]
    }));
    Ok(table(&rows))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

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
    fn list_has_all_forms() {
        let unused =
            |name: &str, expires: &str| Unused { name: name.into(), node: "pi-1".into(), expires: expires.into() };
        let tokens = [unused("join-a", "2030-01-01T02:00:01Z"), unused("join-b", "2029-12-31T23:00:00Z")];
        let now = "2030-01-01T00:00:00Z".parse().unwrap();
        let list = |form| listed(&tokens, form, now).unwrap();
        let table = list(None);
        let cells = |line: usize| table.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(1), ["join-a", "pi-1", "2030-01-01T02:00:01Z", "2h"]);
        assert_eq!(cells(2).last(), Some(&"expired"));
        assert_eq!(list(Some(Form::Name)), "join-a\njoin-b\n");
        let read: serde_json::Value = serde_json::from_str(&list(Some(Form::Json))).unwrap();
        assert_eq!(read[0]["expires"], "2030-01-01T02:00:01Z");
    }
}
