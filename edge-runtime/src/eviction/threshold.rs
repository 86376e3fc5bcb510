//! Below which amount a signal is a shortage: from configuration, with defaults for the size of the board. Pure.

use std::collections::BTreeMap;

use super::signal::{Observation, Signal};
use crate::pod::quantity;

/// An amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Bytes, inodes or process ids.
    Absolute(u64),
    /// Share of capacity, in thousandths of a percent, so that `0.1%` needs no float.
    Share(u64),
}

/// One whole percent as [`Amount::Share`] counts.
const PERCENT: u64 = 1000;

impl Amount {
    pub fn percent(whole: u64) -> Self {
        Self::Share(whole * PERCENT)
    }

    /// `100Mi`, `5%`, `0.5%`.
    ///
    /// # Errors
    /// The text is not a quantity, and not a percentage below 100.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is neither a quantity (100Mi) nor a percentage from 0% to 100%");
        let Some(number) = text.strip_suffix('%') else {
            let amount = quantity::value(text).and_then(|amount| u64::try_from(amount).ok());
            return amount.map(Self::Absolute).ok_or_else(wrong);
        };
        let share = quantity::milli(number).and_then(|share| u64::try_from(share).ok()).ok_or_else(wrong)?;
        if share > 100 * PERCENT { Err(wrong()) } else { Ok(Self::Share(share)) }
    }

    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Absolute(amount) => amount,
            Self::Share(share) => {
                u64::try_from(u128::from(capacity) * u128::from(share) / u128::from(100 * PERCENT)).unwrap_or(u64::MAX)
            }
        }
    }
}

/// The form that [`Amount::parse`] reads.
impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absolute(amount) => write!(f, "{amount}"),
            Self::Share(share) if share % PERCENT == 0 => write!(f, "{}%", share / PERCENT),
            Self::Share(share) => write!(f, "{}.{:03}%", share / PERCENT, share % PERCENT),
        }
    }
}

/// A hard threshold: evicted pods get no grace period of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    pub signal: Signal,
    pub amount: Amount,
}

impl Threshold {
    pub fn met(&self, seen: Observation) -> bool {
        seen.available < self.amount.of(seen.capacity)
    }
}

/// The kubelet's default, and a twentieth of the memory on boards where that is less.
const MEMORY_MOST: u64 = 100 << 20;

/// K8s pkg/kubelet/eviction/defaults_linux.go, with memory scaled to the board: 100 MiB is nothing on a server and
/// nearly half of a small board's.
pub fn defaults(memory_bytes: u64) -> Vec<Threshold> {
    vec![
        Threshold { signal: Signal::MemoryAvailable, amount: Amount::Absolute(MEMORY_MOST.min(memory_bytes / 20)) },
        Threshold { signal: Signal::NodeFsAvailable, amount: Amount::percent(10) },
        Threshold { signal: Signal::NodeFsInodesFree, amount: Amount::percent(5) },
        Threshold { signal: Signal::ImageFsAvailable, amount: Amount::percent(15) },
        Threshold { signal: Signal::ImageFsInodesFree, amount: Amount::percent(5) },
    ]
}

/// Returns the defaults with the administrator's values by signal; `0` or `0%` removes a threshold.
///
/// # Errors
/// An unknown signal or amount: the name of the signal and why.
pub fn effective(given: &BTreeMap<String, String>, memory_bytes: u64) -> Result<Vec<Threshold>, (String, String)> {
    let mut all = defaults(memory_bytes);
    for (name, text) in given {
        let Some(signal) = Signal::parse(name) else {
            let known: Vec<&str> = Signal::ALL.iter().map(|signal| signal.name()).collect();
            return Err((name.clone(), format!("no such signal; there are {}", known.join(", "))));
        };
        let amount = Amount::parse(text).map_err(|why| (name.clone(), why))?;
        all.retain(|threshold| threshold.signal != signal);
        if amount.of(u64::MAX) > 0 {
            all.push(Threshold { signal, amount });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(all: &[Threshold], signal: Signal) -> Option<Amount> {
        all.iter().find(|threshold| threshold.signal == signal).map(|threshold| threshold.amount)
    }

    #[test]
    fn amounts_are_quantities_or_percentages() {
        assert_eq!(Amount::parse("100Mi"), Ok(Amount::Absolute(100 << 20)));
        assert_eq!(Amount::parse("5%"), Ok(Amount::percent(5)));
        assert_eq!(Amount::parse("0.5%").unwrap().of(1000), 5);
        assert_eq!(Amount::percent(10).of(u64::MAX), u64::MAX / 10);
        for wrong in ["", "%", "5 %", "101%", "-1%", "-5", "many"] {
            assert!(Amount::parse(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn memory_scales_down_to_small_boards() {
        let memory = |bytes| amount(&defaults(bytes), Signal::MemoryAvailable).unwrap().of(bytes);
        assert_eq!(memory(8 << 30), 100 << 20);
        assert_eq!(memory(256 << 20), (256 << 20) / 20);
    }

    #[test]
    fn the_administrator_wins_by_signal() {
        let given = |name: &str, text: &str| BTreeMap::from([(name.to_owned(), text.to_owned())]);
        let all = effective(&given("memory.available", "7Mi"), 1 << 30).unwrap();
        assert_eq!(amount(&all, Signal::MemoryAvailable), Some(Amount::Absolute(7 << 20)));
        assert_eq!(all.len(), 5);
        let none = effective(&given("imagefs.available", "0%"), 1 << 30).unwrap();
        assert_eq!(amount(&none, Signal::ImageFsAvailable), None);
        let pids = effective(&given("pid.available", "100"), 1 << 30).unwrap();
        assert_eq!(pids.len(), 6);
        let (name, why) = effective(&given("memory.avail", "1"), 1 << 30).unwrap_err();
        assert!(name == "memory.avail" && why.contains("memory.available"), "{why}");
    }
}
