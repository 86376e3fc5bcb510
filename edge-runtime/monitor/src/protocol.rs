//! Requests, answers and events between the daemon and the monitor. Values only, no sockets.
//!
//! A monitor lives until the last container ends or the machine reboots, so a newer daemon must get on with an
//! older monitor: unknown fields are ignored, an unknown request is answered with an error, an unknown event is
//! skipped by the client. Fields may be added with `#[serde(default)]`; meanings never change.

use std::path::PathBuf;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bytes;
use crate::exit::ExitRecord;
use crate::logs::cri::Stream;
use sampan_sys::terminal::Size;

/// Raised when a request or event is added; sent in [`Request::Hello`] and its answer.
pub const VERSION: u32 = 3;

/// A request with the number that its answer will carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub seq: u64,
    #[serde(flatten)]
    pub request: Request,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// First on every connection. From then on the connection gets all events.
    Hello { version: u32 },
    /// Accepts the container into the start queue. The outcome comes as [`Event::Started`] or
    /// [`Event::StartFailed`]. Refused when the id is known.
    Start(Box<StartContainer>),
    /// Sends a signal to the container's first process. A queued container is removed from the queue and reported as
    /// [`Event::StartFailed`]; one that is being started gets the signal after its start.
    Kill { id: String, signal: i32 },
    /// Forgets an ended (or failed) container and cleans what the OCI runtime keeps of it, its cgroup included.
    /// Answered when that is done. Refused while it runs. Unknown ids succeed.
    Delete { id: String },
    /// The daemon has committed the exit: removes the exit record.
    Forget { id: String },
    /// Sends the container's output to this connection, as [`Event::Output`], until [`Event::OutputEnd`]. A connection
    /// that does not read for a while is dropped. Refused unless the container runs.
    Attach { id: String },
    /// Bytes for the terminal of a container that has one. The answer says how many were taken.
    Input {
        id: String,
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
    /// A new size of the container's terminal.
    Resize { id: String, size: Size },
    /// Ends the standard input of a container with [`StartContainer::stdin_once`].
    CloseStdin { id: String },
    /// Lists all containers the monitor knows, and exits whose record is not forgotten.
    List,
    /// Ends the monitor. Refused while any container is known.
    Shutdown,
}

/// Inputs for the start of one container whose bundle is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartContainer {
    pub id: String,
    /// Holds `config.json`; the monitor adds the pipes `stdout` and `stderr`, `pid`, `monitor.json`.
    pub bundle: PathBuf,
    /// Program of the OCI runtime: runc, crun, youki.
    pub runtime: PathBuf,
    /// `--root` of the OCI runtime.
    pub runtime_root: PathBuf,
    /// More global flags of the OCI runtime, before the subcommand.
    #[serde(default)]
    pub runtime_args: Vec<String>,
    /// Log file of this attempt, `.../CONTAINER/N.log`. Its folder is made if missing.
    pub log_path: PathBuf,
    /// Rotate when the log file has reached this size.
    #[serde(default = "default_log_max_bytes")]
    pub log_max_bytes: u64,
    /// Log files kept per attempt, the current one included.
    #[serde(default = "default_log_max_files")]
    pub log_max_files: u32,
    /// Most that is logged; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes_per_second: Option<u64>,
    /// The container's cgroup, absolute in each hierarchy: where out-of-memory kills are counted. One called `*.scope`
    /// is taken away by systemd as soon as it is empty.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// The container's standard input is the pipe `stdin`, else `/dev/null`.
    #[serde(default)]
    pub stdin: bool,
    /// The input (`stdin`) ends with [`Request::CloseStdin`]. Without this it never ends.
    #[serde(default)]
    pub stdin_once: bool,
    /// The spec has `process.terminal`: standard streams are a terminal, whose other end the monitor keeps.
    #[serde(default)]
    pub terminal: bool,
}

/// The kubelet's `containerLogMaxSize`.
pub fn default_log_max_bytes() -> u64 {
    10 * 1024 * 1024
}

/// The kubelet's `containerLogMaxFiles`.
pub fn default_log_max_files() -> u32 {
    5
}

/// What the monitor writes to a connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum FromMonitor {
    Answer(Answer),
    Event(Event),
}

/// Handwritten: a derive tries one variant after the other, with separate code for each type in them.
impl<'de> Deserialize<'de> for FromMonitor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let message = Value::deserialize(deserializer)?;
        let read = match message.get("event") {
            Some(_) => serde_json::from_value(message).map(Self::Event),
            None => serde_json::from_value(message).map(Self::Answer),
        };
        read.map_err(Error::custom)
    }
}

/// Answer to the call with the same number: an error, or what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub answer: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Version of the monitor, in the answer to [`Request::Hello`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Answer to [`Request::List`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<Vec<ContainerState>>,
    /// Answer to [`Request::Input`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The OCI runtime has started the container's first process. Times are RFC 3339 in UTC with nanoseconds.
    Started { id: String, pid: i32, started_at: String },
    /// The container's first process never ran, and nothing of it is left in the OCI runtime.
    StartFailed { id: String, message: String },
    /// The first process has ended; its exit record is on disk, its output in the log file.
    Exited(ExitRecord),
    /// Output of an attached container.
    Output {
        stream: Stream,
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
    /// The output of the attached container has ended.
    OutputEnd {},
    /// What containers write cannot be logged, and why; without a reason: it can again. Told when it changes, and behind
    /// [`Request::Hello`] while there is a reason.
    LogTrouble {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// One container as the monitor knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerState {
    pub id: String,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Phase {
    /// Queued, or being started by the OCI runtime.
    Starting,
    Running {
        pid: i32,
        started_at: String,
    },
    /// Ended; the record stays until forgotten.
    Exited(ExitRecord),
    /// Could not be started. Reported until the container is deleted.
    Failed {
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let record = ExitRecord { id: "a".into(), code: 1, ..ExitRecord::default() };
        let phases = [
            Phase::Starting,
            Phase::Running { pid: 7, started_at: "t".into() },
            Phase::Exited(record.clone()),
            Phase::Failed { message: "m".into() },
        ];
        let containers = phases.map(|phase| ContainerState { id: "a".into(), phase });
        let messages = [
            FromMonitor::Answer(Answer { answer: 3, containers: Some(containers.to_vec()), ..Answer::default() }),
            FromMonitor::Event(Event::Exited(record)),
            FromMonitor::Event(Event::StartFailed { id: "a".into(), message: "m".into() }),
            FromMonitor::Event(Event::Output { stream: Stream::Stderr, data: vec![0, 255] }),
            FromMonitor::Event(Event::OutputEnd {}),
            FromMonitor::Event(Event::LogTrouble { reason: Some("full".into()) }),
            FromMonitor::Event(Event::LogTrouble { reason: None }),
        ];
        for message in messages {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<FromMonitor>(&text).unwrap(), message, "{text}");
        }
        for wrong in [r#"{"event": "dance"}"#, r#"{"seq": 1}"#, "[]", "7"] {
            assert!(serde_json::from_str::<FromMonitor>(wrong).is_err(), "{wrong}");
        }
        let call = Call { seq: 1, request: Request::Start(Box::default()) };
        let text = serde_json::to_string(&call).unwrap();
        assert_eq!(serde_json::from_str::<Call>(&text).unwrap(), call, "{text}");
    }
}
