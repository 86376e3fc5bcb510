//! Jobs as users write them (KubeEdge's operations.kubeedge.io/v1alpha2): three kinds with one shape. Pure; validates
//! nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{ApiResource, ObjectMeta};
use sampan_duration::Typed;
use serde::Deserialize;
use serde_json::Value;

use super::status::Status;
use crate::bridge::resource::resource;
use crate::bridge::well_known::is_held;

/// Group and version of all three.
pub(super) const JOBS_API: &str = "operations.kubeedge.io/v1alpha2";

/// Kinds of orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Upgrade,
    PrePull,
    Configure,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Upgrade, Self::PrePull, Self::Configure];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Upgrade => "NodeUpgradeJob",
            Self::PrePull => "ImagePrePullJob",
            Self::Configure => "ConfigUpdateJob",
        }
    }

    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Upgrade => "nodeupgradejobs",
            Self::PrePull => "imageprepulljobs",
            Self::Configure => "configupdatejobs",
        }
    }

    pub(super) fn resource(self) -> ApiResource {
        resource(JOBS_API, self.name(), self.plural())
    }
}

/// Annotations of a job.
const CONFIRM: &str = "sampan.dev/confirm";
const DEADLINE: &str = "sampan.dev/deadline";
const SIGNATURE: &str = "sampan.dev/signature.";

/// Maximum wait for offline nodes, unless a job says otherwise.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);
/// KubeEdge's defaults.
const TIMEOUT: u64 = 300;
/// A year, also if a definition allows more.
const LONGEST_TIMEOUT: u64 = 366 * 86_400;
const TOLERATE: &str = "0.1";

/// A job as the API has it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct JobObject {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

apimachinery::read_as!(JobObject);

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) uid: Box<str>,
    /// Version of the object in the API, on which the status is written.
    pub(super) version: String,
    pub(super) created: Timestamp,
    pub(super) annotations: BTreeMap<String, String>,
    /// The common part of all nodes' orders; of an ImagePrePullJob its template.
    pub(super) spec: Value,
    pub(super) status: Status,
}

impl Job {
    /// `None` for a job that is being deleted, or does not have a name, a uid or a readable status.
    pub(super) fn of(kind: Kind, object: &JobObject) -> Option<Self> {
        let metadata = &object.metadata;
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let uid = text(&metadata.uid).filter(|_| metadata.deletion_timestamp.is_none())?;
        let spec = match kind {
            Kind::PrePull => &object.spec["imagePrePullTemplate"],
            _ => &object.spec,
        };
        Some(Self {
            kind,
            name: text(&metadata.name)?,
            uid: uid.into(),
            version: text(&metadata.resource_version)?,
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            spec: spec.clone(),
            status: Status::read(&object.status)?,
        })
    }

    /// Path of the object in the API.
    pub(super) fn path(&self) -> String {
        format!("/apis/{JOBS_API}/{}/{}", self.kind.plural(), self.name)
    }

    /// Maximum number of nodes with an order and without a verdict at the same time.
    pub(super) fn concurrency(&self) -> usize {
        self.spec["concurrency"].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(1).max(1)
    }

    pub(super) fn timeout_seconds(&self) -> u64 {
        self.spec["timeoutSeconds"].as_u64().filter(|seconds| *seconds > 0).unwrap_or(TIMEOUT).min(LONGEST_TIMEOUT)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds())
    }

    /// Number of failures that are tolerated with this many targets; an error if the text is not a fraction.
    pub(super) fn tolerated(&self, targets: usize) -> Result<usize, String> {
        let text = self.spec["failureTolerate"].as_str().filter(|text| !text.is_empty()).unwrap_or(TOLERATE);
        let millionths = millionths(text)
            .ok_or_else(|| format!("spec.failureTolerate {text:?} is no share between \"0\" and \"1\", as \"0.1\""))?;
        Ok(targets.saturating_mul(millionths) / 1_000_000)
    }

    /// The deadline for nodes that are offline; an error if the text is not a duration.
    pub(super) fn deadline(&self) -> Result<Timestamp, String> {
        let after = match self.annotations.get(DEADLINE) {
            None => LONGEST,
            Some(text) => {
                let wrong =
                    |_| format!("annotation {DEADLINE} {text:?} is no time: want a number and one of s, m, h, d");
                text.parse::<Typed>().map_err(wrong)?.0
            }
        };
        Ok(self.created.saturating_add(after).unwrap_or(Timestamp::MAX))
    }

    /// Whether a user has confirmed exactly this job.
    pub(super) fn is_confirmed(&self) -> bool {
        self.annotations.get(CONFIRM).is_some_and(|uid| **uid == *self.uid)
    }

    /// Whether no further node may begin.
    pub(super) fn is_held(&self) -> bool {
        is_held(&self.annotations)
    }

    /// Signatures by architecture.
    pub(super) fn signatures(&self) -> BTreeMap<String, String> {
        let signature =
            |(name, value): (&String, &String)| Some((name.strip_prefix(SIGNATURE)?.to_owned(), value.clone()));
        self.annotations.iter().filter_map(signature).collect()
    }

    pub(super) fn images(&self) -> impl Iterator<Item = &str> {
        self.spec["images"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }
}

/// Millionths of a decimal number between 0 and 1; further digits are ignored.
fn millionths(text: &str) -> Option<usize> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(rest) || text.len() > 32 || (whole.is_empty() && rest.is_empty()) {
        return None;
    }
    let whole: usize = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let rest: usize = format!("{rest:0<6}").get(..6)?.parse().ok()?;
    Some(whole.checked_mul(1_000_000)? + rest).filter(|all| *all <= 1_000_000)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::bridge::well_known::HOLD;

    /// A job with this spec.
    pub(in crate::bridge::jobs) fn job(kind: Kind, spec: Value) -> Job {
        let spec = if kind == Kind::PrePull { json!({"imagePrePullTemplate": spec}) } else { spec };
        let object = json!({"metadata": {"name": "j", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec});
        Job::of(kind, &serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn jobs_are_read_as_they_are_written_and_lack_nothing() {
        let bare = job(Kind::Upgrade, json!({}));
        assert_eq!((bare.concurrency(), bare.timeout_seconds()), (1, 300));
        assert_eq!((bare.tolerated(100), bare.tolerated(9)), (Ok(10), Ok(0)));
        assert_eq!(bare.deadline().unwrap().to_string(), "2026-01-08T00:00:00Z");
        assert!(!bare.is_confirmed() && !bare.is_held());
        let odd = job(Kind::PrePull, json!({"concurrency": -3, "timeoutSeconds": 0, "failureTolerate": "half"}));
        assert_eq!((odd.concurrency(), odd.timeout_seconds()), (1, 300));
        assert!(odd.tolerated(1).unwrap_err().contains("\"half\""));
        let endless = job(Kind::Configure, json!({"timeoutSeconds": u64::MAX, "concurrency": u64::MAX}));
        assert!(endless.timeout_seconds() < u64::from(u32::MAX) && endless.concurrency() > 9999);
        let mut said =
            job(Kind::Configure, json!({"concurrency": 50, "timeoutSeconds": 9, "failureTolerate": "0.025"}));
        for (name, value) in [(CONFIRM, "u"), (DEADLINE, "2h"), (HOLD, ""), ("sampan.dev/signature.arm64", "s")] {
            said.annotations.insert(name.into(), value.into());
        }
        assert_eq!((said.concurrency(), said.timeout_seconds(), said.tolerated(1000)), (50, 9, Ok(25)));
        assert_eq!(said.deadline().unwrap().to_string(), "2026-01-01T02:00:00Z");
        assert!(said.is_confirmed() && said.is_held() && said.signatures()["arm64"] == "s");
        said.annotations.insert(DEADLINE.into(), "soon".into());
        assert!(said.deadline().unwrap_err().contains("\"soon\""));
        said.annotations.insert(CONFIRM.into(), "of another".into());
        assert!(!said.is_confirmed());
    }

    #[test]
    fn shares_are_decimal_numbers_up_to_one() {
        for (text, of) in
            [("0", 0), ("1", 1_000_000), ("0.3", 300_000), (".5", 500_000), ("1.0", 1_000_000), ("0.0000019", 1)]
        {
            assert_eq!(millionths(text), Some(of), "{text}");
        }
        for text in ["", ".", "-0.1", "1.1", "2", "1e-1", "0,1", "10%", "99999999999999999999999"] {
            assert_eq!(millionths(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_job_is_none() {
        let read = |object: Value| Job::of(Kind::Upgrade, &serde_json::from_value(object).unwrap());
        assert!(read(json!({"metadata": {"name": "j", "resourceVersion": "1"}})).is_none());
        let going = json!({"metadata": {"name": "j", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(read(going).is_none());
        let nonsense =
            json!({"metadata": {"name": "j", "uid": "u", "resourceVersion": "1"}, "status": {"nodeStatus": 1}});
        assert!(read(nonsense).is_none());
    }
}
