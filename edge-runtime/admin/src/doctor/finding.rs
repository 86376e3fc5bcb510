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

    /// Exit code of `doctor` if nothing is worse. Not 1 or 2: those are a failure and wrong usage, as with every verb.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok | Self::Info => 0,
            Self::Warning => 3,
            Self::Error => 4,
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
pub(super) mod tests;
