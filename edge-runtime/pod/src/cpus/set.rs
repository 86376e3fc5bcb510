//! A set of CPUs, as bits.

use std::array;
use std::fmt;

const WORDS: usize = 16;
/// One more than the highest id that a set can hold.
const END: u16 = 1024;

/// Ids of CPUs, 0 to 1023.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// Reads a list in the kernel's form, `0-3,6` (cpuset(7), "List format"). An empty text is an empty set. `None` if it
    /// is malformed, or has an id above 1023.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut all, text) = (Self::default(), text.trim());
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last >= END {
                return None;
            }
            (first..=last).for_each(|cpu| all.insert(cpu));
        }
        Some(all)
    }

    pub fn of(cpu: u16) -> Self {
        let mut one = Self::default();
        one.insert(cpu);
        one
    }

    fn insert(&mut self, cpu: u16) {
        if let Some(word) = self.0.get_mut(usize::from(cpu / 64)) {
            *word |= 1u64 << (cpu % 64);
        }
    }

    pub fn contains(&self, cpu: u16) -> bool {
        self.0.get(usize::from(cpu / 64)).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Ids, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let all = *self;
        (0..END).filter(move |cpu| all.contains(*cpu))
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn is_subset(&self, of: &Self) -> bool {
        self.without(of).is_empty()
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.each(other, |a, b| a | b)
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.each(other, |a, b| a & b)
    }

    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.each(other, |a, b| a & !b)
    }

    fn each(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        Self(array::from_fn(|at| of(self.0[at], other.0[at])))
    }

    /// One bit for each id, the lowest bit of the first byte for CPU 0: `AllowedCPUs` of org.freedesktop.systemd1(5).
    pub fn to_bytes(self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// The kernel's form, which files of cgroups also show.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut cpu, mut separator) = (0, "");
        while cpu < END {
            let first = cpu;
            while self.contains(cpu) {
                cpu += 1;
            }
            if cpu > first {
                write!(f, "{separator}{first}")?;
                separator = ",";
            }
            if cpu > first + 1 {
                write!(f, "-{}", cpu - 1)?;
            }
            cpu += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_by_the_kernel() {
        for (text, written, len) in [
            ("", "", 0),
            ("\n", "", 0),
            ("0\n", "0", 1),
            ("3,1,2", "1-3", 3),
            ("0,2-3", "0,2-3", 3),
            ("0-1", "0-1", 2),
            ("62-65,1023", "62-65,1023", 5),
            ("0-1023", "0-1023", 1024),
        ] {
            let set = CpuSet::parse(text).unwrap();
            assert_eq!((set.to_string().as_str(), set.len()), (written, len), "{text}");
            assert_eq!(CpuSet::parse(written), Some(set), "{text}");
        }
        for text in ["a", "1-", "-1", "3-1", "1,,2", "1024", "0-70000", "1.2", ","] {
            assert_eq!(CpuSet::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sets_are_combined() {
        let set = |text| CpuSet::parse(text).unwrap();
        let (a, b) = (set("0-3,64"), set("2-5"));
        assert_eq!(a.union(&b), set("0-5,64"));
        assert_eq!(a.intersection(&b), set("2-3"));
        assert_eq!(a.without(&b), set("0-1,64"));
        assert!(set("2").is_subset(&a) && !b.is_subset(&a) && set("").is_subset(&a));
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 64]);
        assert_eq!(a.to_bytes()[..9], [0b1111, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
