//! The standard streams of a container's own process: its output from now on, and its input.

use std::time::Duration;

use edge_protocol::channel::{OPENED, STDERR, STDOUT};
use edge_protocol::message::StreamRequest;
use k8s_openapi::api::core::v1::Container;
use serde_json::Value;
use smol::future::or;

use super::channels::{Channels, Incoming, Outgoing, Over, write};
use super::input::Input;
use super::{Asked, Streams, outcome, target};
use crate::monitor::attach::{self, Attachment};
use crate::monitor::client::MonitorClient;
use crate::paths::Paths;
use crate::pod::ephemeral;
use sampan_monitor::logs::cri::Stream;

/// First pause before bytes that a terminal did not take are offered again, and the longest.
const AGAIN: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// The requested streams that the container has.
struct Session {
    paths: Paths,
    monitor: MonitorClient,
    id: String,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    terminal: bool,
    /// The container's input ends with this session.
    once: bool,
}

/// Standard streams of a container, as its pod declares them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Declared {
    stdin: bool,
    terminal: bool,
    once: bool,
}

impl Declared {
    fn of(definition: Option<&Container>) -> Self {
        let Some(definition) = definition else { return Self::default() };
        let has = |field: Option<bool>| field.unwrap_or(false);
        let terminal = has(definition.tty);
        // As containerd: the input of a terminal is never ended (internal/cri/io/container_io.go).
        Self { stdin: has(definition.stdin), terminal, once: has(definition.stdin_once) && !terminal }
    }
}

impl Streams {
    pub(super) fn open_attach(&mut self, asked: &Asked<'_>) -> Result<(), String> {
        let (of, request) = (asked.of, asked.request);
        let StreamRequest::Attach { namespace, pod, uid, container, stdin, stdout, stderr, .. } = request else {
            return Err("no attach".into());
        };
        let entry = target::pod(of.cx, namespace, pod, uid)?;
        let id = target::running(entry, container)?;
        let declared = Declared::of(ephemeral::definition(&entry.pod, container).as_deref());
        let session = Session {
            paths: of.cx.paths.clone(),
            monitor: of.monitor.clone(),
            id: id.clone(),
            stdin: *stdin && declared.stdin,
            stdout: *stdout,
            stderr: *stderr,
            terminal: declared.terminal,
            once: declared.once,
        };
        self.serve(asked, &id, |wires| serve(Channels::new(wires), session));
        Ok(())
    }
}

async fn serve(channels: Channels, session: Session) {
    let Channels { to, mut from } = channels;
    let mut attachment = match Attachment::open(&session.paths, &session.id).await {
        Ok(attachment) => attachment,
        Err(error) => return to.end(Some(error.to_string())),
    };
    // Created first, since the client may vanish at any time: the input ends then, too.
    let ends_input = (session.stdin && session.once).then(|| EndsInput(&session));
    let output = async {
        to.send(OPENED, &[]).await?;
        show(&to, &session, &mut attachment).await
    };
    let done = or(output, feed(&mut from, &session)).await;
    drop(ends_input);
    to.conclude(done).await;
}

/// Ends the container's input when the session is over, however that comes.
struct EndsInput<'a>(&'a Session);

impl Drop for EndsInput<'_> {
    fn drop(&mut self) {
        self.0.monitor.close_stdin(&self.0.id);
    }
}

/// Until the container has ended.
async fn show(to: &Outgoing, session: &Session, attachment: &mut Attachment) -> Result<Value, Over> {
    loop {
        let (channel, wanted, data) = match attachment.next().await {
            Ok(Some((Stream::Stdout, data))) => (STDOUT, session.stdout, data),
            Ok(Some((Stream::Stderr, data))) => (STDERR, session.stderr, data),
            Ok(None) => return Ok(outcome::exited(0)),
            Err(error) => return Ok(outcome::failed(&format!("error attaching to container: {error}"))),
        };
        if wanted {
            to.send(channel, &data).await?;
        }
    }
}

/// Passes received input to the container. Ends the session when no more input can arrive.
async fn feed(from: &mut Incoming, session: &Session) -> Result<Value, Over> {
    let open = session.stdin && !session.terminal;
    let mut pipe = open.then(|| attach::open_stdin(&session.paths.bundle(&session.id)).ok()).flatten();
    loop {
        let record = from.next().await.map_err(|_| Over)?;
        match Input::of(&record) {
            Input::Bytes(data) if session.terminal && session.stdin => type_in(session, data).await,
            Input::Bytes(data) => write(&mut pipe, data).await,
            Input::End if session.stdin => {
                pipe = None;
                if session.once {
                    session.monitor.close_stdin(&session.id);
                } else {
                    // As containerd: without `stdinOnce` the end of the input is the end of the session.
                    return Ok(outcome::exited(0));
                }
            }
            Input::Size(size) => {
                if let Err(error) = session.monitor.resize(&session.id, size).await {
                    log::debug!("attach: {error}");
                }
            }
            Input::End | Input::Other => {}
        }
    }
}

async fn type_in(session: &Session, mut data: &[u8]) {
    let mut pause = AGAIN;
    while !data.is_empty() {
        match session.monitor.input(&session.id, data).await {
            Ok(0) => {
                smol::Timer::after(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
            Ok(taken) => (data, pause) = (data.get(taken..).unwrap_or_default(), AGAIN),
            // The end of the container, if that is why, comes with its output.
            Err(error) => return log::debug!("attach: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_of_a_terminal_does_not_end_with_a_session() {
        let of =
            |stdin, tty, stdin_once| Declared::of(Some(&Container { stdin, tty, stdin_once, ..Container::default() }));
        assert_eq!(of(Some(true), Some(true), Some(true)), Declared { stdin: true, terminal: true, once: false });
        assert_eq!(of(Some(true), None, Some(true)), Declared { stdin: true, terminal: false, once: true });
        assert_eq!(of(Some(true), Some(false), None), Declared { stdin: true, ..Declared::default() });
        assert_eq!(of(None, None, None), Declared::default());
        assert_eq!(Declared::of(None), Declared::default(), "the pod no longer has the container");
    }
}
