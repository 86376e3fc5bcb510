//! Holds `docs/reference/cloud-bridge.md` against the flags.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};
use sampan_floors::pages::{cell, code, hold};

use super::Arguments;

const AGAIN: &str = "SAMPAN_UPDATE_DOCS=1 cargo test -p cloud-bridge --lib docs_tests";

/// Appends the verbs that have none below them.
fn collect(command: &Command, out: &mut Vec<Command>) {
    let below: Vec<&Command> =
        command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help").collect();
    if below.is_empty() {
        out.push(command.clone());
    }
    below.iter().for_each(|verb| collect(verb, out));
}

/// `--listen LISTEN`; of an operand `NODE`.
fn spelling(arg: &Arg) -> String {
    let names: Vec<&str> = arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    let value = names.join(" ");
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    match arg.get_long() {
        None => code(&value),
        Some(long) if arg.get_action().takes_values() => format!("{short}{}", code(&format!("--{long} {value}"))),
        Some(long) => format!("{short}{}", code(&format!("--{long}"))),
    }
}

fn row(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    // clap gives a switch the default `false`.
    let has_value = arg.get_action().takes_values();
    let defaults = arg.get_default_values().iter().filter(|_| has_value).map(|value| code(&value.to_string_lossy()));
    let default = defaults.collect::<Vec<_>>().join(" ");
    let values = arg.get_possible_values();
    let values: Vec<String> = values.iter().filter(|one| !one.is_hide_set()).map(|one| code(one.get_name())).collect();
    let values = if values.is_empty() { String::new() } else { format!(" ({})", values.join(", ")) };
    format!("| {} | {default} | {}{values} |\n", spelling(arg), cell(&help))
}

fn section(verb: &Command) -> String {
    let name = verb.get_bin_name().unwrap_or_default().trim_start_matches("cloud-bridge ").to_owned();
    let usage = verb.clone().render_usage().to_string();
    let about = verb.get_long_about().or_else(|| verb.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let mut out = format!("\n### {name}\n\n    {usage}\n\n{}\n", cell(&about));
    let own = |arg: &&Arg| !arg.is_hide_set() && !arg.is_global_set() && arg.get_id() != "help";
    let rows: String = verb.get_arguments().filter(own).map(row).collect();
    if !rows.is_empty() {
        let _ = write!(out, "\n| flag | default | meaning |\n|---|---|---|\n{rows}");
    }
    out
}

#[test]
fn page_of_flags_is_up_to_date() {
    let mut command = Arguments::command();
    command.build();
    let mut verbs = Vec::new();
    collect(&command, &mut verbs);
    verbs.sort_by_key(|verb| verb.get_bin_name().unwrap_or_default().to_owned());
    let text: String = verbs.iter().map(section).collect();
    assert!(text.contains("\n### token create\n\n    cloud-bridge token create [OPTIONS]"), "{text}");
    assert!(text.contains("` | `0.0.0.0:7443` | "), "{text}");
    assert!(!text.contains("--log-level") && !text.contains("\n### man"), "{text}");
    hold("reference/cloud-bridge.md", "verbs", &text, AGAIN);
}
