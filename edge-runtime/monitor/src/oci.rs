//! Files that an OCI runtime writes into a folder: its pid file and its log with the reason of a failure. For both
//! sides: the monitor starts containers, the daemon starts processes in them.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Maximum length of the message about a failed start.
const MESSAGE_CAP: usize = 2048;

/// Written by the runtime once the container runs.
pub fn pid_file(bundle: &Path) -> PathBuf {
    bundle.join("pid")
}

pub fn log_file(bundle: &Path) -> PathBuf {
    bundle.join("runtime.log")
}

/// The pid that the runtime has written; `None` before that.
///
/// # Errors
/// It is unknown: no descriptor or memory is left.
pub fn read_pid(bundle: &Path) -> io::Result<Option<i32>> {
    let text = sampan_sys::descriptors::unless_short(fs::read_to_string(pid_file(bundle)))?;
    Ok(text.and_then(|text| text.trim().parse().ok()))
}

/// Why a start failed: the last error of the runtime's log, else what it printed.
pub fn failure(bundle: &Path, printed: &str) -> String {
    let log = fs::read_to_string(log_file(bundle)).unwrap_or_default();
    let message = last_error(&log).unwrap_or_else(|| printed.to_owned());
    let message = if message.is_empty() { "the OCI runtime failed without a word".to_owned() } else { message };
    match message.char_indices().nth(MESSAGE_CAP) {
        Some((end, _)) => message[..end].to_owned(),
        None => message,
    }
}

/// Whether the runtime itself has logged an error in `folder`.
pub fn has_failed(folder: &Path) -> bool {
    fs::read_to_string(log_file(folder)).is_ok_and(|log| last_error(&log).is_some())
}

/// Finds the last error in the format of logrus, as written by runc and crun, or of youki's tracing, which appends a
/// stack.
fn last_error(log: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Line {
        level: String,
        #[serde(alias = "message")]
        msg: String,
    }
    let lines = log.lines().rev().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let errors = lines.filter(|l| ["error", "fatal"].iter().any(|level| l.level.eq_ignore_ascii_case(level)));
    let plain = |line: Line| line.msg.split("\n\nStack backtrace:").next().unwrap_or_default().trim().to_owned();
    errors.map(plain).find(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_error_of_the_log_is_returned() {
        let log = concat!(
            "{\"level\":\"warning\",\"msg\":\"x\",\"time\":\"t\"}\n",
            "{\"level\":\"error\",\"msg\":\"runc run failed: exec: \\\"no\\\": not found\\n\",\"time\":\"t\"}\n",
            "{\"level\":\"debug\",\"msg\":\"y\"}\nnoise\n",
        );
        assert_eq!(last_error(log).unwrap(), "runc run failed: exec: \"no\": not found");
        let log =
            "{\"level\":\"ERROR\",\"message\":\"not found\\n\\nStack backtrace:\\n   0: x\",\"target\":\"youki\"}\n";
        assert_eq!(last_error(log).unwrap(), "not found");
        assert_eq!(last_error(""), None);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(failure(dir.path(), "said"), "said");
        assert_eq!(failure(dir.path(), &"é".repeat(5000)).chars().count(), MESSAGE_CAP);
    }
}
