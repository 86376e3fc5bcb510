//! Which thresholds are met now, and which pressure the node shows for it. Pure: looks and times go in.

use std::time::Duration;

use super::signal::{Observations, Shortage};
use super::threshold::Threshold;
use crate::node_status::Pressure;
use crate::pod::clock::Mono;
use crate::sys::sort::sort_by_key;

/// A pressure is shown this long after it was last seen, so that it does not flap (the kubelet's
/// `evictionPressureTransitionPeriod`).
pub const TRANSITION: Duration = Duration::from_secs(300);

/// One observation of the signals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Pressure for node conditions and admission: lasts for the transition period.
    pub pressure: Pressure,
    /// Met at this moment, memory first, as the kubelet relieves them.
    pub met: Vec<Threshold>,
}

/// Remembers when each shortage was seen last.
#[derive(Clone, Debug)]
pub struct Manager {
    thresholds: Vec<Threshold>,
    transition: Duration,
    last: [Option<Mono>; 3],
}

impl Manager {
    pub fn new(thresholds: Vec<Threshold>, transition: Duration) -> Self {
        Self { thresholds, transition, last: [None; 3] }
    }

    pub fn look(&mut self, seen: &Observations, now: Mono) -> Verdict {
        let met = |threshold: &&Threshold| seen.get(threshold.signal).is_some_and(|seen| threshold.met(seen));
        let mut met: Vec<Threshold> = self.thresholds.iter().filter(met).copied().collect();
        sort_by_key(&mut met, |threshold| threshold.signal.shortage());
        for threshold in &met {
            self.last[threshold.signal.shortage() as usize] = Some(now);
        }
        let transition = self.transition;
        let under =
            |shortage: Shortage| self.last[shortage as usize].is_some_and(|at| now.since(at) < transition || at == now);
        let pressure =
            Pressure { memory: under(Shortage::Memory), disk: under(Shortage::Disk), pid: under(Shortage::Pid) };
        Verdict { pressure, met }
    }
}

#[cfg(test)]
mod tests {
    use super::super::signal::Signal;
    use super::super::threshold::Amount;
    use super::*;

    fn seen(memory: u64, disk: u64) -> Observations {
        let mut seen = Observations::default();
        seen.set(Signal::MemoryAvailable, memory, 1000);
        seen.set(Signal::NodeFsAvailable, disk, 1000);
        seen
    }

    fn at(seconds: u64) -> Mono {
        Mono(seconds * 1000)
    }

    #[test]
    fn pressure_outlives_the_shortage() {
        let thresholds = vec![
            Threshold { signal: Signal::NodeFsAvailable, amount: Amount::percent(10) },
            Threshold { signal: Signal::MemoryAvailable, amount: Amount::Absolute(50) },
        ];
        let mut manager = Manager::new(thresholds, TRANSITION);
        assert_eq!(manager.look(&seen(50, 100), at(0)), Verdict::default(), "equal is enough");
        let both = manager.look(&seen(49, 99), at(10));
        assert_eq!(both.pressure, Pressure { memory: true, disk: true, pid: false });
        let signals: Vec<Signal> = both.met.iter().map(|threshold| threshold.signal).collect();
        assert_eq!(signals, [Signal::MemoryAvailable, Signal::NodeFsAvailable]);
        let later = manager.look(&seen(500, 10), at(309));
        assert!(later.pressure.memory && later.met.len() == 1);
        let end = manager.look(&seen(500, 500), at(310));
        assert_eq!(end.pressure, Pressure { memory: false, disk: true, pid: false });
    }

    #[test]
    fn unreadable_signal_raises_nothing() {
        let thresholds = vec![Threshold { signal: Signal::PidAvailable, amount: Amount::percent(99) }];
        let mut manager = Manager::new(thresholds, Duration::ZERO);
        assert_eq!(manager.look(&Observations::default(), at(1)), Verdict::default());
        let mut seen = Observations::default();
        seen.set(Signal::PidAvailable, 5, 100);
        assert!(manager.look(&seen, at(2)).pressure.pid, "also without a transition period");
    }
}
