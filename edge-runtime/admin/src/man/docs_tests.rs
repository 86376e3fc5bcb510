//! Holds pages of `docs/reference` against the code: `edge-runtime.md` against the tables of verbs, `config.md` against the
//! keys of the configuration, `events.md` against the conditions of a Node.

use std::fmt::Write;

use edge_runtime::cli::verb::{Flag, Shown};
use edge_runtime::node_status::{Board, Pressure, ReadyState, Upgrade, conditions};
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

/// Every condition: where all hold, and where none does.
fn rows_of_conditions() -> String {
    let all = |holds: bool| {
        let word = |word: &str, is_there: bool| if is_there { word.to_owned() } else { String::new() };
        let board = Board {
            memory_controller: holds,
            clock_synchronized: Some(holds),
            storage_trouble: (!holds).then(|| "WHY".to_owned()),
            under_voltage: Some(holds),
            hot: Some(holds),
            services_elsewhere: Some(word("PROGRAM", holds)),
            upgrade: Some(Upgrade { what: "CHANGE".to_owned(), went_back: word("WHY", !holds) }),
        };
        let ready = if holds { ReadyState::Ready } else { ReadyState::NotReady("WHY".to_owned()) };
        let pressure = Pressure { memory: holds, disk: holds, pid: holds };
        conditions::conditions(&ready, pressure, &board, &[], jiff::Timestamp::UNIX_EPOCH)
    };
    let mut rows = String::new();
    for (yes, no) in all(true).iter().zip(&all(false)) {
        assert_eq!((&*yes.status, &*no.status, &yes.type_), ("True", "False", &no.type_));
        let _ = write!(rows, "| {} |", code(&yes.type_));
        for one in [yes, no] {
            let [reason, message] = [&one.reason, &one.message].map(|text| text.as_deref().unwrap_or_default());
            let _ = write!(rows, " {}: {} |", code(reason), cell(message));
        }
        rows.push('\n');
    }
    rows
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

#[test]
fn page_of_conditions_is_up_to_date() {
    let rows = rows_of_conditions();
    assert!(
        rows.contains("\n| `StorageHealthy` | `StorageWritable`: ") && rows.contains("| `Ready` | `KubeletReady`: "),
        "{rows}"
    );
    hold("reference/events.md", "conditions", &format!("| condition | True | False |\n|---|---|---|\n{rows}"), AGAIN);
}
