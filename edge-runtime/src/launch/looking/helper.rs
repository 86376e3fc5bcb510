//! One helper process: gets a line of looks at a time, and answers each look with a line.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use smol::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take};
use smol::process::{Child, ChildStdin, ChildStdout, Command};

use super::Trouble;
use crate::launch::look::Answer;

/// Maximum size of the answers of one helper for one pod or container.
const ANSWER_LIMIT: u64 = 256 * 1024;

/// A helper process.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    looks: ChildStdin,
    answers: BufReader<Take<ChildStdout>>,
}

impl Helper {
    /// Starts the program with these arguments.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(words: &[PathBuf]) -> io::Result<Self> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = std::process::Command::new(program);
        command.arg0("edge-runtime").args(arguments).process_group(0);
        let mut command = Command::from(command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(looks), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Self { child, looks, answers: BufReader::new(stdout.take(ANSWER_LIMIT)) })
    }

    /// Has it execute `count` checks from the line `input`; increments `done` for each. `None` if all succeeded.
    ///
    /// # Errors
    /// It has ended, or does not answer as agreed.
    pub(super) async fn ask(&mut self, input: &[u8], count: usize, done: &mut usize) -> io::Result<Option<Trouble>> {
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

    pub(super) fn runs(&mut self) -> bool {
        matches!(self.child.try_status(), Ok(None))
    }

    /// Kills it with its children. It ends as soon as its file system permits; until then the returned process is there.
    pub(super) fn kill(self) -> Child {
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        self.child
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(script: &str) -> Helper {
        Helper::start(&["/bin/sh", "-c", script].map(PathBuf::from)).unwrap()
    }

    #[test]
    fn answers_are_counted_until_one_fails() {
        let script = "read looks; echo '\"Done\"'; echo '{\"Failed\":\"no\"}'; read looks; echo '\"Done\"'; read looks";
        let mut helper = with(script);
        let mut ask = |count| {
            let mut done = 0;
            let answer = smol::block_on(helper.ask(b"[]\n", count, &mut done)).unwrap();
            (answer, done)
        };
        assert_eq!(ask(2), (Some(Trouble::Failed("no".into())), 1));
        assert_eq!(ask(1), (None, 1));
        assert!(helper.runs());
        let mut killed = helper.kill();
        assert!(!smol::block_on(killed.status()).unwrap().success());
    }

    #[test]
    fn helper_that_says_too_much_is_an_error() {
        let mut helper = with("read looks; while :; do printf '          '; done");
        assert!(smol::block_on(helper.ask(b"[]\n", 1, &mut 0)).is_err());
    }

    #[test]
    fn program_that_is_not_there_does_not_start() {
        assert!(Helper::start(&[]).is_err() && Helper::start(&["/nonexistent".into()]).is_err());
    }
}
