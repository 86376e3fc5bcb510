//! How much is written for one ServiceAccount: flash wears out, and a pod may read any number of paths. No I/O.

use std::time::Duration;

use sampan_sys::vec_map::VecMap;

/// Time in which an account has its allowance once.
pub(super) const WINDOW: Duration = Duration::from_secs(600);
/// Files in that time.
const MAX_FILES: u32 = 128;

/// What was written in the window of each account, by the name of its folder.
#[derive(Debug, Default)]
pub(super) struct Wear(VecMap<String, Written>);

#[derive(Debug)]
struct Written {
    since: Duration,
    files: u32,
    bytes: u64,
}

impl Wear {
    /// Whether a file of so many bytes may be written now; then it counts. One file is always allowed. `most`: bytes of
    /// an account in a window. `now`: time since the start of the process.
    pub(super) fn allows(&mut self, account: &str, bytes: u64, most: u64, now: Duration) -> bool {
        self.0.retain(|_, written| now.saturating_sub(written.since) < WINDOW);
        let begin = || Written { since: now, files: 0, bytes: 0 };
        let written = self.0.get_or_insert_with(account.to_owned(), begin);
        let all = written.bytes.saturating_add(bytes);
        if written.files > 0 && (written.files >= MAX_FILES || all > most) {
            return false;
        }
        (written.files, written.bytes) = (written.files + 1, all);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_has_an_allowance_of_files_and_bytes() {
        let mut wear = Wear::default();
        let mut files = |account: &str, bytes: u64, seconds: u64| {
            (0..1_000).filter(|_| wear.allows(account, bytes, 10_000, Duration::from_secs(seconds))).count()
        };
        assert_eq!(files("a", 1, 0), 128);
        assert_eq!(files("b", 1_000, 0), 10, "another account has its own");
        assert_eq!(files("c", 1 << 20, 0), 1, "one file is always allowed");
        assert_eq!(files("a", 1, 599), 0);
        assert_eq!(files("a", 1, 600), 128);
    }
}
