//! The helper as a process: started, asked, ended. Whatever it does, a question has an answer within a deadline.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use sampan_cel::frame::{self, ANSWER_MAX};
use sampan_cel::helper::NOTE;
use sampan_cel::question::Answer;

/// The helper limits its own CPU time; on a busy machine that takes longer, and a stopped helper never answers.
const DEADLINE: Duration = Duration::from_secs(25);
/// Time for a process to end after it was told to.
const END: Duration = Duration::from_secs(5);
/// How often is looked whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// Reason why the helper gave no answer.
pub(super) enum Fate {
    /// The rule exceeded its limit: which limit, and the current rule.
    Rule(String, String),
    /// Same as `Rule`, but memory that earlier questions left may have contributed.
    Memory(String, String),
    /// The kernel or a person has killed it while it was at work.
    Killed,
    /// The question is larger than the maximum.
    TooLarge,
    /// It ran out of time; whether the rule or the machine is slow is unknown.
    Slow(String),
    /// Something else ended the helper.
    Other(String),
}

/// A running helper.
pub(super) struct Process {
    child: Child,
    stream: UnixStream,
    note: File,
}

impl Process {
    pub(super) fn start(command: &[OsString]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let name = CString::new("rule under way")?;
        let note = File::from(memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC)?);
        let (ours, its) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let its = OwnedFd::from(its);
        let child = Command::new(program)
            .arg0("cloud-bridge")
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(its.try_clone()?)
            .stdout(its)
            .stderr(note.try_clone()?)
            .spawn()?;
        Ok(Self { child, stream: UnixStream::from_std(ours)?, note })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends one question. After an error the process is unusable.
    /// `seconds` is the CPU time limit of the helper for it.
    pub(super) async fn ask(&mut self, question: &[u8], seconds: u64) -> Result<Answer, Fate> {
        match timeout(DEADLINE, self.exchange(question)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.fate(seconds, &error).await),
            Err(_) => {
                let why = format!("the validation rules were not judged within {} s", DEADLINE.as_secs());
                log::warn!("{why}; under way: {}", self.note().replace('\n', ": "));
                Err(Fate::Slow(format!("{why}; try again later")))
            }
        }
    }

    async fn exchange(&mut self, question: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(question).await?;
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).await?;
        let mut body = vec![0; frame::length(head, ANSWER_MAX)?];
        self.stream.read_exact(&mut body).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    async fn fate(&mut self, seconds: u64, error: &io::Error) -> Fate {
        let Some(status) = self.ended().await else {
            return Fate::Other(format!("does not answer: {error}"));
        };
        let note = self.note();
        let fate = how(status, seconds, note);
        if let Fate::Rule(how, note) | Fate::Memory(how, note) = &fate {
            log::warn!("a validation rule {how}: {}", note.replace('\n', ": "));
        }
        fate
    }

    /// Which rule is under way.
    fn note(&self) -> String {
        let mut bytes = vec![0; NOTE];
        let length = self.note.read_at(&mut bytes, 0).unwrap_or(0);
        bytes.truncate(length);
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }

    /// How it ended, as soon as it has.
    async fn ended(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + END;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => tokio::time::sleep(LOOK).await,
                _ => return None,
            }
        }
    }

    pub(super) async fn end(mut self) {
        self.kill();
        if self.ended().await.is_none() {
            log::warn!("the helper for validation rules (process {}) does not end", self.id());
        }
    }

    fn kill(&mut self) {
        if let Err(error) = self.child.kill() {
            log::warn!("the helper for validation rules (process {}) cannot be ended: {error}", self.id());
        }
    }
}

impl Drop for Process {
    /// The server ends, and with it the helper, which has no state to save.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

/// The reason why the helper ended; `note` names the current rule, if any.
fn how(status: ExitStatus, seconds: u64, note: String) -> Fate {
    match status.signal().map(Signal::try_from) {
        Some(Ok(Signal::SIGXCPU)) => Fate::Rule(format!("took more than {seconds} s of processor time"), note),
        Some(Ok(Signal::SIGABRT | Signal::SIGSEGV | Signal::SIGBUS)) => {
            Fate::Memory("needed more memory than it may have, or is too deeply nested".to_owned(), note)
        }
        Some(Ok(Signal::SIGKILL)) if !note.trim().is_empty() => Fate::Killed,
        // A mistake in a library, or a pipe that broke.
        None if status.code() == Some(101) => Fate::Rule("cannot be run by this server".to_owned(), note),
        _ => Fate::Other(format!("ended ({status})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_is_killed_at_rest_was_killed_by_no_rule() {
        let fate = |raw: i32, note: &str| how(ExitStatus::from_raw(raw), 2, note.to_owned());
        assert!(matches!(fate(9, "\n"), Fate::Other(_)));
        assert!(matches!(fate(9, ""), Fate::Other(_)));
        assert!(matches!(fate(9, "the question\n"), Fate::Killed));
        assert!(matches!(fate(6, "\n"), Fate::Memory(..)));
        assert!(matches!(fate(24, "place\nrule"), Fate::Rule(..)));
        assert!(matches!(fate(101 << 8, "place\nrule"), Fate::Rule(..)));
        assert!(matches!(fate(0, ""), Fate::Other(_)));
    }
}
