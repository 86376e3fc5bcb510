//! Limit of the work for one key before others run. Pure.

use super::engine::End;
use super::plan::{Plan, WRITES};

/// Maximum number of plans, and of writes in all of them.
const STEPS: usize = 16;

/// The rest of a turn's limit.
#[derive(Debug)]
pub(crate) struct Turn {
    steps: usize,
    writes: usize,
}

impl Default for Turn {
    fn default() -> Self {
        Self { steps: STEPS, writes: WRITES }
    }
}

impl Turn {
    /// The part of a plan for this turn: the rest is planned again, as after a restart of the program.
    pub(crate) fn cut(&mut self, mut plan: Plan) -> Plan {
        if plan.actions.len() > self.writes {
            plan.actions.truncate(self.writes);
            plan.done.clear();
        }
        self.steps = self.steps.saturating_sub(1);
        self.writes = self.writes.saturating_sub(plan.actions.iter().filter(|action| !action.is_read()).count());
        plan
    }

    /// How the turn ends with this plan, if it does. `changed`: any of its writes changed something.
    pub(crate) fn end(&self, plan: &Plan, changed: bool) -> Option<End> {
        if plan.actions.is_empty() {
            Some(End::Done)
        } else if !changed {
            Some(End::Idle)
        } else if self.writes == 0 {
            Some(End::More)
        } else if self.steps == 0 {
            Some(End::Restless)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::super::plan::{Action, Teller};
    use super::super::world::Kind;
    use super::*;

    fn plan(count: usize) -> Plan {
        let actions = (0..count).map(|_| Action::delete(Kind::Pod, &ObjectMeta::default())).collect();
        let teller = Teller::new("test", Kind::Pod, &ObjectMeta::default());
        Plan::all_at_once(actions).tell(vec![teller.normal("Done", "done")])
    }

    #[test]
    fn a_turn_ends_after_so_many_writes_and_so_many_plans() {
        let mut turn = Turn::default();
        let first = turn.cut(plan(WRITES - 1));
        assert_eq!((first.actions.len(), first.done.len(), turn.end(&first, true)), (WRITES - 1, 1, None));
        let second = turn.cut(plan(2));
        assert_eq!((second.actions.len(), second.done.len()), (1, 0), "what was not done is not told");
        assert_eq!(turn.end(&second, true), Some(End::More));
        let mut turn = Turn::default();
        let read = turn.cut(Plan::one_by_one(vec![Action::read(Kind::Pod, &ObjectMeta::default())]));
        assert_eq!((turn.end(&read, true), turn.cut(plan(WRITES)).actions.len()), (None, WRITES), "no write");
        let mut turn = Turn::default();
        let mut ends = Vec::new();
        for _ in 0..STEPS {
            let plan = turn.cut(plan(1));
            ends.extend(turn.end(&plan, true));
        }
        assert_eq!(ends, [End::Restless], "with the last one");
        assert_eq!(turn.end(&plan(1), false), Some(End::Idle));
        assert_eq!(turn.end(&plan(0), false), Some(End::Done));
    }
}
