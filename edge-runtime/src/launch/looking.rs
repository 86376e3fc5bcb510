//! The daemon's side of checks at foreign paths. It runs a few helper processes, reuses them while there is work, and
//! has a deadline. It remembers paths that did not answer. Does not know the checks.

mod helper;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use smol::future::or;
use smol::lock::Semaphore;
use smol::process::Child;

use self::helper::Helper;
use super::look::Look;
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
            let mut helper = kept.map_or_else(|| Helper::start(&self.helper), Ok).map_err(|error| helped(&error))?;
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
                    self.remember(look.path(), helper.kill());
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
        idle.retain_mut(Helper::runs);
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
}

#[cfg(test)]
mod tests;
