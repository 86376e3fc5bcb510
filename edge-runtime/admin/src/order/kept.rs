//! Stored state of an order: a small file for each, and another one for its confirmation.

use std::fs;
use std::io;
use std::path::Path;

use edge_protocol::message::{Job, OrderStatus};
use edge_runtime::paths::{CONFIRMED, Paths};
use sampan_launcher::versions::{Ended, State};
use sampan_sys::files::{private_dir, replace, unless_missing};
use serde::{Deserialize, Serialize};

/// Orders that are remembered after their end, and others, whose jobs may be gone; the oldest of each go first.
const MOST: usize = 32;

/// One order's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) job: Job,
    pub(crate) status: OrderStatus,
    /// The daemon was ended so that the trial starts; the launcher knows its result.
    #[serde(default)]
    pub(crate) on_trial: bool,
    /// How the trial before that one ended: while the launcher knows no other end, the new trial never began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trial_before: Option<Ended>,
}

impl Kept {
    /// Loads the state of this job, or creates it.
    pub(crate) fn load(paths: &Paths, job: &Job) -> Self {
        let text = fs::read(paths.order(&job.uid, "json")).ok();
        let known: Option<Self> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let fresh = || Self { job: job.clone(), status: OrderStatus::default(), on_trial: false, trial_before: None };
        known.filter(|known| known.job.uid == job.uid).unwrap_or_else(fresh)
    }

    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn all(paths: &Paths) -> io::Result<Vec<Self>> {
        let Some(entries) = unless_missing(fs::read_dir(paths.orders()))? else { return Ok(Vec::new()) };
        let texts = entries.filter_map(|entry| fs::read(entry.ok()?.path()).ok());
        Ok(texts.filter_map(|text| serde_json::from_slice(&text).ok()).collect())
    }

    /// Saves the state durably.
    ///
    /// # Errors
    /// The disk takes nothing.
    pub(crate) fn save(&self, paths: &Paths) -> io::Result<()> {
        private_dir(&paths.orders())?;
        replace(&paths.order(&self.job.uid, "json"), &serde_json::to_vec(self)?, true)?;
        if self.status.phase.is_final() {
            unless_missing(fs::remove_file(paths.order(&self.job.uid, CONFIRMED)))?;
            forget_oldest(paths)?;
        }
        Ok(())
    }

    /// Whether this order has to wait for the launcher's word. A helper that was killed between noting the trial and
    /// beginning it has nothing to wait for.
    pub(crate) fn awaits_trial(&self, state: &State) -> bool {
        self.on_trial && (state.trial.is_some() || state.last != self.trial_before)
    }

    pub(crate) fn is_confirmed(&self, paths: &Paths) -> bool {
        paths.order(&self.job.uid, CONFIRMED).exists()
    }

    /// # Errors
    /// The disk takes nothing.
    pub(crate) fn confirm(&self, paths: &Paths) -> io::Result<()> {
        replace(&paths.order(&self.job.uid, CONFIRMED), b"", true)
    }
}

/// One that waits for a user outlives all that end meanwhile.
fn forget_oldest(paths: &Paths) -> io::Result<()> {
    let (mut ended, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(paths.orders())? {
        let entry = entry?;
        let files = if has_ended(&entry.path()) { &mut ended } else { &mut others };
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    for mut files in [ended, others] {
        files.sort();
        let more = files.len().saturating_sub(MOST);
        for (_, path) in files.into_iter().take(more) {
            unless_missing(fs::remove_file(path))?;
        }
    }
    Ok(())
}

/// Whether this is the file of an order that has ended.
fn has_ended(file: &Path) -> bool {
    let kept: Option<Kept> = fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    kept.is_some_and(|kept| kept.status.phase.is_final())
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::OrderPhase;
    use sampan_launcher::versions::Trial;

    use super::*;

    fn job(uid: &str) -> Job {
        Job { kind: "NodeUpgradeJob".into(), name: "n".into(), uid: uid.into() }
    }

    #[test]
    fn order_is_found_by_uid_whatever_its_content() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        let mut kept = Kept::load(&paths, &job("../../../etc/a-1"));
        kept.status.phase = OrderPhase::InProgress;
        kept.save(&paths).unwrap();
        assert!(paths.order("../../../etc/a-1", "json").starts_with(paths.orders()));
        assert_eq!(Kept::load(&paths, &job("../../../etc/a-1")).status.phase, OrderPhase::InProgress);
        assert_eq!(Kept::load(&paths, &job("etca-1")).status.phase, OrderPhase::Pending, "another uid");
        assert!(!kept.is_confirmed(&paths));
        kept.confirm(&paths).unwrap();
        assert!(kept.is_confirmed(&paths));
    }

    #[test]
    fn trial_that_never_began_is_not_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let mut kept = Kept::load(&Paths::new(temp.path()), &job("u"));
        let before = Some(Ended { at: 7, ..Ended::default() });
        assert!(!kept.awaits_trial(&State { last: before.clone(), ..State::default() }), "none was noted");
        (kept.on_trial, kept.trial_before) = (true, before.clone());
        assert!(!kept.awaits_trial(&State { last: before.clone(), ..State::default() }), "killed in between");
        let trial = Some(Trial::default());
        assert!(kept.awaits_trial(&State { last: before, trial, current: None }), "it goes on");
        let last = Some(Ended { at: 9, job: Some("u".into()), ..Ended::default() });
        assert!(kept.awaits_trial(&State { last, ..State::default() }), "it has ended");
    }

    #[test]
    fn few_are_remembered() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        for number in 0..MOST + 5 {
            let mut kept = Kept::load(&paths, &job(&format!("u-{number}")));
            kept.status.phase = OrderPhase::Successful;
            kept.save(&paths).unwrap();
        }
        assert_eq!(Kept::all(&paths).unwrap().len(), MOST);
        assert_eq!(Kept::load(&paths, &job(&format!("u-{}", MOST + 4))).status.phase, OrderPhase::Successful);
    }

    #[test]
    fn waiting_order_outlives_ended_ones() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        let mut waits = Kept::load(&paths, &job("a-waits"));
        waits.status.phase = OrderPhase::InProgress;
        waits.save(&paths).unwrap();
        for number in 0..MOST + 5 {
            let mut kept = Kept::load(&paths, &job(&format!("u-{number}")));
            kept.status.phase = OrderPhase::Successful;
            kept.save(&paths).unwrap();
        }
        assert_eq!(Kept::load(&paths, &job("a-waits")).status.phase, OrderPhase::InProgress);
        assert_eq!(Kept::all(&paths).unwrap().len(), MOST + 1);
    }
}
