//! Whether a verb that destroys something may go on: `--yes`, `--dry-run`, or a question on a terminal.

use std::io::{self, IsTerminal, Write};

use edge_runtime::cli::verb::{Flag, Given};
use edge_runtime::cli::{CliError, print};

pub(crate) const YES: Flag = Flag::switch("yes", "do not ask").short('y');
pub(crate) const DRY_RUN: Flag = Flag::switch("dry-run", "only print what would be done");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Go,
    Stop,
    Ask,
}

/// A script has no terminal and is not asked: what it calls, it means.
fn decide(is_yes: bool, is_dry_run: bool, is_terminal: bool) -> Decision {
    match (is_dry_run, is_yes || !is_terminal) {
        (true, _) => Decision::Stop,
        (false, true) => Decision::Go,
        (false, false) => Decision::Ask,
    }
}

fn agrees(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Whether [`may_go_on`] shows its plan.
pub(crate) fn shows_plan(given: &Given) -> bool {
    decide(given.has(YES.long), given.has(DRY_RUN.long), io::stdin().is_terminal()) != Decision::Go
}

/// Whether to do what `plan` describes, in whole lines. False for `--dry-run`, which only prints it.
///
/// # Errors
/// The answer is not yes, or cannot be read.
pub(crate) fn may_go_on(given: &Given, plan: &str) -> Result<bool, CliError> {
    match decide(given.has(YES.long), given.has(DRY_RUN.long), io::stdin().is_terminal()) {
        Decision::Go => return Ok(true),
        Decision::Stop => print(plan.trim_end())?,
        Decision::Ask => {
            write!(io::stderr(), "{plan}Continue? [y/N] ")?;
            let mut answer = String::new();
            io::stdin().read_line(&mut answer)?;
            if agrees(&answer) {
                return Ok(true);
            }
            return Err(CliError::Failed("not confirmed; nothing was changed".to_owned()));
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_without_yes_is_asked() {
        assert_eq!(decide(false, false, true), Decision::Ask);
        for (is_yes, is_terminal) in [(true, true), (true, false), (false, false)] {
            assert_eq!(decide(is_yes, false, is_terminal), Decision::Go);
            assert_eq!(decide(is_yes, true, is_terminal), Decision::Stop);
        }
        assert_eq!(decide(false, true, true), Decision::Stop);
    }

    #[test]
    fn anything_but_yes_is_no() {
        for answer in ["y\n", "Yes\n", " YES "] {
            assert!(agrees(answer), "{answer:?}");
        }
        for answer in ["", "\n", "n\n", "yess\n", "no\n"] {
            assert!(!agrees(answer), "{answer:?}");
        }
    }
}
