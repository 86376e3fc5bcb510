//! `cloud-bridge token claim`: one token for the card image of many boards. Owns what is printed of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use apimachinery::meta::rfc3339;
use clap::{Args, ValueEnum};
use edge_protocol::node_labels;
use serde_json::json;

use crate::flags::{bridge_url, duration, words};
use crate::info;
use crate::invitation::Invitation;
use crate::output::{Structured, print};
use crate::pki::claim::{self, Pattern, Terms};
use crate::reach::Reach;

/// Approver of the requests of boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approve {
    /// The bridge, if no Node has the name.
    Auto,
    /// A person, with kubectl certificate approve.
    Manual,
}

/// `token claim`.
#[derive(Debug, Args)]
pub(crate) struct ClaimOptions {
    /// Names of the boards, with {serial} or {mac}, and {model}.
    #[arg(long, value_name = "PATTERN", default_value = "edge-{serial}", value_parser = pattern)]
    name: Pattern,
    /// Lifetime of the token: 2h, 30d; at most 365d.
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = duration)]
    ttl: Duration,
    /// Number of boards, at most 5000.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    uses: usize,
    /// Who approves requests. A board whose Node exists always waits for a person.
    #[arg(long, value_name = "WHO", value_enum, default_value = "manual")]
    approve: Approve,
    /// Label of the boards' Node objects (repeatable).
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    #[command(flatten)]
    reach: Reach,
    /// Address of a bridge for the boards, https://HOST:PORT (repeatable) [default: as the bridge advertises itself].
    #[arg(long, value_name = "URL", value_parser = bridge_url)]
    bridge: Vec<String>,
    /// Write a file for an unattended first boot instead of printing the token. Put it on the boot partition of the card
    /// image, as edge-runtime.join.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print token, terms, expiry, bridges and command in this form.
    #[arg(long, short, value_enum, value_name = "FORM", conflicts_with = "file")]
    output: Option<Structured>,
}

fn pattern(text: &str) -> Result<Pattern, String> {
    text.parse()
}

fn label(text: &str) -> anyhow::Result<(String, String)> {
    let (key, value) = text.split_once('=').context("want KEY=VALUE")?;
    match node_labels::problem(key, value) {
        Some(problem) => bail!(problem),
        None => Ok((key.to_owned(), value.to_owned())),
    }
}

pub(super) async fn run(options: ClaimOptions) -> anyhow::Result<()> {
    let (client, _) = options.reach.running().await?;
    let about = info::known(&client).await?;
    let now = apimachinery::clock::timestamp();
    let terms = Terms {
        pattern: options.name,
        uses: options.uses,
        auto: options.approve == Approve::Auto,
        labels: options.label.into_iter().collect::<BTreeMap<_, _>>(),
    };
    let token = claim::create(&client, &about.authority, terms.clone(), options.ttl, now).await?;
    let bridges = if options.bridge.is_empty() { vec![about.url] } else { options.bridge };
    let secret = token.text();
    let invitation = Invitation { bridges: &bridges, node: None, token: &secret };
    let text = match (&options.file, options.output) {
        (Some(path), _) => {
            invitation.write(path).with_context(|| path.display().to_string())?;
            format!("{}: for the boot partition, as edge-runtime.join\n{}", path.display(), notes(&terms, options.ttl))
        }
        (None, Some(form)) => form.text(&json!({
            "name": token.name(),
            "namePattern": terms.pattern.as_str(),
            "uses": terms.uses,
            "approve": if terms.auto { "auto" } else { "manual" },
            "labels": terms.labels,
            "expires": rfc3339(now + options.ttl),
            "bridges": bridges,
            "token": invitation.text(),
            "command": invitation.command(),
        }))?,
        (None, None) => {
            let (token, command) = (invitation.text(), invitation.command());
            format!("{token}\n\nOn each board:\n\n  {command}\n\n{}", notes(&terms, options.ttl))
        }
    };
    print(&text)?;
    if let Err(error) = claim::clear_expired(&client, now).await {
        log::warn!("expired tokens were not deleted: {error}");
    }
    Ok(())
}

/// What a person has to know about a claim token.
fn notes(terms: &Terms, life: Duration) -> String {
    let (uses, pattern, life) = (terms.uses, terms.pattern.as_str(), words(life));
    let approval = if terms.auto {
        "Anyone who has this token can add nodes with new names of this pattern, without an approval. Keep it as secret as a password."
    } else {
        "Each board waits for kubectl certificate approve; kubectl get csr shows the requests."
    };
    format!("For up to {uses} boards named {pattern}, within {life}. {approval}\n")
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

    fn typed(words: &[&str]) -> Result<ClaimOptions, String> {
        match Typed::try_parse_from(["token", "claim"].iter().chain(words)).map_err(|error| error.to_string())?.verb {
            TokenVerb::Claim(options) => Ok(options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pattern_and_labels_are_checked_before_a_token_is_made() {
        let options = typed(&[]).unwrap();
        assert_eq!((options.name.as_str(), options.uses, options.approve), ("edge-{serial}", 100, Approve::Manual));
        let options = typed(&["--name", "gw-{mac}", "--label", "a=b", "--label", "c=", "--approve", "auto"]).unwrap();
        assert_eq!((options.label.len(), options.approve), (2, Approve::Auto));
        for wrong in
            [["--name", "gw-1"], ["--label", "a"], ["--label", "node-role.kubernetes.io/x="], ["--approve", "no"]]
        {
            typed(&wrong).unwrap_err();
        }
    }

    #[test]
    fn automatic_approval_comes_with_a_warning() {
        let terms = |auto| Terms { pattern: "gw-{serial}".parse().unwrap(), uses: 5, auto, labels: BTreeMap::new() };
        let said = notes(&terms(true), Duration::from_secs(86_400));
        assert!(
            said.starts_with("For up to 5 boards named gw-{serial}, within 1 d.") && said.contains("Anyone who has")
        );
        assert!(notes(&terms(false), Duration::from_secs(86_400)).contains("kubectl certificate approve"));
    }
}
