//! Decides whether a version on trial works, from observations. Does not know sockets or clocks.

use std::collections::BTreeSet;

use crate::versions::Trial;

/// One look at the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Why it is not ready; `None` if it is.
    pub unready: Option<String>,
    /// Why the link is down; none if it is up.
    pub unlinked: Option<String>,
    /// Uids of the pods that are here and not ready; none if that cannot be known.
    pub unready_pods: Option<BTreeSet<String>>,
}

/// Returns the problem of an observation; `None` without one.
#[must_use]
pub fn fault(trial: &Trial, look: &Look) -> Option<String> {
    if let Some(why) = &look.unready {
        return Some(format!("the daemon was not ready: {why}"));
    }
    if trial.link_before
        && let Some(why) = &look.unlinked
    {
        return Some(format!("the link, which was up before, was down: {why}"));
    }
    let Some(unready) = &look.unready_pods else {
        return Some("the pods of the node could not be looked at".to_owned());
    };
    let worse: Vec<&str> = trial.ready_before.iter().map(String::as_str).filter(|uid| unready.contains(*uid)).collect();
    (!worse.is_empty()).then(|| format!("{} pods that were ready before were not: {}", worse.len(), shown(&worse)))
}

fn shown(uids: &[&str]) -> String {
    let more = if uids.len() > 3 { ", ..." } else { "" };
    uids.iter().take(3).copied().collect::<Vec<_>>().join(", ") + more
}

/// State of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Wait,
    Good,
    Bad(String),
}

/// Observations so far.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    /// Second of the trial in which all was well last.
    well_at: Option<u64>,
    fault: String,
}

impl Judge {
    /// Handles an observation in this second of the trial. At the end, everything must have been well within the last
    /// tenth of it: a single failed probe at that moment does not cause a rollback.
    pub fn look(&mut self, trial: &Trial, second: u64, look: &Look) -> Verdict {
        match fault(trial, look) {
            Some(fault) => self.fault = fault,
            None => self.well_at = Some(second),
        }
        if second < trial.seconds {
            return Verdict::Wait;
        }
        let tenth = (trial.seconds / 10).max(2);
        match self.well_at {
            Some(at) if at + tenth >= trial.seconds => Verdict::Good,
            _ => Verdict::Bad(format!("after {} s {}", trial.seconds, self.fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial() -> Trial {
        Trial { seconds: 300, link_before: true, ready_before: vec!["a".into(), "b".into()], ..Trial::default() }
    }

    fn well() -> Look {
        Look { unready_pods: Some(BTreeSet::new()), ..Look::default() }
    }

    #[test]
    fn each_thing_that_must_hold_is_named_when_it_does_not() {
        let trial = trial();
        assert_eq!(fault(&trial, &well()), None);
        let unready = Look { unready: Some("no socket".into()), ..well() };
        assert!(fault(&trial, &unready).unwrap().contains("not ready: no socket"));
        let unlinked = Look { unlinked: Some("refused".into()), ..well() };
        assert!(fault(&trial, &unlinked).unwrap().contains("refused"));
        assert_eq!(fault(&Trial { link_before: false, ..trial.clone() }, &unlinked), None, "it was down before");
        let pods =
            |uids: &[&str]| Look { unready_pods: Some(uids.iter().map(ToString::to_string).collect()), ..well() };
        assert!(fault(&trial, &pods(&["b", "c"])).unwrap().contains("1 pods"), "c was not ready before");
        assert_eq!(fault(&trial, &pods(&["c"])), None);
        assert!(fault(&trial, &Look { unready_pods: None, ..well() }).is_some());
    }

    #[test]
    fn the_end_decides_and_one_bad_moment_does_not() {
        let (trial, bad) = (trial(), Look { unready: Some("x".into()), ..well() });
        let good = well();
        let run = |well_at: &dyn Fn(u64) -> bool| {
            let mut judge = Judge::default();
            let mut last = Verdict::Wait;
            for second in 0..=300 {
                assert_eq!(last, Verdict::Wait);
                last = judge.look(&trial, second, if well_at(second) { &good } else { &bad });
            }
            last
        };
        assert_eq!(run(&|_| true), Verdict::Good);
        assert_eq!(run(&|second| second > 250), Verdict::Good);
        assert_eq!(run(&|second| second != 300), Verdict::Good);
        assert!(matches!(run(&|second| second < 200), Verdict::Bad(_)), "well at first only");
        assert!(matches!(run(&|_| false), Verdict::Bad(why) if why.contains("after 300 s")));
    }
}
