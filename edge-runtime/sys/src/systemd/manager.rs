//! One connection to systemd: lets itself in, makes calls, waits for the jobs they start.
//!
//! Over `/run/systemd/private`, where root talks to systemd without a bus daemon. Its peer tells every connection of
//! every job's end unasked, so a connection lives as long as there is something to do and no longer.

use std::os::unix::net::UnixStream;
use std::path::Path;

use smol::Async;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use super::wire::{self, ERROR, Message, REPLY, Reader, SIGNAL, Writer};
use super::{BusError, Property};

/// Maximum length of a line of the authentication.
const LINE: usize = 1024;

const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";

pub(super) struct Manager {
    stream: Async<UnixStream>,
    serial: u32,
    inbox: Vec<u8>,
    /// Results of ended jobs, by object path. A job may end before its number arrives.
    ended: Vec<(String, String)>,
}

impl Manager {
    pub(super) async fn connect(path: &Path) -> Result<Self, BusError> {
        let failed = |source| BusError::Connect { path: path.to_path_buf(), source };
        let stream = Async::<UnixStream>::connect(path).await.map_err(failed)?;
        let mut manager = Self { stream, serial: 0, inbox: Vec::new(), ended: Vec::new() };
        let uid: String = nix::unistd::geteuid().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        manager.stream.write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes()).await?;
        let answer = manager.line().await?;
        if !answer.starts_with("OK ") {
            return Err(BusError::Denied(answer));
        }
        manager.stream.write_all(b"BEGIN\r\n").await?;
        Ok(manager)
    }

    async fn line(&mut self) -> Result<String, BusError> {
        loop {
            if let Some(end) = self.inbox.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.inbox.drain(..end + 2).take(end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.inbox.len() > LINE {
                return Err(BusError::Garbage("a line of its greeting has no end"));
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<(), BusError> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk).await? {
            0 => Err(BusError::Lost(std::io::ErrorKind::UnexpectedEof.into())),
            count => {
                self.inbox.extend_from_slice(&chunk[..count]);
                Ok(())
            }
        }
    }

    /// Starts `unit` with these properties; an existing one gets them.
    pub(super) async fn start(&mut self, unit: &str, properties: &[Property]) -> Result<(), BusError> {
        let mut body = Writer::default();
        body.text(unit);
        body.text("replace");
        body.properties(properties);
        body.no_units();
        match self.job(unit, "StartTransientUnit", "ssa(sv)a(sa(sv))", &body).await {
            Err(BusError::Refused { name, .. }) if name == UNIT_EXISTS => {
                // What only a new unit may be given stays as it is.
                let values: Vec<Property> = properties.iter().filter(|one| one.can_change()).cloned().collect();
                self.set(unit, &values).await?;
                self.job_on(unit, "StartUnit").await
            }
            other => other,
        }
    }

    /// Changes `unit` until the next boot.
    pub(super) async fn set(&mut self, unit: &str, properties: &[Property]) -> Result<(), BusError> {
        let mut body = Writer::default();
        body.text(unit);
        body.flag(true);
        body.properties(properties);
        self.call("SetUnitProperties", "sba(sv)", &body).await.map(drop)
    }

    /// Stops `unit` and all its processes; no error if it does not exist.
    pub(super) async fn stop(&mut self, unit: &str) -> Result<(), BusError> {
        match self.job_on(unit, "StopUnit").await {
            Err(BusError::Refused { name, .. }) if name == NO_SUCH_UNIT => Ok(()),
            other => other,
        }
    }

    async fn job_on(&mut self, unit: &str, member: &str) -> Result<(), BusError> {
        let mut body = Writer::default();
        body.text(unit);
        body.text("replace");
        self.job(unit, member, "ss", &body).await
    }

    /// A call that starts a job, and the job's end.
    async fn job(&mut self, unit: &str, member: &str, signature: &str, body: &Writer) -> Result<(), BusError> {
        self.ended.clear();
        let reply = self.call(member, signature, body).await?;
        let job = Reader::of(&reply).text()?;
        loop {
            let ended = self.ended.iter().find(|(ended, _)| ended == job);
            match ended.map(|(_, result)| result.as_str()) {
                Some("done") => return Ok(()),
                Some(result) => return Err(BusError::Job { unit: unit.to_owned(), result: result.to_owned() }),
                None => drop(self.next().await?),
            }
        }
    }

    async fn call(&mut self, member: &str, signature: &str, body: &Writer) -> Result<Message, BusError> {
        self.serial += 1;
        self.stream.write_all(&wire::call(self.serial, member, signature, body)).await?;
        loop {
            let message = self.next().await?;
            if message.reply_to != self.serial {
                continue;
            }
            match message.kind {
                REPLY => return Ok(message),
                ERROR => {
                    let has_text = message.signature.starts_with('s');
                    let text = if has_text { Reader::of(&message).text()?.to_owned() } else { String::new() };
                    return Err(BusError::Refused { name: message.error, message: text });
                }
                _ => {}
            }
        }
    }

    /// The next message; the end of a job is noted.
    async fn next(&mut self) -> Result<Message, BusError> {
        loop {
            if let Some(message) = wire::take(&mut self.inbox)? {
                if message.kind == SIGNAL && message.member == "JobRemoved" && message.signature == "uoss" {
                    let mut reader = Reader::of(&message);
                    let (_number, job, _unit) = (reader.u32()?, reader.text()?, reader.text()?);
                    self.ended.push((job.to_owned(), reader.text()?.to_owned()));
                }
                return Ok(message);
            }
            self.read().await?;
        }
    }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
