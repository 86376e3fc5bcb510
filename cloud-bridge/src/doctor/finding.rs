//! What is found: how severe it is, why it matters, what fixes it. Names, text and exit codes are those of `edge-runtime doctor`.

use edge_protocol::findings::summary;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Ok,
    /// Worth knowing, and no fault.
    Info,
    /// Works, but not as it should, or not for long.
    Warning,
    /// Does not work.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Name of the check, the same in all versions.
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    pub(super) what: String,
    /// Why it matters.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) why: &'static str,
    /// A command to type, or a file to edit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) cure: String,
}

impl Finding {
    pub(super) fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, what: what.into(), why: "", cure: String::new() }
    }

    pub(super) fn info(check: &'static str, what: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::ok(check, what) }
    }

    pub(super) fn warning(
        check: &'static str,
        what: impl Into<String>,
        why: &'static str,
        cure: impl Into<String>,
    ) -> Self {
        Self { check, severity: Severity::Warning, what: what.into(), why, cure: cure.into() }
    }

    pub(super) fn error(
        check: &'static str,
        what: impl Into<String>,
        why: &'static str,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Error, ..Self::warning(check, what, why, cure) }
    }
}

/// The exit code: 0 without warnings, 3 with warnings, 4 with errors; 1 and 2 are those of a failure and of a wrong usage.
pub(super) fn code(findings: &[Finding]) -> u8 {
    match findings.iter().map(|one| one.severity).max() {
        None | Some(Severity::Ok | Severity::Info) => 0,
        Some(Severity::Warning) => 3,
        Some(Severity::Error) => 4,
    }
}

/// The findings for people, the most severe last, where a terminal shows it. `all`: passed checks, too.
pub(super) fn text(findings: &[Finding], all: bool) -> String {
    let mut shown: Vec<&Finding> = findings.iter().filter(|one| all || one.severity > Severity::Ok).collect();
    shown.sort_by_key(|one| one.severity);
    let mut out = String::new();
    for one in shown {
        let severity = match one.severity {
            Severity::Ok => "ok",
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        out.push_str(&format!("{severity:<8} {}: {}\n", one.check, one.what));
        for (name, text) in [("why", one.why), ("cure", &one.cure)] {
            if !text.is_empty() {
                out.push_str(&format!("         {name}: {text}\n"));
            }
        }
    }
    let count = |severity| findings.iter().filter(|one| one.severity == severity).count();
    out + &summary(count(Severity::Error), count(Severity::Warning), findings.len())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Asserts that this check has one finding with this severity, and that its cure has these words.
    pub(in crate::doctor) fn assert_found(findings: &[Finding], check: &str, severity: Severity, cure: &str) {
        let found: Vec<_> = findings.iter().filter(|one| one.check == check && one.severity > Severity::Ok).collect();
        assert_eq!(found.len(), 1, "{check}: {findings:#?}");
        assert_eq!(found[0].severity, severity, "{:#?}", found[0]);
        assert!(found[0].cure.contains(cure), "{cure:?} in {:#?}", found[0]);
        assert!(severity < Severity::Warning || !found[0].why.is_empty() && !found[0].cure.is_empty());
    }

    #[test]
    fn most_severe_finding_comes_last_and_decides_the_exit_code() {
        let all =
            [Finding::error("b", "broken", "matters", "mend it"), Finding::ok("a", "fine"), Finding::info("c", "so")];
        let wanted = "info     c: so\nerror    b: broken\n         why: matters\n         cure: mend it\n\
                      1 error, 0 warnings (3 checks)\n";
        assert_eq!(text(&all, false), wanted);
        assert!(text(&all, true).starts_with("ok       a: fine\n"));
        assert_eq!(text(&all[1..], false), "info     c: so\nall is well (2 checks)\n");
        let warning = Finding::warning("d", "", "", "");
        assert_eq!((code(&all), code(&all[1..]), code(&[warning])), (4, 0, 3));
        let json = serde_json::to_value(&all[2]).unwrap();
        assert_eq!(json, serde_json::json!({"check": "c", "severity": "info", "what": "so"}));
    }
}
