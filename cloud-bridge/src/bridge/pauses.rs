//! Pauses before repeated attempts.

use std::time::Duration;

/// Pauses of which each is twice as long as the one before.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    limits: (Duration, Duration),
}

impl Pauses {
    /// `limits`: the shortest pause, with which they begin, and the longest.
    pub(super) fn new(limits: (Duration, Duration)) -> Self {
        Self { next: limits.0, limits }
    }

    /// Length of the next pause.
    pub(super) fn length(&self) -> Duration {
        self.next
    }

    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.take()).await;
    }

    fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.limits.1);
        pause
    }

    /// An attempt has succeeded: the next pause is the shortest again.
    pub(super) fn reset(&mut self) {
        self.next = self.limits.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = Pauses::new((Duration::from_secs(1), Duration::from_secs(5)));
        let taken: Vec<u64> = (0..5).map(|_| pauses.take().as_secs()).collect();
        assert_eq!((taken, pauses.length().as_secs()), (vec![1, 2, 4, 5, 5], 5));
        pauses.reset();
        assert_eq!(pauses.take().as_secs(), 1);
    }
}
