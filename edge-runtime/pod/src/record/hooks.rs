//! State of the lifecycle hooks of one container attempt. Cleared with every new attempt.

use serde::{Deserialize, Serialize};

use crate::clock::Mono;

/// How far one hook has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "hook")]
pub enum Hook {
    /// Not run yet. After a restart of the daemon also an interrupted one: hooks run at least once.
    #[default]
    Idle,
    UnderWay,
    /// It has ended, or its time was up; failed if there is an error (with `postStart` the container ends for it).
    Done {
        at: Mono,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

/// The hooks of the running attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooks {
    #[serde(default, skip_serializing_if = "Hook::is_idle")]
    pub post_start: Hook,
    #[serde(default, skip_serializing_if = "Hook::is_idle")]
    pub pre_stop: Hook,
}

impl Hook {
    pub fn is_idle(&self) -> bool {
        *self == Self::Idle
    }

    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }

    /// Why it failed, if it did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Done { error, .. } => error.as_deref(),
            Self::Idle | Self::UnderWay => None,
        }
    }
}

impl Hooks {
    pub fn is_idle(&self) -> bool {
        self.post_start.is_idle() && self.pre_stop.is_idle()
    }

    /// The daemon that ran them has ended.
    pub fn interrupt(&mut self) {
        for hook in [&mut self.post_start, &mut self.pre_stop] {
            if *hook == Hook::UnderWay {
                *hook = Hook::Idle;
            }
        }
    }
}
