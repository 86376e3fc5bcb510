//! What tests of checks say of findings.

use super::*;

/// Asserts that this check has one finding that is a problem, with this severity, and that its cure has these words.
pub(crate) fn assert_found(findings: &[Finding], check: &str, severity: Severity, cure: &str) {
    let found: Vec<_> = findings.iter().filter(|one| one.check == check && one.severity > Severity::Ok).collect();
    assert_eq!(found.len(), 1, "{check}: {findings:#?}");
    assert_eq!(found[0].severity, severity, "{:#?}", found[0]);
    assert!(found[0].cure.contains(cure), "{cure:?} in {:#?}", found[0]);
    assert!(severity < Severity::Warning || !found[0].why.is_empty() && !found[0].cure.is_empty());
}

/// Nothing is wrong.
pub(crate) fn assert_fine(findings: &[Finding]) {
    assert!(!findings.is_empty() && worst(findings) <= Severity::Info, "{findings:#?}");
}

#[test]
fn the_worst_decides_how_it_ends() {
    let all = [Finding::ok("a", ""), Finding::error("b", "x", "y", "z"), Finding::info("c", "")];
    assert_eq!((worst(&all).code(), worst(&all[..1]).code(), worst(&[]).code()), (4, 0, 0));
    let warning = [Finding::warning("c", "x", "y", "z")];
    assert_eq!(worst(&warning).code(), 3);
    let text = serde_json::to_value(&all[1]).unwrap();
    assert_eq!(text, serde_json::json!({"check": "b", "severity": "error", "what": "x", "why": "y", "cure": "z"}));
}
