//! `cloud-bridge authority`: replaces the authority of all certificates by another, while nodes stay connected. Owns the
//! flags and what is printed; `pki::rotate` does the work.

mod status;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use kube::Client;

use crate::flags::{duration, words};
use crate::output::{Structured, print};
use crate::pki::{claim, rotate, token};
use crate::reach::Reach;
use status::State;

/// Time to restart all bridges beside a cluster.
const DELAY: Duration = Duration::from_secs(600);
/// Maximum time for the renewals of all nodes, and for the restarts of all bridges.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);
/// Names of nodes that are printed at most.
const SHOWN: usize = 20;

#[derive(Debug, Subcommand)]
pub(crate) enum AuthorityVerb {
    /// Make a new authority beside the old one. After a restart of the bridge nodes learn to trust both.
    #[command(after_help = "Example:
  sudo cloud-bridge authority rotate && sudo systemctl restart cloud-bridge")]
    Rotate(Rotate),
    /// Show the authorities, and the nodes that a rotation has not reached.
    #[command(after_help = "Examples:
  sudo cloud-bridge authority status
  sudo cloud-bridge authority status -o json")]
    Status(Status),
    /// Remove the old authority. Nodes that still trust it alone have to join again.
    #[command(after_help = "Example:
  sudo cloud-bridge authority finish && sudo systemctl restart cloud-bridge")]
    Finish(Finish),
}

/// `authority rotate`.
#[derive(Debug, Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    reach: Reach,
    /// Time over which nodes spread their renewals after they have connected: 10m, 1h, 2d.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = period)]
    renew_within: Duration,
    /// Time to restart all bridges. Before its end they sign with the old authority [default: 10m beside a cluster; a
    /// standalone bridge needs none].
    #[arg(long, value_name = "DURATION", value_parser = period)]
    delay: Option<Duration>,
}

/// `authority status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    reach: Reach,
    /// Form of the answer [default: text].
    #[arg(long, short, value_enum, value_name = "FORM")]
    output: Option<Structured>,
}

/// `authority finish`.
#[derive(Debug, Args)]
pub(crate) struct Finish {
    #[command(flatten)]
    reach: Reach,
    /// Finish although nodes are left that trust the old authority alone. They have to join again.
    #[arg(long)]
    force: bool,
    /// Time to restart all bridges. Nodes renew once more after it, so that they no longer trust the old authority.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = period)]
    delay: Duration,
}

/// Between a second and thirty days.
fn period(text: &str) -> anyhow::Result<Duration> {
    let period = duration(text)?;
    ensure!((Duration::from_secs(1)..=LONGEST).contains(&period), "want between 1s and 30d");
    Ok(period)
}

pub(crate) async fn run(verb: AuthorityVerb) -> anyhow::Result<()> {
    match verb {
        AuthorityVerb::Rotate(options) => {
            let (client, state) = options.reach.client().await?;
            let delay = options.delay.unwrap_or(if state.is_some() { Duration::ZERO } else { DELAY });
            match &state {
                Some(state) => rotate::rotate_in_folder(state, delay, options.renew_within)?,
                None => rotate::rotate_in_cluster(&client, delay, options.renew_within).await?,
            }
            print(&begun(state.is_some(), delay, options.renew_within))
        }
        AuthorityVerb::Status(options) => {
            let (client, folder) = options.reach.running().await?;
            let state = status::look(&client, folder.as_deref()).await?;
            print(&match options.output {
                Some(form) => form.text(&state)?,
                None => state.text(),
            })
        }
        AuthorityVerb::Finish(options) => {
            let (client, state) = options.reach.client().await?;
            if !options.force {
                let found = status::look(&client, state.as_deref()).await.context("give --force to finish anyway")?;
                if let Some(why) = unready(&found) {
                    bail!(why);
                }
            }
            match &state {
                Some(state) => rotate::finish_in_folder(state, options.delay)?,
                None => rotate::finish_in_cluster(&client, options.delay).await?,
            }
            print(&ended(state.is_some(), tokens(&client).await))
        }
    }
}

/// Number of unused join tokens and of claim tokens; `None` if the API does not answer.
async fn tokens(client: &Client) -> Option<usize> {
    let of_nodes = token::list(client).await.ok()?.len();
    Some(of_nodes + claim::list(client).await.ok()?.len())
}

/// How bridges are restarted.
fn restart(standalone: bool) -> &'static str {
    if standalone {
        "systemctl restart cloud-bridge"
    } else {
        "kubectl -n sampan-system rollout restart deployment/cloud-bridge"
    }
}

fn begun(standalone: bool, delay: Duration, renew_within: Duration) -> String {
    let until = if delay.is_zero() { String::new() } else { format!(" within {}", words(delay)) };
    format!(
        "A new authority is beside the old one; both are trusted until you run cloud-bridge authority finish.\n\
         Next:\n\
         1. Restart every bridge{until}: {}\n\
         2. Connected nodes renew within {} after that. List those that are left: cloud-bridge authority status\n\
         3. Give people new kubeconfigs: cloud-bridge kubeconfig\n\
         4. Remove the old authority: cloud-bridge authority finish\n",
        restart(standalone),
        words(renew_within)
    )
}

/// Why a rotation should not be finished yet. A finish that was cut off goes on: its nodes are left for another reason.
fn unready(found: &State) -> Option<String> {
    let left: Vec<&str> = found.left.iter().map(|line| line.node.as_str()).collect();
    if left.is_empty() || found.finished.is_some() {
        return None;
    }
    let more = if left.len() > SHOWN { format!(" and {} more", left.len() - SHOWN) } else { String::new() };
    let names = left.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    Some(format!(
        "{} nodes trust only the old authority: {names}{more}. Wait until they have renewed (cloud-bridge authority status), \
         or give --force: then each of them needs a token (cloud-bridge token create NODE) and has to join again; its pods \
         run on",
        left.len()
    ))
}

fn ended(standalone: bool, tokens: Option<usize>) -> String {
    let mut text = format!(
        "The old authority is removed. Restart every bridge now: {}\n\
         Kubeconfigs from before the rotation are void: cloud-bridge kubeconfig prints others.\n",
        restart(standalone)
    );
    match tokens {
        Some(0) => {}
        Some(count) => {
            text.push_str(&format!(
                "Tokens that name the old authority: {count}. Make new ones (token create, token claim).\n"
            ));
        }
        None => text.push_str("Join tokens and claim tokens from before are void: make new ones.\n"),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::status::Line;
    use super::*;

    fn state(left: usize) -> State {
        let line = |n: usize| Line { node: format!("edge-{n}"), ready: "True".to_owned(), trusts: "old" };
        State { left: (0..left).map(line).collect(), ..State::default() }
    }

    #[test]
    fn finish_names_nodes_that_would_be_locked_out() {
        assert_eq!(unready(&state(0)), None);
        assert_eq!(unready(&State { finished: Some("2026".to_owned()), ..state(1) }), None, "it was cut off");
        let why = unready(&state(22)).unwrap();
        assert!(why.starts_with("22 nodes") && why.contains("edge-0, ") && why.contains("and 2 more"), "{why}");
        assert!(why.contains("--force") && why.contains("token create"), "{why}");
    }

    #[test]
    fn next_steps_name_the_restart() {
        let text = begun(false, DELAY, Duration::from_secs(3600));
        assert!(text.contains("within 10 min: kubectl") && text.contains("within 1 h"), "{text}");
        assert!(begun(true, Duration::ZERO, DELAY).contains("every bridge: systemctl restart"));
        assert!(ended(true, Some(2)).contains("old authority: 2."));
        assert!(!ended(true, Some(0)).to_lowercase().contains("token"));
    }

    #[test]
    fn times_have_limits() {
        assert_eq!(period("30d").unwrap(), LONGEST);
        for bad in ["0s", "31d", "x"] {
            period(bad).unwrap_err();
        }
    }
}
