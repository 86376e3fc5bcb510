//! What is found: how bad it is, why it matters, what cures it. Knows nothing of how it is found.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Ok,
    /// Worth knowing, and no fault.
    Info,
    /// Works, but not as it should, or not for long.
    Warning,
    /// Does not work.
    Error,
}

impl Severity {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// How `doctor` ends if nothing worse was found.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok | Self::Info => 0,
            Self::Warning => 1,
            Self::Error => 2,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at: stays the same from version to version.
    pub(crate) check: &'static str,
    pub(crate) severity: Severity,
    pub(crate) what: String,
    /// Why it matters.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) why: &'static str,
    /// A command to type, or a file to edit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cure: String,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, what: what.into(), why: "", cure: String::new() }
    }

    pub(crate) fn info(check: &'static str, what: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::ok(check, what) }
    }

    pub(crate) fn warning(
        check: &'static str,
        what: impl Into<String>,
        why: &'static str,
        cure: impl Into<String>,
    ) -> Self {
        Self { check, severity: Severity::Warning, what: what.into(), why, cure: cure.into() }
    }

    pub(crate) fn error(
        check: &'static str,
        what: impl Into<String>,
        why: &'static str,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Error, ..Self::warning(check, what, why, cure) }
    }
}

/// The worst of all.
pub(crate) fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The one finding of this check that is no good news: with its severity, and its cure has these words.
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
        assert_eq!((worst(&all).code(), worst(&all[..1]).code(), worst(&[]).code()), (2, 0, 0));
        let text = serde_json::to_value(&all[1]).unwrap();
        assert_eq!(text, serde_json::json!({"check": "b", "severity": "error", "what": "x", "why": "y", "cure": "z"}));
    }
}
