//! Labels of a namespace that select its Pod Security Standards (K8s pod-security-admission api/helpers.go).

use std::fmt;

use serde_json::Value;

use apimachinery::field::FieldError;

/// What all labels begin with.
pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

/// How much a pod may do, from anything to little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// Minor version of Kubernetes 1 whose standards count; `latest` is above all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32);

impl Version {
    pub(super) const LATEST: Self = Self(u32::MAX);

    fn parse(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "must be \"latest\" or \"v1.x\"";
        if text == "latest" {
            return Ok(Self::LATEST);
        }
        let minor = text.strip_prefix("v1.").ok_or(WRONG)?;
        let plain = minor.bytes().all(|byte| byte.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
        let number = if plain { minor.parse().ok() } else { None };
        number.filter(|number| *number < u32::MAX).map(Self).ok_or(WRONG)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LATEST => f.write_str("latest"),
            Self(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// One standard: a level in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standard {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl Standard {
    const ANY: Self = Self { level: Level::Privileged, version: Version::LATEST };
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

/// Standards of one namespace by the handling of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: Standard,
    pub(super) audit: Standard,
    pub(super) warn: Standard,
}

impl Policy {
    /// The policy of labels, and their errors. An invalid level counts as `restricted` for `enforce` and as none for
    /// the others, an invalid version as the latest.
    pub(super) fn of(labels: &Value) -> (Self, Vec<FieldError>) {
        let mut wrong = Vec::new();
        let (enforce, enforce_level, _) = standard(labels, "enforce", Level::Restricted, &mut wrong);
        let (audit, ..) = standard(labels, "audit", Level::Privileged, &mut wrong);
        let (mut warn, warn_level, warn_version) = standard(labels, "warn", Level::Privileged, &mut wrong);
        // An enforced level also causes warnings: workloads are not refused for their templates.
        if warn_level == Said::No && enforce_level == Said::Well && enforce.level > warn.level {
            warn.level = enforce.level;
            if warn_version == Said::No {
                warn.version = enforce.version;
            }
        }
        (Self { enforce, audit, warn }, wrong)
    }
}

/// Whether a label exists, and whether it is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    No,
    Well,
    Badly,
}

fn standard(labels: &Value, mode: &str, unreadable: Level, wrong: &mut Vec<FieldError>) -> (Standard, Said, Said) {
    let mut said = [Said::No; 2];
    let mut found = Standard::ANY;
    let mut refuse = |label: &str, value: &str, why: &str| {
        wrong.push(FieldError::invalid(format!("metadata.labels[{label}]"), &value.into(), why));
        Said::Badly
    };
    let [level, version] = &mut said;
    let label = format!("{PREFIX}{mode}");
    if let Some(text) = labels[&label].as_str() {
        (found.level, *level) = match Level::parse(text) {
            Ok(level) => (level, Said::Well),
            Err(why) => (unreadable, refuse(&label, text, why)),
        };
    }
    let label = format!("{PREFIX}{mode}-version");
    if let Some(text) = labels[&label].as_str() {
        (found.version, *version) = match Version::parse(text) {
            Ok(version) => (version, Said::Well),
            Err(why) => (Version::LATEST, refuse(&label, text, why)),
        };
    }
    let [level, version] = said;
    (found, level, version)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(labels: &Value) -> (String, usize) {
        let (policy, wrong) = Policy::of(labels);
        (format!("{} {} {}", policy.enforce, policy.audit, policy.warn), wrong.len())
    }

    #[test]
    fn labels_make_a_policy() {
        let label = |key: &str| format!("{PREFIX}{key}");
        for (labels, policy, wrong) in [
            (json!({}), "privileged:latest privileged:latest privileged:latest", 0),
            (Value::Null, "privileged:latest privileged:latest privileged:latest", 0),
            (
                json!({label("enforce"): "baseline", label("enforce-version"): "v1.24"}),
                "baseline:v1.24 privileged:latest baseline:v1.24",
                0,
            ),
            (
                json!({label("enforce"): "restricted", label("warn"): "privileged", label("audit"): "baseline"}),
                "restricted:latest baseline:latest privileged:latest",
                0,
            ),
            (
                json!({label("enforce"): "restricted", label("warn-version"): "v1.0"}),
                "restricted:latest privileged:latest restricted:v1.0",
                0,
            ),
            (
                json!({label("enforce"): "strict", label("warn"): "x", label("audit"): "", label("audit-version"): "1.2"}),
                "restricted:latest privileged:latest privileged:latest",
                4,
            ),
        ] {
            assert_eq!(shown(&labels), (policy.to_owned(), wrong), "{labels}");
        }
    }

    #[test]
    fn versions_are_latest_or_minor_ones() {
        for (text, shown) in [("latest", "latest"), ("v1.0", "v1.0"), ("v1.36", "v1.36"), ("v1.999", "v1.999")] {
            assert_eq!(Version::parse(text).map(|version| version.to_string()), Ok(shown.to_owned()));
        }
        for text in ["", "v1", "v1.", "v1.01", "v1.+1", "v2.0", "1.30", "v1.30.1", "Latest", "v1.4294967295"] {
            assert!(Version::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wrong_label_is_named() {
        let (_, wrong) = Policy::of(&json!({format!("{PREFIX}enforce"): "x"}));
        assert_eq!(wrong[0].field, "metadata.labels[pod-security.kubernetes.io/enforce]");
        assert_eq!(wrong[0].message, "Invalid value: \"x\": must be one of privileged, baseline, restricted");
    }
}
