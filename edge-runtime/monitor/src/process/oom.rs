//! Finds containers that the kernel has killed for memory, although systemd removes their cgroups and counters as soon
//! as they are empty. The pod's slice stays, and has counted every kill below it (cgroup v2). Kills in its count that
//! belong to no other container belong to the ended one. Only reads counters.

use super::Monitor;
use super::cgroup::{SCOPE_END, kills};
use super::container::State;
use sampan_sys::vec_map::VecMap;

/// The number of kills of containers that have ended, by slice.
#[derive(Default)]
pub(crate) struct Kills(VecMap<String, u64>);

impl Monitor {
    /// Starts to count the kills in the container's slice. Called before anything runs in it, and when all containers
    /// of a former monitor are known.
    pub(crate) fn follow_kills(&mut self, id: &str) {
        let Some(slice) = self.containers.get(id).and_then(|c| slice_of(c.spec.cgroup.as_deref())) else { return };
        let living: Option<u64> = self.living(slice).map(kills).sum();
        // A container without a cgroup has ended, and its exit is processed next: its kills are still to be reported.
        // Otherwise remaining kills belong to failed starts.
        if let Some(living) = living {
            let (slice, before) = (slice.to_owned(), kills(slice).unwrap_or(0).saturating_sub(living));
            self.kills.0.insert(slice, before);
        }
    }

    /// Whether the container that has just ended was killed for memory.
    pub(crate) fn was_oom_killed(&mut self, id: &str) -> bool {
        let Some(cgroup) = self.containers.get(id).and_then(|c| c.spec.cgroup.clone()) else { return false };
        let own = kills(&cgroup);
        let Some(slice) = slice_of(Some(&cgroup)) else { return own.unwrap_or(0) > 0 };
        let ended = self.kills.0.get(slice).copied();
        let count = match (own, ended) {
            (Some(own), _) => own,
            (None, Some(ended)) => {
                let living: u64 = self.living(slice).filter_map(kills).sum();
                kills(slice).unwrap_or(0).saturating_sub(ended).saturating_sub(living)
            }
            (None, None) => 0,
        };
        if let Some(ended) = self.kills.0.get_mut(slice) {
            *ended += count;
        }
        count > 0
    }

    /// The slice is of no container any more.
    pub(crate) fn forget_kills(&mut self, cgroup: Option<&str>) {
        let Some(slice) = slice_of(cgroup) else { return };
        if !self.containers.values().any(|c| slice_of(c.spec.cgroup.as_deref()) == Some(slice)) {
            self.kills.0.remove(slice);
        }
    }

    /// Cgroups of the containers that run in it.
    fn living(&self, slice: &str) -> impl Iterator<Item = &str> {
        let running = self.containers.values().filter(|c| matches!(c.state, State::Running(_)));
        let cgroups = running.filter_map(|c| c.spec.cgroup.as_deref());
        cgroups.filter(move |cgroup| slice_of(Some(cgroup)) == Some(slice))
    }
}

/// The slice around a scope; `None` for a cgroup that only the monitor removes.
fn slice_of(cgroup: Option<&str>) -> Option<&str> {
    let (slice, scope) = cgroup?.rsplit_once('/')?;
    scope.ends_with(SCOPE_END).then_some(slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scopes_lie_in_slices() {
        assert_eq!(slice_of(Some("/a.slice/a-b.slice/x-1.scope")), Some("/a.slice/a-b.slice"));
        assert_eq!(slice_of(Some("/sampan/burstable/pod1/c")), None);
        assert_eq!(slice_of(None), None);
    }
}
