//! `edge-runtime logs`: what a container printed, read from its log file; the daemon need not run.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lexopt::prelude::*;
use smol::future::or;

use super::CliError;
use super::find::Wanted;
use super::ps::stored_pods;
use crate::logs::read::{Chunk, LogOptions, LogReader};
use crate::pod::id::container_id;
use crate::pod::record::ContainerRecord;

/// Bytes written at once.
const CHUNK: usize = 32 * 1024;
/// How often a follower looks whether the container still runs.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Args {
    root: Option<PathBuf>,
    namespace: Option<String>,
    pod: String,
    container: Option<String>,
    previous: bool,
    options: LogOptions,
}

/// `logs [NAMESPACE/]POD [-n NAMESPACE] [-c CONTAINER] [-f] [-p] [--tail N] [--since SECONDS] [--timestamps]`
pub(super) fn run(parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let args = parse(parser)?;
    let wanted = Wanted { namespace: args.namespace.as_deref(), pod: &args.pod, container: args.container.as_deref() };
    let (pod, name) = wanted.find(args.root.clone())?;
    let container = &pod.containers[&name];
    let directory = super::paths(args.root.clone())?.pod_logs(&pod.namespace, &pod.name, &pod.uid).join(&name);
    let attempt = match (args.previous, container.attempt) {
        // Waiting to be started again: what can be read is the attempt before.
        (false, current @ 1..) if !directory.join(format!("{current}.log")).exists() => current - 1,
        (false, current) => current,
        (true, 0) => return Err(CliError::Failed(format!("container {name} has not been restarted"))),
        (true, current) => current - 1,
    };
    let id = container_id(&pod.uid, &name, attempt);
    let options = args.options.clone();
    let mut reader = LogReader::open(&directory, attempt, options).map_err(CliError::failed)?;
    let runs = |record: Option<&ContainerRecord>| record.is_some_and(|r| r.state.live_id() == Some(id.as_str()));
    if !runs(Some(container)) {
        reader.container_ended();
    }
    let still_runs = || -> Result<bool, CliError> {
        let pods = stored_pods(args.root.clone())?;
        Ok(runs(pods.iter().find(|p| p.uid == pod.uid).and_then(|p| p.containers.get(&name))))
    };
    match smol::block_on(print(&mut reader, still_runs)) {
        // `logs | head` has seen enough.
        Err(Stop::Closed) | Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Stop::Error(e)) => Err(e),
    }
}

enum Stop {
    Closed,
    Error(CliError),
}

async fn print(reader: &mut LogReader, still_runs: impl Fn() -> Result<bool, CliError>) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let error = |e: crate::logs::read::LogError| Stop::Error(CliError::failed(e));
    loop {
        match reader.next_chunk(CHUNK).map_err(error)? {
            Chunk::Data(data) => out.write_all(&data).and_then(|()| out.flush()).map_err(|_| Stop::Closed)?,
            Chunk::End => return Ok(()),
            Chunk::Wait => {
                let late = async {
                    smol::Timer::after(LOOK).await;
                    None
                };
                match or(async { Some(reader.changed().await) }, late).await {
                    Some(changed) => changed.map_err(error)?,
                    None if still_runs().map_err(Stop::Error)? => {}
                    None => reader.container_ended(),
                }
            }
        }
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<Args, CliError> {
    let mut args = Args::default();
    let options = &mut args.options;
    while let Some(arg) = parser.next()? {
        match arg {
            Long("root") => args.root = Some(PathBuf::from(parser.value()?)),
            Short('n') | Long("namespace") => args.namespace = Some(parser.value()?.string()?),
            Short('c') | Long("container") => args.container = Some(parser.value()?.string()?),
            Short('p') | Long("previous") => args.previous = true,
            Short('f') | Long("follow") => options.follow = true,
            Long("timestamps") => options.timestamps = true,
            Long("tail") => options.tail_lines = Some(parser.value()?.parse()?),
            Long("since") => {
                let seconds: i64 = parser.value()?.parse()?;
                let since = Timestamp::now().checked_sub(SignedDuration::from_secs(seconds));
                options.since = Some(since.map_err(|e| CliError::Usage(format!("--since {seconds}: {e}")))?);
            }
            Value(pod) if args.pod.is_empty() => args.pod = pod.string()?,
            other => return Err(other.unexpected().into()),
        }
    }
    if args.pod.is_empty() {
        return Err(CliError::Usage("logs: a pod is missing".to_owned()));
    }
    Ok(args)
}
