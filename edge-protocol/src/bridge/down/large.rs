//! Turns of large objects.

use crate::state::LARGE;

/// Whether objects larger than [`LARGE`] may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Large {
    Always,
    /// No particular one is due.
    ByTurns,
    /// One is next.
    Wanted,
    /// One may go.
    Allowed,
}

impl Large {
    pub(super) fn admits(&mut self, size: usize) -> bool {
        let (admitted, next) = match *self {
            Self::Always => (true, Self::Always),
            // A permitted object may have become smaller, or be gone.
            _ if size <= LARGE => (true, Self::ByTurns),
            Self::Allowed => (true, Self::ByTurns),
            Self::ByTurns | Self::Wanted => (false, Self::Wanted),
        };
        *self = next;
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_object_goes_each_time_it_is_allowed() {
        let mut large = Large::ByTurns;
        assert!(large.admits(LARGE) && large == Large::ByTurns);
        assert!(!large.admits(LARGE + 1) && large == Large::Wanted);
        assert!(!large.admits(usize::MAX) && large == Large::Wanted);
        large = Large::Allowed;
        assert!(large.admits(LARGE + 1) && large == Large::ByTurns);
        assert!(!large.admits(LARGE + 1));
        large = Large::Allowed;
        assert!(large.admits(0) && large == Large::ByTurns, "it is small by now, and the turn goes to another node");
        large = Large::Always;
        assert!(large.admits(usize::MAX) && large.admits(0) && large == Large::Always);
    }
}
