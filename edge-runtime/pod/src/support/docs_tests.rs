//! Holds `docs/pod-support.md` against the table: same types, same fields, same answers. The notes are people's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::tests::TABLES;
use super::{Answer, Rule, Table, rows};

const AGAIN: &str =
    "SAMPAN_UPDATE_DOCS=1 cargo test -p sampan-pod --lib support::docs_tests writes the rows again and keeps the notes";

const INTRO: &str = "# Supported pod fields

Compatibility: which fields of a pod manifest (spec, securityContext, probes, volumes, resources) work, are refused or ignored.

One row per field of the pod API (Kubernetes 1.36). No field is ignored silently.

| answer | what `kubectl` shows |
|---|---|
| supported | it works as on a kubelet |
| as its fields | see the table of its type |
| not the node's | the scheduler, the API server or another controller acts on it |
| by value | some values are supported: see the note |
| refused | phase `Failed` with the reason, and a Warning event. Change the manifest and create the pod again |
| waits | the pod waits, with a Warning event of this reason, until something outside it changes |
| warned | the pod runs, and a Warning event says that the field has no effect |
";

fn answer(rule: &Rule) -> String {
    let said = |answer: &Answer| match answer {
        Answer::Refuse(reason) => format!("refused, `{reason}`"),
        Answer::Wait(reason) => format!("waits, `{reason}`"),
        Answer::Warn => "warned".to_owned(),
    };
    match rule {
        Rule::Built => "supported".to_owned(),
        Rule::Elsewhere => "not the node's".to_owned(),
        Rule::In(_) => "as its fields".to_owned(),
        Rule::Only([]) => said(&Answer::Refuse(super::UNSUPPORTED)),
        Rule::Only(values) => {
            let shown = |value: &&str| if *value == "{}" { "empty".to_owned() } else { format!("`{value}`") };
            let values = values.iter().map(shown).collect::<Vec<_>>().join(", ");
            format!("{values}; else {}", said(&Answer::Refuse(super::UNSUPPORTED)))
        }
        Rule::No(answer) => said(answer),
        Rule::AtContainer => said(&Answer::Wait("CreateContainerConfigError")),
        Rule::Check(_) => "by value".to_owned(),
    }
}

/// Notes by type and field, as the page has them.
fn notes(page: &str) -> BTreeMap<(String, String), String> {
    let mut section = String::new();
    let mut out = BTreeMap::new();
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            section = name.to_owned();
        }
        let cells: Vec<_> = line.split(" | ").collect();
        if let [field, _, note] = cells[..] {
            let field = field.trim_start_matches("| ").trim_matches('`').to_owned();
            out.insert((section.clone(), field), note.trim_end_matches('|').trim().to_owned());
        }
    }
    out
}

fn render(tables: &[(&str, Table)], notes: &BTreeMap<(String, String), String>) -> String {
    let mut page = INTRO.to_owned();
    for (name, table) in tables {
        let _ = write!(page, "\n## {name}\n\n| field | answer | note |\n|---|---|---|\n");
        for (field, rule) in rows(table).collect::<BTreeMap<_, _>>() {
            let note = notes.get(&((*name).to_owned(), field.to_owned())).map_or("", String::as_str);
            let _ = writeln!(page, "| `{field}` | {} | {note} |", answer(rule));
        }
    }
    page
}

#[test]
fn the_page_says_what_the_node_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pod-support.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let notes = notes(&page);
    let wanted = render(TABLES, &notes);
    if std::env::var_os("SAMPAN_UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
        return;
    }
    for (have, want) in page.lines().zip(wanted.lines()) {
        assert_eq!(have, want, "docs/pod-support.md: {AGAIN}");
    }
    assert_eq!(page.lines().count(), wanted.lines().count(), "docs/pod-support.md: {AGAIN}");
    for (name, table) in TABLES {
        for (field, _) in rows(table).filter(|(_, rule)| matches!(rule, Rule::Check(_))) {
            let note = notes.get(&((*name).to_owned(), field.to_owned())).map_or("", String::as_str);
            assert!(!note.is_empty(), "{name}.{field} is answered by value: say in docs/pod-support.md which");
        }
    }
}
