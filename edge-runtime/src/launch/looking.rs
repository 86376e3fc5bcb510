//! The daemon's side of checks at foreign paths. It runs a few helper processes, reuses them while there is work, and
//! has a deadline. It remembers paths that did not answer. Does not know the checks.

use std::cell::RefCell;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use smol::future::or;
use smol::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take};
use smol::lock::Semaphore;
use smol::process::{Child, ChildStdin, ChildStdout, Command};

use super::look::{Answer, Look};
use crate::sys::vec_map::VecMap;
use crate::volume::Owning;

/// Longest that all looks of one helper may take: a disk that has to spin up needs ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// Helpers that cannot even be killed, because their file system does not let go of them.
const MOST_STUCK: usize = 64;
/// Helpers that work at once and are kept until [`Looks::rest`]: one for each pod of a burst would take longer to start
/// than all the looks.
const MOST: usize = 2;
/// Longest wait for one of these: it may look at a file system that hangs.
const TURN: Duration = Duration::from_millis(500);
/// Maximum size of the answers of one helper for one pod or container.
const ANSWER_LIMIT: u64 = 256 * 1024;

/// Why a pod cannot have its foreign paths (yet).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    Failed(String),
    Own(Owning),
}

/// Has helpers look. Clones share what they know.
#[derive(Clone, Debug)]
pub struct Looks {
    /// Program and first arguments of the helper.
    helper: Rc<Vec<PathBuf>>,
    patience: Duration,
    /// Helpers that were killed and are still there, by the path that they look at. No second one is sent after them.
    stuck: Rc<RefCell<VecMap<PathBuf, Child>>>,
    /// Helpers that have answered all that they were asked.
    idle: Rc<RefCell<Vec<Helper>>>,
    turns: Rc<Semaphore>,
}

/// A helper process.
#[derive(Debug)]
struct Helper {
    child: Child,
    /// Takes a line of looks at a time.
    looks: ChildStdin,
    answers: BufReader<Take<ChildStdout>>,
}

impl Default for Looks {
    fn default() -> Self {
        let helper = Rc::new(vec!["/proc/self/exe".into(), "look".into()]);
        let turns = Rc::new(Semaphore::new(MOST));
        Self { helper, patience: PATIENCE, stuck: Rc::default(), idle: Rc::default(), turns }
    }
}

impl Looks {
    /// Does all of `looks` in their order.
    ///
    /// # Errors
    /// The first that fails, or does not answer in time.
    pub async fn all(&self, looks: Vec<Look>) -> Result<(), Trouble> {
        if looks.is_empty() {
            return Ok(());
        }
        let late = async {
            smol::Timer::after(TURN).await;
            None
        };
        let _turn = or(async { Some(self.turns.acquire().await) }, late).await;
        if let Some((look, problem)) = self.hopeless(&looks) {
            return Err(Trouble::Failed(look.failed(&problem)));
        }
        let helped =
            |error: &dyn std::fmt::Display| Trouble::Failed(format!("the helper that looks at volumes: {error}"));
        let mut input = serde_json::to_vec(&looks).map_err(|error| helped(&error))?;
        input.push(b'\n');
        loop {
            let kept = self.kept();
            let is_kept = kept.is_some();
            let mut helper = kept.map_or_else(|| self.spawn(), Ok).map_err(|error| helped(&error))?;
            let mut done = 0;
            let ended = or(async { Some(helper.ask(&input, looks.len(), &mut done).await) }, async {
                smol::Timer::after(self.patience).await;
                None
            });
            match ended.await {
                Some(Ok(answer)) => {
                    self.keep(helper);
                    return answer.map_or(Ok(()), Err);
                }
                // The helper has ended without finishing. Its work is repeated.
                Some(Err(_)) if is_kept => {}
                Some(Err(error)) => return Err(helped(&error)),
                None => {
                    let Some(look) = looks.get(done) else { return Err(helped(&"it does not answer")) };
                    kill(&helper.child);
                    self.remember(look.path(), helper.child);
                    return Err(Trouble::Failed(look.failed(&self.late(look.path()))));
                }
            }
        }
    }

    /// Ends the helpers without work.
    pub fn rest(&self) {
        self.idle.borrow_mut().clear();
    }

    fn kept(&self) -> Option<Helper> {
        let mut idle = self.idle.borrow_mut();
        idle.retain_mut(|helper| matches!(helper.child.try_status(), Ok(None)));
        idle.pop()
    }

    fn keep(&self, helper: Helper) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MOST {
            idle.push(helper);
        }
    }

    fn late(&self, path: &Path) -> String {
        let seconds = self.patience.as_secs();
        format!("{} did not answer within {seconds} s: is the file system behind it away?", path.display())
    }

    /// A look that would only wait beside an earlier one.
    fn hopeless<'a>(&self, looks: &'a [Look]) -> Option<(&'a Look, String)> {
        let mut stuck = self.stuck.borrow_mut();
        stuck.retain(|_, helper| matches!(helper.try_status(), Ok(None)));
        if stuck.len() >= MOST_STUCK {
            return looks.first().map(|look| (look, format!("{MOST_STUCK} paths of this node do not answer")));
        }
        let look = looks.iter().find(|look| stuck.contains_key(look.path()))?;
        Some((look, self.late(look.path())))
    }

    fn remember(&self, path: &Path, helper: Child) {
        self.stuck.borrow_mut().insert(path.to_path_buf(), helper);
    }

    fn spawn(&self) -> io::Result<Helper> {
        let (program, arguments) = self.helper.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = std::process::Command::new(program);
        command.arg0("edge-runtime").args(arguments).process_group(0);
        let mut command = Command::from(command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(looks), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Helper { child, looks, answers: BufReader::new(stdout.take(ANSWER_LIMIT)) })
    }
}

impl Helper {
    /// Has it execute `count` checks from the line `input`; increments `done` for each. `None` if all succeeded.
    async fn ask(&mut self, input: &[u8], count: usize, done: &mut usize) -> io::Result<Option<Trouble>> {
        self.answers.get_mut().set_limit(ANSWER_LIMIT);
        self.looks.write_all(input).await?;
        self.looks.flush().await?;
        while *done < count {
            let mut line = String::new();
            if self.answers.read_line(&mut line).await? == 0 {
                return Err(io::Error::other(self.child.status().await?.to_string()));
            }
            match serde_json::from_str(&line)? {
                Answer::Done => *done += 1,
                Answer::Failed(message) => return Ok(Some(Trouble::Failed(message))),
                Answer::Own(owning) => return Ok(Some(Trouble::Own(owning))),
            }
        }
        Ok(None)
    }
}

fn kill(child: &Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // It ends as soon as its file system permits.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::look;
    use nix::sys::signal::kill;

    fn looks(paths: &[&str]) -> Vec<Look> {
        let touch = |path: &&str| Look::Volume(look::Look::Touch { volume: "v".into(), path: path.into() });
        paths.iter().map(touch).collect()
    }

    fn with(script: &str) -> Looks {
        let helper = ["/bin/sh", "-c", script].map(PathBuf::from).to_vec();
        Looks { helper: Rc::new(helper), patience: Duration::from_millis(2500), ..Looks::default() }
    }

    fn said(looks: &Looks, paths: &[&str]) -> String {
        match smol::block_on(looks.all(self::looks(paths))) {
            Ok(()) => "fine".to_owned(),
            Err(Trouble::Failed(why)) => why,
            Err(Trouble::Own(owning)) => format!("{owning:?}"),
        }
    }

    #[test]
    fn answers_are_taken_in_their_order() {
        assert_eq!(said(&with("read looks; echo '\"Done\"'; echo '\"Done\"'"), &["/a", "/b"]), "fine");
        assert_eq!(said(&with("read looks; echo '\"Done\"'; echo '{\"Failed\":\"no\"}'"), &["/a", "/b"]), "no");
        assert!(said(&with("read looks; exit 3"), &["/a"]).contains("exit status: 3"));
        assert!(said(&with("read looks; echo nonsense"), &["/a"]).contains("the helper"));
        assert_eq!(said(&with("exit 3"), &[]), "fine", "nothing to look at");
    }

    #[test]
    fn helper_serves_pod_after_pod_until_rest() {
        let dir = tempfile::tempdir().unwrap();
        let started = dir.path().join("started");
        let helpers = || std::fs::read_to_string(&started).unwrap().lines().count();
        let looks = with(&format!(
            "echo >>{}; while read looks; do case $looks in *bad*) echo '{{\"Failed\":\"no\"}}';; *) echo '\"Done\"';; esac; done",
            started.display()
        ));
        assert_eq!([said(&looks, &["/a"]), said(&looks, &["/bad"]), said(&looks, &["/b"])], ["fine", "no", "fine"]);
        assert_eq!(helpers(), 1);
        looks.rest();
        assert_eq!((said(&looks, &["/a"]).as_str(), helpers()), ("fine", 2));
    }

    #[test]
    fn burst_of_pods_shares_few_helpers() {
        let dir = tempfile::tempdir().unwrap();
        let started = dir.path().join("started");
        let helpers = || std::fs::read_to_string(&started).unwrap().lines().count();
        let looks = with(&format!(
            "echo >>{}; while read looks; do case $looks in *hangs*) sleep 1.5;; esac; echo '\"Done\"'; done",
            started.display()
        ));
        let tasks = smol::LocalExecutor::new();
        let all = |path: &'static str| {
            let looks = looks.clone();
            tasks.spawn(async move { looks.all(self::looks(&[path])).await })
        };
        let pods: Vec<_> = (0..20).map(|_| all("/a")).collect();
        smol::block_on(tasks.run(async {
            for pod in pods {
                assert_eq!(pod.await, Ok(()));
            }
            assert!(helpers() <= MOST, "{}", helpers());
            let hang = [all("/hangs"), all("/hangs")];
            assert_eq!(all("/a").await, Ok(()));
            assert!(hang.iter().all(|task| !task.is_finished()), "it waits for no path that hangs");
            for task in hang {
                assert_eq!(task.await, Ok(()));
            }
        }));
    }

    #[test]
    fn kept_helper_that_has_ended_is_replaced() {
        let looks = with("read looks; echo '\"Done\"'");
        for _ in 0..3 {
            assert_eq!(said(&looks, &["/a"]), "fine");
        }
    }

    #[test]
    fn a_path_that_hangs_is_named_and_not_waited_for_twice() {
        let dir = tempfile::tempdir().unwrap();
        let (pid, started) = (dir.path().join("pid"), dir.path().join("started"));
        let script = format!(
            "read looks; echo >>{}; echo '\"Done\"'; sleep 1000 & echo $! >{}; wait",
            started.display(),
            pid.display()
        );
        let looks = with(&script);
        let why = said(&looks, &["/fine", "/dead"]);
        assert!(why.contains("\"v\" : /dead did not answer within 2 s"), "{why}");
        let sleeper = || -> i32 { std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap() };
        let killed = sleeper();
        let gone = |_| {
            std::thread::sleep(Duration::from_millis(10));
            !crate::sys::host::is_alive(killed)
        };
        assert!((0..200).any(gone), "killed with its family");

        // A process that cannot be killed, as in a hung file system.
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").kill_on_drop(true);
        looks.remember(Path::new("/dead"), sleep.spawn().unwrap());
        let before = std::fs::read_to_string(&started).unwrap();
        assert!(said(&looks, &["/fine", "/dead"]).contains("/dead did not answer"));
        assert_eq!(std::fs::read_to_string(&started).unwrap(), before, "no second helper");
        assert_eq!(said(&looks, &["/other"]), "fine", "others are tried");
        assert_ne!(std::fs::read_to_string(&started).unwrap(), before);
        // The last one's child outlives it.
        kill(Pid::from_raw(sleeper()), Signal::SIGKILL).unwrap();
    }
}
