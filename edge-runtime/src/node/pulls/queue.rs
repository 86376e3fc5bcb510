//! Which image is fetched next, and which registries were silent a moment ago. Pure.

use std::time::Duration;

use crate::image::access::PodLogin;
use crate::pod::clock::Mono;
use crate::sys::vec_map::VecMap;

/// Time for which an unreachable registry is not asked about local images.
const SILENT: Duration = Duration::from_secs(60);
/// Silent registries that are remembered; more than a node's images come from.
const MOST_SILENT: usize = 64;
/// One pull runs at a time (the kubelet's `serializeImagePulls`). But a pull that takes longer than this, as from a
/// very slow registry, does not delay those of other registries.
const LONG: Duration = Duration::from_secs(120);
/// Pulls at once, whatever they take: each is a process.
const MOST: usize = 4;

/// Running work of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The registry is asked whether the image that is here is still the right one.
    Checked,
    Waiting,
    Fetched,
}

/// One image to fetch.
pub(super) struct Job<W> {
    pub(super) number: u64,
    /// Normalized.
    pub(super) name: String,
    pub(super) registry: String,
    /// The pods' pull secrets.
    pub(super) secrets: Vec<PodLogin>,
    pub(super) waiters: Vec<W>,
    pub(super) stage: Stage,
    pub(super) started: Mono,
}

/// All jobs, in the order in which they were asked for.
pub(super) struct Queue<W> {
    jobs: Vec<Job<W>>,
    last: u64,
    silent: VecMap<String, Mono>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { jobs: Vec::new(), last: 0, silent: VecMap::new() }
    }
}

impl<W> Queue<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The job for the same image and logins, if there is one.
    pub(super) fn same(&mut self, name: &str, secrets: &[PodLogin]) -> Option<&mut Job<W>> {
        self.jobs.iter_mut().find(|job| job.name == name && job.secrets == secrets)
    }

    /// Number of the new job.
    pub(super) fn add(&mut self, job: Job<W>) -> u64 {
        self.last += 1;
        self.jobs.push(Job { number: self.last, ..job });
        self.last
    }

    /// The next that may be fetched, which is under way from now on.
    pub(super) fn begin(&mut self, now: Mono) -> Option<&Job<W>> {
        let fetched = || self.jobs.iter().filter(|job| job.stage == Stage::Fetched);
        if fetched().count() >= MOST || fetched().any(|job| now.since(job.started) < LONG) {
            return None;
        }
        let busy = |registry: &str| fetched().any(|job| job.registry == registry);
        let at = self.jobs.iter().position(|job| job.stage == Stage::Waiting && !busy(&job.registry))?;
        let job = self.jobs.get_mut(at)?;
        (job.stage, job.started) = (Stage::Fetched, now);
        Some(job)
    }

    /// A job whose image here is not the right one any more, or not for these pods.
    pub(super) fn wait(&mut self, number: u64) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.number == number) {
            job.stage = Stage::Waiting;
        }
    }

    /// Takes a job out, if it is still there.
    pub(super) fn end(&mut self, number: u64) -> Option<Job<W>> {
        let at = self.jobs.iter().position(|job| job.number == number)?;
        Some(self.jobs.remove(at))
    }

    pub(super) fn get(&self, number: u64) -> Option<&Job<W>> {
        self.jobs.iter().find(|job| job.number == number)
    }

    /// Numbers of the jobs that take room on the disk.
    pub(super) fn fetched(&self) -> Vec<u64> {
        self.jobs.iter().filter(|job| job.stage == Stage::Fetched).map(|job| job.number).collect()
    }

    /// The registry answered a job of this stage, or did not. A check does not prolong a silence, during which it was
    /// not even asked.
    pub(super) fn heard(&mut self, registry: &str, stage: Stage, answered: bool, now: Mono) {
        if stage != Stage::Fetched && self.is_silent(registry, now) {
            return;
        }
        self.silent.retain(|_, until| now < *until);
        if answered {
            self.silent.remove(registry);
        } else if self.silent.len() < MOST_SILENT {
            self.silent.insert(registry.to_owned(), now.after(SILENT));
        }
    }

    pub(super) fn is_silent(&self, registry: &str, now: Mono) -> bool {
        self.silent.get(registry).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, registry: &str, stage: Stage) -> Job<()> {
        let (name, registry) = (name.to_owned(), registry.to_owned());
        Job { number: 0, name, registry, secrets: Vec::new(), waiters: Vec::new(), stage, started: Mono(0) }
    }

    #[test]
    fn one_at_a_time_but_for_those_that_take_long() {
        let mut queue = Queue::default();
        for (name, registry) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "z"), ("e", "v"), ("f", "w")] {
            queue.add(job(name, registry, Stage::Waiting));
        }
        queue.add(job("here", "x", Stage::Checked));
        let minutes = |n: u64| Mono(n * 60_000);
        let mut begin = |at| queue.begin(at).map(|job| job.name.clone());
        assert_eq!(begin(minutes(0)).as_deref(), Some("a"));
        assert_eq!(begin(minutes(1)), None);
        assert_eq!(begin(minutes(2)).as_deref(), Some("c"), "of another registry");
        assert_eq!(begin(minutes(3)), None);
        assert_eq!(begin(minutes(4)).as_deref(), Some("d"));
        assert_eq!(begin(minutes(6)).as_deref(), Some("e"));
        assert_eq!(begin(minutes(60)), None, "four processes are enough");
        let first = queue.same("a", &[]).unwrap().number;
        assert!(queue.end(first).is_some() && queue.end(first).is_none());
        assert_eq!(queue.begin(minutes(60)).map(|job| job.name.clone()).as_deref(), Some("b"));
        assert_eq!(queue.fetched().len(), 4);
    }

    #[test]
    fn a_silent_registry_is_remembered_for_a_minute() {
        let mut queue: Queue<()> = Queue::default();
        queue.heard("x", Stage::Fetched, false, Mono(0));
        assert!(queue.is_silent("x", Mono(59_000)) && !queue.is_silent("x", Mono(60_000)));
        assert!(!queue.is_silent("y", Mono(0)));
        queue.heard("x", Stage::Fetched, true, Mono(1000));
        assert!(!queue.is_silent("x", Mono(1000)));
        (0..1000).for_each(|n| queue.heard(&n.to_string(), Stage::Fetched, false, Mono(0)));
        assert_eq!(queue.silent.len(), MOST_SILENT);
        queue.heard("z", Stage::Fetched, false, Mono(70_000));
        assert!(queue.is_silent("z", Mono(70_000)));
    }

    #[test]
    fn check_during_a_silence_does_not_prolong_it() {
        let mut queue: Queue<()> = Queue::default();
        queue.heard("x", Stage::Checked, false, Mono(0));
        queue.heard("x", Stage::Checked, false, Mono(59_999));
        queue.heard("x", Stage::Checked, true, Mono(59_999));
        assert!(queue.is_silent("x", Mono(59_999)) && !queue.is_silent("x", Mono(60_000)));
        queue.heard("x", Stage::Checked, false, Mono(60_000));
        queue.heard("x", Stage::Fetched, false, Mono(60_001));
        assert!(queue.is_silent("x", Mono(120_000)), "a download has asked");
        queue.heard("x", Stage::Fetched, true, Mono(60_002));
        assert!(!queue.is_silent("x", Mono(60_002)));
    }

    #[test]
    fn image_that_was_checked_waits_for_its_turn() {
        let mut queue = Queue::default();
        assert!(queue.is_empty() && queue.begin(Mono(0)).is_none());
        let checked = queue.add(job("a", "x", Stage::Checked));
        let waiting = queue.add(job("b", "y", Stage::Waiting));
        assert_eq!(queue.begin(Mono(0)).map(|job| job.number), Some(waiting), "it needs no turn");
        queue.wait(checked);
        assert_eq!(queue.begin(Mono(0)).map(|job| job.number), None);
        assert!(queue.end(waiting).is_some());
        assert_eq!(queue.begin(Mono(5)).map(|job| (job.number, job.started)), Some((checked, Mono(5))));
        queue.wait(99);
        assert!(queue.end(99).is_none() && queue.get(99).is_none() && queue.get(checked).is_some());
        assert_eq!(queue.fetched(), [checked]);
    }

    #[test]
    fn long_pull_holds_up_its_own_registry_alone() {
        let mut queue = Queue::default();
        for (name, registry) in [("a", "x"), ("b", "x"), ("c", "y")] {
            queue.add(job(name, registry, Stage::Waiting));
        }
        queue.begin(Mono(0));
        assert!(queue.begin(Mono(119_999)).is_none());
        assert_eq!(queue.begin(Mono(120_000)).map(|job| job.name.clone()).as_deref(), Some("c"));
        assert!(queue.begin(Mono(600_000)).is_none(), "only the registry that is busy is left");
        let last = queue.fetched().len();
        assert_eq!(last, 2);
    }

    #[test]
    fn pods_with_other_logins_do_not_share_a_pull() {
        let login = |key: &str| PodLogin { key: key.into(), document: "{}".into() };
        let mut queue: Queue<()> = Queue::default();
        queue.add(Job { secrets: vec![login("a")], ..job("app", "x", Stage::Waiting) });
        assert!(queue.same("app", &[login("a")]).is_some());
        assert!(queue.same("app", &[]).is_none() && queue.same("app", &[login("b")]).is_none());
        assert!(queue.same("other", &[login("a")]).is_none());
    }
}
