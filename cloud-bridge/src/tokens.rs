//! `cloud-bridge token`: makes, lists and deletes join tokens. Owns what is printed; `pki::token` does the work.

mod create;

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::output::{Form, Structured, print, rough, table};
use crate::pki::token::{self, Unused};
use crate::reach::Reach;
use create::Create;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a single-use token for each node, and print it with the command that uses it. For several nodes, print a line
    /// for each: its name and its token.
    #[command(after_help = "Examples:
  cloud-bridge token create pi-1
  cloud-bridge token create pi-1 --ttl 1d --qr
  cloud-bridge token create pi-1 --file edge-runtime.join    # for the boot partition of a card
  cloud-bridge token create pi-1 pi-2 pi-3
  cloud-bridge token create --nodes boards --file cards      # cards/NODE.join for each line of boards
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

pub(crate) async fn run(verb: TokenVerb) -> anyhow::Result<()> {
    match verb {
        TokenVerb::Create(options) => create::run(options).await,
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
    use super::*;

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
