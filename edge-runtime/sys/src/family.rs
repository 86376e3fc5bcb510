//! Processes and all that descends from them or is in their sessions, to be killed together. Knows nothing of what they
//! are.

use std::collections::BTreeSet;

use crate::pidfd;

/// Kills are repeated until nothing is left that was not there before: a process may fork meanwhile.
const ROUNDS: u32 = 4;

/// SIGKILL to `roots`, all below them and all of their sessions.
pub fn kill_all(roots: &BTreeSet<i32>) {
    let mut killed = BTreeSet::new();
    for _ in 0..ROUNDS {
        let doomed = family(&killed | roots, &processes());
        let news: Vec<i32> = doomed.into_iter().filter(|pid| !killed.contains(pid)).collect();
        if news.is_empty() {
            return;
        }
        for pid in news {
            if let Ok(pidfd) = pidfd::open(pid) {
                // Gone meanwhile is as good.
                let _ = pidfd::signal(&pidfd, nix::libc::SIGKILL);
            }
            killed.insert(pid);
        }
    }
}

/// Every process of the machine: pid, parent, session.
fn processes() -> Vec<(i32, i32, i32)> {
    let living = |pid| pidfd::stat(pid).filter(|stat| !stat.ended).map(|stat| (pid, stat.parent, stat.session));
    pidfd::all().filter_map(living).collect()
}

/// Returns `family`, its descendants, and the processes in a session that one of them leads. (The OCI runtime leads
/// none: its session is the daemon's.)
fn family(mut family: BTreeSet<i32>, all: &[(i32, i32, i32)]) -> BTreeSet<i32> {
    loop {
        let belongs = |(pid, parent, session): &&(i32, i32, i32)| {
            !family.contains(pid) && (family.contains(parent) || family.contains(session))
        };
        let more: Vec<i32> = all.iter().filter(belongs).map(|(pid, ..)| *pid).collect();
        if more.is_empty() {
            return family;
        }
        family.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_descendants_and_their_sessions() {
        // Daemon 1 leads session 1; runtime 10, its command 11 (a leader) with child 12; 13 was orphaned in 11's
        // session; 20 is another process of the daemon, 30 a container's first process.
        let all =
            [(1, 0, 1), (10, 1, 1), (11, 10, 11), (12, 11, 11), (13, 30, 11), (14, 13, 14), (20, 1, 1), (30, 2, 30)];
        let family_of = |pid| family(BTreeSet::from([pid]), &all);
        assert_eq!(family_of(10), BTreeSet::from([10, 11, 12, 13, 14]));
        assert_eq!(family_of(11), BTreeSet::from([11, 12, 13, 14]));
        assert_eq!(family_of(99), BTreeSet::from([99]));
    }
}
