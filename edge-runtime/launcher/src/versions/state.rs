//! Which version is active, the trial under way, and how the last one ended: the content of `state.json`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Content of `state.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct State {
    /// Name of the version in force; absent: the package's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The trial of `current` or of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// How the last trial ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Ended>,
}

/// What is on trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    #[default]
    Programs,
    /// The earlier configuration is beside the state, see [`Versions::configuration_before`](super::Versions::configuration_before).
    Configuration,
}

/// A trial under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Trial {
    pub subject: Subject,
    /// The version to go back to; absent: the package's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The kernel's boot id: a trial does not outlive a boot.
    pub boot_id: String,
    /// How long it lasts.
    pub seconds: u64,
    /// How often the daemon was started in it.
    pub starts: u32,
    /// The link was up when it began: then it has to be at the end.
    pub link_before: bool,
    /// Uids of the pods that were ready when it began.
    pub ready_before: Vec<String>,
    /// The order (uid of its job) that this is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// How a trial has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ended {
    pub subject: Subject,
    /// The version on trial; absent: the package's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// True if it stays; false after a rollback.
    pub good: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Seconds since 1970, by the node's clock.
    pub at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl State {
    /// The trial is over, and how. Without one nothing changes.
    pub fn end(&mut self, good: bool, reason: &str) {
        let Some(trial) = self.trial.take() else { return };
        let version = self.current.clone();
        if !good && trial.subject == Subject::Programs {
            self.current.clone_from(&trial.from);
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let reason = reason.to_owned();
        let Trial { subject, from, job, .. } = trial;
        self.last = Some(Ended { subject, version, from, good, reason, at, job });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_trial_is_rolled_back_with_a_reason() {
        let trial = Trial { from: Some("1-a".into()), job: Some("j".into()), ..Trial::default() };
        let mut state = State { current: Some("2-b".into()), trial: Some(trial.clone()), last: None };
        let mut good = state.clone();
        state.end(false, "it crashed");
        let last = state.last.clone().unwrap();
        assert_eq!((state.current.as_deref(), state.trial.is_none()), (Some("1-a"), true));
        assert_eq!((last.version.as_deref(), last.good, &*last.reason), (Some("2-b"), false, "it crashed"));
        good.end(true, "");
        assert_eq!(good.current.as_deref(), Some("2-b"));
        let subject = Subject::Configuration;
        let mut state = State { current: Some("2-b".into()), trial: Some(Trial { subject, ..trial }), last: None };
        state.end(false, "no link");
        assert_eq!(state.current.as_deref(), Some("2-b"), "the programs were not on trial");
    }
}
