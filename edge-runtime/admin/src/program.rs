//! Runs another program, which is not trusted: it may hang, print endlessly, or leave children that hold its pipe.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum output in bytes; the rest is not read.
const LONGEST: u64 = 16 << 10;
/// Timeout for the end of a pipe after that of the program.
const DRAIN: Duration = Duration::from_secs(2);

/// How it ended, and what it printed on both streams together.
///
/// # Errors
/// It cannot be started, or has not ended in time: then it is killed.
pub(crate) fn said(mut command: Command, patience: Duration) -> io::Result<(ExitStatus, String)> {
    let (out, own) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(own.try_clone()?).stderr(own);
    let mut child = command.spawn()?;
    // With it the ends for writing go that this process has.
    drop(command);
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output before an error counts.
        let _ = out.take(LONGEST).read_to_end(&mut bytes);
        let _ = tell.send(bytes);
    });
    let until = Instant::now() + patience;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            None => {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::other(format!("has not ended after {} s", patience.as_secs())));
            }
        }
    };
    let bytes = told.recv_timeout(DRAIN).unwrap_or_default();
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> io::Result<(ExitStatus, String)> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        said(command, patience)
    }

    #[test]
    fn output_and_exit_of_any_program_are_returned() {
        let long = Duration::from_secs(20);
        let (status, text) = shell("echo a; echo b >&2; exit 3", long).unwrap();
        assert_eq!((status.code(), &*text), (Some(3), "a\nb\n"));
        let (_, text) = shell("head -c 100000 /dev/zero", long).unwrap();
        assert_eq!(text.len() as u64, LONGEST);
        let began = Instant::now();
        assert!(shell("sleep 600", Duration::from_millis(100)).unwrap_err().to_string().contains("not ended"));
        shell("sleep 30 & echo x", long).unwrap();
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}
