//! `cloud-bridge token`: makes, lists and deletes join tokens and claim tokens. Owns what is printed; `pki::token` and
//! `pki::claim` do the work.

mod claim;
mod create;

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use crate::output::{Form, Structured, print, rough, table};
use crate::pki::claim as claims;
use crate::pki::token::{self, Unused};
use crate::reach::Reach;
use claim::ClaimOptions;
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
    /// Make a claim token: one token for the card image of many boards. Each board requests its own certificate, which a
    /// person approves.
    #[command(after_help = "Examples:
  cloud-bridge token claim --name 'gw-{serial}' --ttl 90d --uses 500
  cloud-bridge token claim --name 'gw-{mac}' --label sampan.dev/site=hall-3 --file edge-runtime.join
  cloud-bridge token claim --approve auto --ttl 2h --uses 20
  kubectl get csr                         # the boards that wait
  kubectl certificate approve enrol-0f3c5a1b9d2e4f60")]
    Claim(ClaimOptions),
    /// List unused tokens and claim tokens, without their secrets.
    List(List),
    /// Delete tokens, so that no node can join with them. Boards that still wait with a claim token are refused.
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
        TokenVerb::Claim(options) => claim::run(options).await,
        TokenVerb::List(options) => {
            let (client, _) = options.reach.running().await?;
            let mut tokens: Vec<Row> = token::list(&client).await?.into_iter().map(Row::Node).collect();
            tokens.extend(claims::list(&client).await?.into_iter().map(Row::Claim));
            print(&listed(&tokens, options.output, apimachinery::clock::timestamp())?)
        }
        TokenVerb::Delete(options) => {
            let (client, _) = options.reach.running().await?;
            let delete = async |name: &str| {
                Ok::<_, anyhow::Error>(match claims::is_name(name) {
                    true => format!("boards {}", claims::delete(&client, name).await?.name_pattern),
                    false => format!("node {}", token::delete(&client, name).await?.node),
                })
            };
            delete_all(&options.name, delete, print).await
        }
    }
}

/// Deletes all, and prints whose each was, also if the output has no reader.
async fn delete_all(
    names: &[String],
    delete: impl AsyncFn(&str) -> anyhow::Result<String>,
    tell: impl Fn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut told = Ok(());
    for name in names {
        let of = delete(name).await?;
        told = told.and(tell(&format!("token {name} of {of} deleted\n")));
    }
    told
}

/// A token of either kind.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Row {
    Node(Unused),
    Claim(claims::Listed),
}

impl Row {
    fn name(&self) -> &str {
        match self {
            Self::Node(token) => &token.name,
            Self::Claim(token) => &token.name,
        }
    }

    /// Its cells but the name: node or pattern, expiry, uses that are left, who approves.
    fn cells(&self) -> (&str, &str, String, &'static str) {
        match self {
            Self::Node(token) => (&token.node, &token.expires, "1".to_owned(), "-"),
            Self::Claim(token) => {
                let left = token.uses.saturating_sub(token.used);
                (&token.name_pattern, &token.expires, format!("{left}/{}", token.uses), token.approve)
            }
        }
    }
}

/// The list as it is printed. An expired token stays until the next one is made.
fn listed(tokens: &[Row], form: Option<Form>, now: Timestamp) -> anyhow::Result<String> {
    match form {
        Some(Form::Json) => return Structured::Json.text(&tokens),
        Some(Form::Yaml) => return Structured::Yaml.text(&tokens),
        Some(Form::Name) => return Ok(tokens.iter().map(|one| format!("{}\n", one.name())).collect()),
        None | Some(Form::Wide) => {}
    }
    let mut rows = vec![["NAME", "NODE", "EXPIRES", "LEFT", "USES", "APPROVE"].map(str::to_owned).to_vec()];
    rows.extend(tokens.iter().map(|one| {
        let (node, expires, uses, approve) = one.cells();
        let end: Option<Timestamp> = expires.parse().ok();
        let seconds = end.map_or(0, |end| end.as_second() - now.as_second());
        let left = u64::try_from(seconds).ok().filter(|left| *left > 0);
        let left = left.map_or("expired".to_owned(), |left| rough(Duration::from_secs(left)));
        vec![one.name().to_owned(), node.to_owned(), expires.to_owned(), left, uses, approve.to_owned()]
    }));
    Ok(table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tokens_are_deleted_though_nobody_reads() {
        let deleted = std::cell::RefCell::new(Vec::new());
        let delete = async |name: &str| {
            deleted.borrow_mut().push(name.to_owned());
            Ok::<_, anyhow::Error>("node n".to_owned())
        };
        let done = delete_all(&["a".into(), "b".into()], delete, |_| Err(anyhow::anyhow!("no reader"))).await;
        assert_eq!(done.unwrap_err().to_string(), "no reader");
        assert_eq!(*deleted.borrow(), ["a", "b"]);
    }

    #[test]
    fn list_has_all_forms() {
        let unused = |name: &str, expires: &str| {
            Row::Node(Unused { name: name.into(), node: "pi-1".into(), expires: expires.into() })
        };
        let claim = claims::Listed {
            name: "claim-c".into(),
            name_pattern: "gw-{serial}".into(),
            expires: "2030-01-02T00:00:00Z".into(),
            uses: 500,
            used: 12,
            approve: "manual",
            labels: [("a".to_owned(), "b".to_owned())].into(),
        };
        let tokens =
            [unused("join-a", "2030-01-01T02:00:01Z"), unused("join-b", "2029-12-31T23:00:00Z"), Row::Claim(claim)];
        let now = "2030-01-01T00:00:00Z".parse().unwrap();
        let list = |form| listed(&tokens, form, now).unwrap();
        let table = list(None);
        let cells = |line: usize| table.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(1), ["join-a", "pi-1", "2030-01-01T02:00:01Z", "2h", "1", "-"]);
        assert_eq!(cells(2)[3], "expired");
        assert_eq!(cells(3)[..2], ["claim-c", "gw-{serial}"]);
        assert_eq!(cells(3)[4..], ["488/500", "manual"]);
        assert_eq!(list(Some(Form::Name)), "join-a\njoin-b\nclaim-c\n");
        let read: serde_json::Value = serde_json::from_str(&list(Some(Form::Json))).unwrap();
        assert_eq!(read[0]["expires"], "2030-01-01T02:00:01Z");
        assert_eq!((&read[2]["namePattern"], &read[2]["used"]), (&"gw-{serial}".into(), &12.into()));
    }
}
