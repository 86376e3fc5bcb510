//! Requests of clients, and other events of the loop.

use std::time::Instant;

use nix::sys::epoll::EpollFlags;

use super::{CALM, Monitor, token};
use crate::logs::cri::Stream;
use crate::protocol::{Answer, Call, Request, VERSION};

impl Monitor {
    /// Handles an event of this token.
    pub(super) fn dispatch(&mut self, token: u64, flags: EpollFlags) {
        let (serial, kind) = token::split(token);
        match kind {
            token::Kind::Stdout => self.copy_output(serial, Stream::Stdout),
            token::Kind::Stderr => self.copy_output(serial, Stream::Stderr),
            token::Kind::Ended => self.adopted_ended(serial),
            token::Kind::Client => {
                if flags.contains(EpollFlags::EPOLLOUT) {
                    self.clients.writable(serial, &self.epoll);
                }
                for call in self.clients.read(serial) {
                    let answer = match call {
                        Ok(call) => self.obey(serial, call),
                        Err((seq, error)) => Some(Answer { answer: seq, error: Some(error), ..Answer::default() }),
                    };
                    if let Some(answer) = answer {
                        self.clients.send(serial, &answer, &self.epoll);
                    }
                }
            }
        }
    }

    /// Executes a request of a client; `None` if the answer comes later.
    fn obey(&mut self, client: u64, call: Call) -> Option<Answer> {
        // A daemon that only looks whether this process works touches next to nothing.
        if !matches!(call.request, Request::List) {
            self.trim_at = Some(Instant::now() + CALM);
        }
        let mut answer = Answer { answer: call.seq, ..Answer::default() };
        let done = match call.request {
            Request::Hello { .. } => {
                self.clients.greet(client);
                self.tell_log_trouble_to(client);
                answer.version = Some(VERSION);
                Ok(())
            }
            Request::Start(spec) => self.enqueue(*spec),
            Request::Kill { id, signal } => self.kill(client, &id, signal),
            Request::Delete { id } => match self.delete(&id, (client, call.seq)) {
                Ok(true) => Ok(()),
                Ok(false) => return None,
                Err(e) => Err(e),
            },
            Request::Forget { id } => self.forget(&id),
            Request::List => {
                answer.containers = Some(self.list());
                Ok(())
            }
            Request::Attach { id } => self.attach(client, &id),
            Request::Input { id, data } => self.input(&id, &data).map(|taken| answer.taken = Some(taken)),
            Request::Resize { id, size } => self.resize(&id, size),
            Request::CloseStdin { id } => self.close_stdin(&id),
            Request::Shutdown => self.shutdown(),
        };
        answer.error = done.err();
        Some(answer)
    }

    fn shutdown(&mut self) -> Result<(), String> {
        if !self.containers.is_empty() {
            return Err(format!("{} containers are known", self.containers.len()));
        }
        self.finished = true;
        Ok(())
    }
}
