//! A node's execution of the orders of jobs: begins at once, works for a while, and reports the result. Remembers begun
//! orders, as a node does on its disk.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fleet::Fleet;

#[derive(Default)]
pub(crate) struct Orders(HashMap<String, Work>);

struct Work {
    ends: Instant,
    said: Said,
}

#[derive(PartialEq)]
enum Said {
    Nothing,
    Begun,
    Ended,
}

impl Orders {
    /// Takes an order; `held`: whether the node has it.
    pub(crate) fn put(&mut self, job: &str, held: bool, index: usize, fleet: &Fleet) {
        if !held {
            fleet.jobs.given(index, job);
        }
        if self.0.contains_key(job) {
            return;
        }
        let percent = 50 + fleet.random() % 100;
        let works = fleet.jobs.works.get() * u32::try_from(percent).unwrap_or(100) / 100;
        fleet.jobs.begun();
        self.0.insert(job.to_owned(), Work { ends: Instant::now() + works, said: Said::Nothing });
    }

    /// The reports to send now.
    pub(crate) fn due(&mut self, index: usize, fleet: &Fleet) -> Vec<(String, Value)> {
        let mut due = Vec::new();
        for (job, work) in &mut self.0 {
            if work.said == Said::Nothing {
                work.said = Said::Begun;
                due.push((job.clone(), json!({"phase": "InProgress", "actionFlow": steps(&["Check"])})));
            }
            if work.said == Said::Begun && work.ends <= Instant::now() {
                work.said = Said::Ended;
                fleet.jobs.ended();
                due.push((job.clone(), verdict(fleet.jobs.fails_at(index))));
            }
        }
        due
    }

    pub(crate) fn wake(&self) -> Option<Instant> {
        let left = self.0.values().filter(|work| work.said != Said::Ended);
        left.map(|work| work.ends.max(Instant::now() + Duration::from_millis(1))).min()
    }
}

fn verdict(fails: bool) -> Value {
    match fails {
        true => {
            json!({"phase": "Failure", "reason": "the new version did not come up within 300 s: back on the old one",
            "currentVersion": "v1.0.0", "actionFlow": steps(&["Check", "BackUp", "Upgrade", "RollBack"])})
        }
        false => json!({"phase": "Successful", "currentVersion": "v2.0.0", "historicVersion": "v1.0.0",
            "actionFlow": steps(&["Check", "BackUp", "Upgrade"])}),
    }
}

fn steps(actions: &[&str]) -> Value {
    actions.iter().map(|action| json!({"action": action, "status": "True", "time": "2026-01-01T00:00:00Z"})).collect()
}
