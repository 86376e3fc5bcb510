//! Ids of unrequested messages: as unique as the seed, in the form of a UUID. Reads no randomness.

#[derive(Debug)]
pub(crate) struct Ids(u64);

impl Ids {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> String {
        let (high, low) = (self.mixed(), self.mixed());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff
        )
    }

    /// The step of splitmix64: a permutation, so nothing comes twice within 2^64 steps.
    const fn mixed(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_have_the_form_of_a_uuid_and_differ() {
        let mut ids = Ids::new(7);
        let made: BTreeSet<String> = (0..1_000).map(|_| ids.next()).collect();
        assert_eq!(made.len(), 1_000);
        for id in made {
            let parts: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
    }
}
