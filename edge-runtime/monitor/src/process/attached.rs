//! Attached clients of a container: they get its output and send its input.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::container::{Container, State};
use super::{Monitor, note};
use crate::logs::cri::Stream;
use sampan_sys::terminal::{self, Size};

/// How long a container waits for an attached client that reads nothing. (Other runtimes let it wait forever.)
const PATIENCE: Duration = Duration::from_secs(10);

impl Monitor {
    /// Copies output of the container to its log, and to attached clients.
    pub(crate) fn copy_output(&mut self, serial: u64, stream: Stream) {
        let Some(container) = self.containers.values_mut().find(|c| c.serial == serial) else { return };
        let Container { spec, output: Some(output), held_up, .. } = container else { return };
        let (clients, epoll) = (&mut self.clients, &self.epoll);
        let mut tap = |stream, bytes: &[u8]| clients.show(&spec.id, stream, bytes, epoll);
        if let Some(error) = output.copy(stream, &mut self.buffers, &mut tap) {
            note(&format!("log file {}: {error}", spec.log_path.display()));
        }
        let is_behind = self.clients.is_behind(&spec.id);
        if output.hung_up || is_behind {
            // Not watched any more, since it would be ready all the time.
            let _ = self.epoll.delete(&output.stdout);
            if let Some(pipe) = &output.stderr {
                let _ = self.epoll.delete(pipe);
            }
        }
        if is_behind && !output.hung_up {
            held_up.get_or_insert_with(Instant::now);
        }
    }

    /// Continues to read where attached clients have caught up, or were dropped. Returns whether any output still
    /// waits.
    pub(crate) fn look_at_held_up(&mut self) -> bool {
        let mut left = false;
        let mut free = Vec::new();
        for (id, container) in self.containers.iter_mut() {
            let Some(since) = container.held_up else { continue };
            if since.elapsed() > PATIENCE {
                self.clients.drop_behind(id);
            }
            if self.clients.is_behind(id) {
                left = true;
            } else {
                container.held_up = None;
                free.push(id.clone());
            }
        }
        for id in free {
            self.watch_output(&id);
        }
        left
    }

    pub(crate) fn attach(&mut self, client: u64, id: &str) -> Result<(), String> {
        let running = |container: &&Container| matches!(container.state, State::Running(_));
        match self.containers.get(id).filter(running).map(|container| container.output.is_some()) {
            Some(true) => {
                self.clients.attach(client, id);
                Ok(())
            }
            Some(false) => Err(format!("the output of container {id} was lost with a former monitor")),
            None => Err(format!("container {id} does not run")),
        }
    }

    /// Number of bytes that the container's terminal has taken; it buffers about a line without a reader.
    pub(crate) fn input(&mut self, id: &str, data: &[u8]) -> Result<usize, String> {
        match self.terminal(id)?.write(data) {
            Ok(taken) => Ok(taken),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(format!("terminal of container {id}: {e}")),
        }
    }

    pub(crate) fn resize(&mut self, id: &str, size: Size) -> Result<(), String> {
        terminal::resize(self.terminal(id)?, size).map_err(|e| format!("terminal of container {id}: {e}"))
    }

    fn terminal(&mut self, id: &str) -> Result<&mut std::fs::File, String> {
        let container = self.containers.get_mut(id).ok_or_else(|| format!("no container {id}"))?;
        let output = container.output.as_mut().filter(|_| container.spec.terminal);
        output.map(|output| &mut output.stdout).ok_or_else(|| format!("container {id} has no terminal"))
    }

    /// Closes the input: the container reads the rest. The pipe is deleted, so it cannot be opened again.
    pub(crate) fn close_stdin(&mut self, id: &str) -> Result<(), String> {
        let container = self.containers.get_mut(id).ok_or_else(|| format!("no container {id}"))?;
        if container.spec.stdin_once
            && let Some(output) = &mut container.output
        {
            let _ = std::fs::remove_file(container.spec.bundle.join("stdin"));
            output.stdin = None;
        }
        Ok(())
    }
}
