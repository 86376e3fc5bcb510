//! Checks that every finding of `doctor` is documented (docs/operation.md) and provoked (`e2e_operation`). Reads
//! sources and the document as text.

use std::collections::BTreeMap;
use std::path::Path;

/// A check and a severity, and how many findings have both.
type Count = BTreeMap<(String, String), usize>;

fn add(count: &mut Count, check: &str, severity: &str) {
    *count.entry((check.to_owned(), severity.to_owned())).or_default() += 1;
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn quoted(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('"')?.split('"').next()
}

/// Counts the places that create findings.
fn made() -> Count {
    let mut count = Count::new();
    for (file, text) in sampan_floors::sources::product_code(&root().join("edge-runtime/admin/src/doctor")) {
        let constant = text.split_once("const CHECK: &str = ").and_then(|(_, rest)| quoted(rest));
        for severity in ["error", "warning", "info"] {
            for rest in text.split(&format!("Finding::{severity}(")).skip(1) {
                let is_constant = rest.trim_start().starts_with("CHECK");
                let check = if is_constant { constant } else { quoted(rest) };
                let check = check.unwrap_or_else(|| panic!("{}: a finding whose check is no literal", file.display()));
                add(&mut count, check, severity);
            }
        }
    }
    assert!(count.values().sum::<usize>() > 50, "{count:?}");
    count
}

#[test]
fn each_is_told_to_users_with_its_severity() {
    let document = std::fs::read_to_string(root().join("docs/operation.md")).expect("it is there");
    let mut told = Count::new();
    for line in document.lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [check, severity @ ("error" | "warning" | "info"), meaning, cure] = cells[..] else { continue };
        assert!(!meaning.is_empty() && (severity == "info" || cure.len() > 5), "{line}");
        add(&mut told, check.trim_matches(['|', '`', ' ']), severity);
    }
    assert_eq!(told, made());
}

#[test]
fn each_is_provoked() {
    let suite = root().join("tests/tests/e2e_operation");
    let mut text = String::new();
    for file in ["", "provoked"].iter().flat_map(|folder| std::fs::read_dir(suite.join(folder)).expect("a folder")) {
        let path = file.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            text += &std::fs::read_to_string(path).expect("a source");
        }
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for ((check, severity), wanted) in made() {
        // Its words distinguish it from others with the same check and severity.
        let begin = format!("\"{check}\", \"{severity}\", ");
        let mut words: Vec<&str> =
            text.split(&begin).skip(1).filter_map(|rest| rest.split([',', ')']).next()).collect();
        words.sort_unstable();
        words.dedup();
        assert!(words.len() >= wanted, "{check}, {severity}: {wanted} findings, provoked are {words:?}");
    }
}
