//! How far an order is: kept first, then told.

use edge_protocol::message::{ActionStep, ImageStatus, OrderPhase};
use edge_runtime::paths::Paths;
use jiff::Timestamp;
use sampan_launcher::versions::State;

use super::kept::Kept;

/// Maximum length of a reason, in bytes: it goes into an object of the API.
const LONGEST: usize = 1024;

pub(super) struct Progress<'a> {
    kept: Kept,
    paths: &'a Paths,
    tell: &'a mut dyn FnMut(&Kept),
}

impl<'a> Progress<'a> {
    pub(super) fn new(kept: Kept, paths: &'a Paths, tell: &'a mut dyn FnMut(&Kept)) -> Self {
        Self { kept, paths, tell }
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    pub(super) fn tell(&mut self) {
        (self.tell)(&self.kept);
    }

    pub(super) fn has_done(&self, action: &str) -> bool {
        self.kept.status.action_flow.iter().any(|step| step.action == action && step.status)
    }

    /// An action was done, or not; says the same as `done`.
    pub(super) fn step(&mut self, action: &str, done: Result<(), String>) -> Result<(), String> {
        let reason = done.as_ref().err().map(|why| cut(why)).unwrap_or_default();
        self.put(ActionStep { action: action.to_owned(), status: done.is_ok(), reason, time: now() });
        done
    }

    /// An action that others have to do.
    pub(super) fn wait_in(&mut self, action: &str) {
        if self.kept.status.action_flow.last().is_none_or(|step| step.action != action) {
            self.put(ActionStep { action: action.to_owned(), status: false, reason: String::new(), time: now() });
        }
    }

    /// Nothing is done for now; something is, if `why` is empty.
    pub(super) fn wait_because(&mut self, why: &str) {
        if self.kept.status.reason != why {
            why.clone_into(&mut self.kept.status.reason);
            self.save();
        }
    }

    pub(super) fn versions(&mut self, current: &str, historic: &str) {
        current.clone_into(&mut self.kept.status.current_version);
        historic.clone_into(&mut self.kept.status.historic_version);
    }

    pub(super) fn image(&mut self, image: &str, done: &Result<(), String>) {
        let reason = done.as_ref().err().map(|why| cut(why)).unwrap_or_default();
        let status = ImageStatus { image: image.to_owned(), status: done.is_ok(), reason };
        let all = &mut self.kept.status.image_status;
        match all.iter_mut().find(|known| known.image == image) {
            Some(known) => *known = status,
            None => all.push(status),
        }
        self.save();
    }

    /// From now on the launcher knows; `state` is its own, before the trial begins.
    ///
    /// # Errors
    /// It cannot be remembered.
    pub(super) fn on_trial(&mut self, state: State) -> Result<(), String> {
        self.kept.on_trial = true;
        self.kept.trial_before = state.last;
        match self.save() {
            true => Ok(()),
            false => Err("the disk takes nothing: no trial could be remembered".to_owned()),
        }
    }

    pub(super) fn end(&mut self, phase: OrderPhase, reason: &str) {
        self.kept.status.phase = phase;
        self.kept.status.reason = cut(reason);
        self.save();
    }

    fn put(&mut self, step: ActionStep) {
        let status = &mut self.kept.status;
        status.phase = OrderPhase::InProgress;
        status.reason.clear();
        match status.action_flow.iter_mut().find(|known| known.action == step.action) {
            Some(known) => *known = step,
            None => status.action_flow.push(step),
        }
        self.save();
    }

    fn save(&mut self) -> bool {
        let saved = self.kept.save(self.paths);
        if let Err(error) = &saved {
            log::error!("job {}: cannot be remembered: {error}", self.kept.job.name);
        }
        self.tell();
        saved.is_ok()
    }
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}
