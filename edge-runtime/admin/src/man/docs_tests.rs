//! Holds `docs/reference/edge-runtime.md` against the tables of verbs, and `config.md` there against that of the
//! configuration's keys.

use std::fmt::Write;

use edge_runtime::cli::verb::{Flag, Shown};
use sampan_floors::pages::{cell, code, hold};

use super::config::{defaults, sentence};
use super::keys::{KEYS, Key};
use crate::verbs::shown;

const AGAIN: &str = "SAMPAN_UPDATE_DOCS=1 cargo test -p sampan-admin docs_tests";

/// `-n`, `--namespace NAMESPACE`
fn spelling(flag: &Flag) -> String {
    let short = flag.short.map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let value = flag.value.map(|value| format!(" {value}")).unwrap_or_default();
    format!("{short}{}", code(&format!("--{}{value}", flag.long)))
}

fn section(verb: &Shown) -> String {
    let mut out =
        format!("\n### {}\n\n    edge-runtime {}\n\n{}.\n", verb.name, verb.synopsis(), cell(&sentence(verb.about)));
    let flags: Vec<&Flag> = verb.shown_flags().filter(|flag| flag.long != "root").collect();
    if !flags.is_empty() {
        out.push_str("\n| flag | meaning |\n|---|---|\n");
    }
    for flag in flags {
        let _ = writeln!(out, "| {} | {} |", spelling(flag), cell(flag.about));
    }
    out
}

/// Values of the configuration are code; what depends on the machine is told in words.
fn row(key: &Key, defaults: &[(String, String)]) -> String {
    let own = defaults.iter().find(|(name, _)| name == key.name).map(|(_, value)| code(value));
    let default = if key.default.is_empty() { own.unwrap_or_default() } else { cell(key.default) };
    format!("| {} | {} | {default} | {} |\n", code(key.name), code(key.kind), cell(key.about))
}

#[test]
fn page_of_verbs_is_up_to_date() {
    let mut verbs = shown();
    verbs.sort_by_key(|verb| verb.name);
    let text: String = verbs.iter().map(section).collect();
    assert!(text.contains("\n### join\n\n    edge-runtime join [FLAG]..."), "{text}");
    assert!(!text.contains("### as-container") && !text.contains("`--root"), "{text}");
    hold("reference/edge-runtime.md", "verbs", &text, AGAIN);
}

#[test]
fn page_of_configuration_is_up_to_date() {
    let defaults = defaults().unwrap();
    let rows: String = KEYS.iter().map(|key| row(key, &defaults)).collect();
    assert!(rows.contains("\n| `max-pods` | `NUMBER` | `110` | "), "{rows}");
    assert!(rows.contains("\n| `network.mode` | `auto\\|builtin\\|cni` | `auto` | "), "{rows}");
    let table = format!("| key | type | default | meaning |\n|---|---|---|---|\n{rows}");
    hold("reference/config.md", "keys", &table, AGAIN);
}
