//! A command in a running container. Its life is the stream's: when that ends, so do the command, its children and
//! its session.

use std::rc::Rc;

use edge_protocol::channel::{OPENED, STDERR, STDOUT};
use edge_protocol::message::StreamRequest;
use serde_json::Value;
use smol::future::{or, zip};

use super::channels::{Channels, Incoming, Outgoing, Over, write};
use super::input::Input;
use super::{Asked, outcome, target};
use crate::monitor::exec::ExecError;
use crate::monitor::exec::output::Output;
use crate::monitor::exec::session::{Session, Streams, Terminal, Wanted};

impl super::Streams {
    pub(super) fn open_exec(&mut self, asked: &Asked<'_>) -> Result<(), String> {
        let (of, request) = (asked.of, asked.request);
        let StreamRequest::Exec { namespace, pod, uid, container, command, stdin, stdout, stderr, tty } = request
        else {
            return Err("no exec".into());
        };
        let id = target::running(target::pod(of.cx, namespace, pod, uid)?, container)?;
        if command.is_empty() {
            return Err("you must specify at least one command for the container".into());
        }
        let wanted = Wanted { stdin: *stdin, stdout: *stdout, stderr: *stderr, tty: *tty };
        let runtime = of.runtimes.of_container(&id, &of.cx.paths);
        let (session, streams) = Session::start(&runtime, &id, command, wanted).map_err(|error| error.to_string())?;
        self.serve(asked, &id, |wires| serve(Channels::new(wires), session, streams));
        Ok(())
    }
}

async fn serve(channels: Channels, mut session: Session, streams: Streams) {
    let Channels { to, mut from } = channels;
    let Streams { stdin, stdout, stderr } = streams;
    let terminal = session.terminal();
    let output = async {
        to.send(OPENED, &[]).await?;
        let (out, err) = zip(copy(&to, STDOUT, stdout), copy(&to, STDERR, stderr)).await;
        out.and(err)
    };
    let work = async {
        let (moved, ended) = zip(output, session.ended()).await;
        moved.map(|()| ended)
    };
    let input = async {
        let Err(error) = feed(&mut from, stdin, &terminal).await;
        log::debug!("exec: {error}");
        Err(Over)
    };
    let status = match or(work, input).await {
        Ok(ended) => status(&to, ended).await,
        Err(Over) => Err(Over),
    };
    to.conclude(status).await;
}

async fn copy(to: &Outgoing, channel: u8, reader: Option<Output>) -> Result<(), Over> {
    match reader {
        Some(reader) => to.copy(channel, reader).await,
        None => Ok(()),
    }
}

async fn status(to: &Outgoing, ended: Result<i32, ExecError>) -> Result<Value, Over> {
    let (text, status) = outcome::of_exec(&ended);
    if let Some(text) = text {
        to.send(STDERR, text.as_bytes()).await?;
    }
    Ok(status)
}

/// Copies the client's input to the process, forever.
async fn feed(
    from: &mut Incoming,
    mut stdin: Option<smol::Async<std::fs::File>>,
    terminal: &Rc<Terminal>,
) -> std::io::Result<std::convert::Infallible> {
    loop {
        let record = from.next().await?;
        match Input::of(&record) {
            Input::Bytes(data) => write(&mut stdin, data).await,
            Input::End => stdin = None,
            Input::Size(size) => terminal.resize(size),
            Input::Other => {}
        }
    }
}
