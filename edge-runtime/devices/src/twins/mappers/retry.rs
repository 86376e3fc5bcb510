//! Back-off of failed calls, in milliseconds.

const FIRST: u64 = 100;
const SOON: u64 = 1_000;
pub(super) const MOST: u64 = 30_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    /// Not before.
    pub(super) at: u64,
    pause: u64,
}

impl Retry {
    pub(super) const fn at(at: u64) -> Self {
        Self { at, pause: 0 }
    }

    pub(super) const fn is_failing(&self) -> bool {
        self.pause > 0
    }

    /// There is reason to think that it would not fail again: a try within a second of the last one.
    pub(super) fn sooner(&mut self, now: u64) {
        if self.is_failing() {
            let last = self.at.saturating_sub(self.pause);
            self.at = self.at.min(now.max(last + SOON));
            self.pause = self.at - last;
        }
    }

    /// It failed: the pause doubles, up to `most`.
    pub(super) fn again(&mut self, now: u64, most: u64) {
        self.pause = (self.pause * 2).clamp(FIRST, most);
        self.at = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_tenth_of_a_second_to_half_a_minute() {
        let mut retry = Retry::default();
        let mut pauses = Vec::new();
        let mut now = 5;
        for _ in 0..11 {
            retry.again(now, MOST);
            pauses.push(retry.at - now);
            now = retry.at;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        now = retry.at;
        retry.again(now, MOST);
        retry.sooner(now + 300);
        assert_eq!(retry.at, now + 1_000);
        retry.sooner(now + 300);
        assert_eq!(retry.at, now + 1_000, "no sooner than that");
        retry.again(now, 1_000);
        assert_eq!(retry.at, now + 1_000);
        let mut fine = Retry::at(7);
        fine.sooner(1);
        assert_eq!(fine.at, 7);
    }
}
