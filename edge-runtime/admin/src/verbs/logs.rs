//! `edge-runtime logs`: what a container printed, read from its log file; the daemon need not run.

use std::io::{self, Write};
use std::time::Duration;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{CONTAINER, Flag, Given, NAMESPACE, Operands, Verb};
use edge_runtime::logs::read::{Chunk, LogOptions, LogReader};
use jiff::Timestamp;
use sampan_duration::Typed;
use sampan_pod::id::container_id;
use sampan_pod::record::ContainerRecord;
use sampan_sys::time::within;

use crate::find::{self, stored_pods};

/// Bytes written at once.
const CHUNK: usize = 32 * 1024;
/// How often a follower looks whether the container still runs.
const LOOK: Duration = Duration::from_secs(1);

pub(super) const VERB: Verb = Verb {
    name: "logs",
    about: "Print the log of a container",
    operands: Operands::One("POD"),
    flags: &[
        NAMESPACE,
        CONTAINER,
        Flag::switch("follow", "also print new lines as they come").short('f'),
        Flag::switch("previous", "log of the attempt before this one").short('p'),
        Flag::value("tail", "N", "only the last N lines"),
        Flag::value("since", "DURATION", "only lines newer than this, such as 5m"),
        Flag::switch("timestamps", "print the time of each line"),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let (options, previous, paths) = (options(&given)?, given.has("previous"), given.paths()?);
    let (pod, name) = find::container(&given, &paths)?;
    let container = &pod.containers[&name];
    let directory = paths.pod_logs(&pod.namespace, &pod.name, &pod.uid).join(&name);
    let attempt = match (previous, container.attempt) {
        // Waiting to be started again: what can be read is the attempt before.
        (false, current @ 1..) if !directory.join(format!("{current}.log")).exists() => current - 1,
        (false, current) => current,
        (true, 0) => return Err(CliError::Failed(format!("container {name} has not been restarted"))),
        (true, current) => current - 1,
    };
    let id = container_id(&pod.uid, &name, attempt);
    let mut reader = LogReader::open(&directory, attempt, options)?;
    let runs = |record: Option<&ContainerRecord>| record.is_some_and(|r| r.state.live_id() == Some(id.as_str()));
    if !runs(Some(container)) {
        reader.container_ended();
    }
    let still_runs = || -> Result<bool, CliError> {
        let pods = stored_pods(&paths)?;
        Ok(runs(pods.iter().find(|p| p.uid == pod.uid).and_then(|p| p.containers.get(&name))))
    };
    smol::block_on(print(&mut reader, still_runs))
}

async fn print(reader: &mut LogReader, still_runs: impl Fn() -> Result<bool, CliError>) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    loop {
        match reader.next_chunk(CHUNK)? {
            Chunk::Data(data) => {
                if !write(&mut out, &data)? {
                    return Ok(());
                }
            }
            Chunk::End => return Ok(()),
            Chunk::Wait => match within(LOOK, reader.changed()).await {
                Some(changed) => changed?,
                None if still_runs()? => {}
                None => reader.container_ended(),
            },
        }
    }
}

/// Whether there is a reader: `logs | head` has seen enough at some point.
///
/// # Errors
/// It cannot be written for another reason, such as a full disk.
fn write(out: &mut impl Write, data: &[u8]) -> Result<bool, CliError> {
    match out.write_all(data).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::Failed(format!("cannot write the log to standard output: {error}"))),
        Ok(()) => Ok(true),
    }
}

fn options(given: &Given) -> Result<LogOptions, CliError> {
    // Nothing is older than the oldest time there is.
    let since = |Typed(age): Typed| Timestamp::now().checked_sub(age).unwrap_or(Timestamp::MIN);
    Ok(LogOptions {
        follow: given.has("follow"),
        timestamps: given.has("timestamps"),
        tail_lines: given.one("tail")?,
        since: given.one::<Typed>("since")?.map(since),
        ..LogOptions::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_a_failure_and_closed_pipe_is_not() {
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert!(matches!(write(&mut full, b"x"), Err(CliError::Failed(why)) if why.contains("No space left")));
        let (reader, mut closed) = io::pipe().unwrap();
        drop(reader);
        assert!(!write(&mut closed, b"x").unwrap());
        assert!(write(&mut Vec::new(), b"x").unwrap());
    }
}
