//! `edge-runtime logs`: what one container printed, or all of a pod, read from log files; the daemon need not run.

use std::io::{self, Write};
use std::time::Duration;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{CONTAINER, Flag, Given, NAMESPACE, Operands, Verb};
use edge_runtime::logs::read::{Chunk, LogOptions, LogReader};
use edge_runtime::paths::Paths;
use jiff::Timestamp;
use sampan_duration::Typed;
use sampan_pod::id::container_id;
use sampan_pod::record::{ContainerKind, PodRecord};
use sampan_sys::time::within;

use crate::find::{self, stored_pods};
use crate::takes;

/// Bytes written at once.
const CHUNK: usize = 32 * 1024;
/// How often a follower looks whether the container still runs.
const LOOK: Duration = Duration::from_secs(1);

const ALL: Flag = Flag::switch("all-containers", "logs of all containers of the pod, one after the other");

pub(super) const VERB: Verb = Verb {
    name: "logs",
    about: "Print the log of a container",
    operands: Operands::One("POD"),
    flags: &[
        NAMESPACE,
        CONTAINER,
        ALL,
        Flag::switch("follow", "also print new lines as they come").short('f'),
        Flag::switch("previous", "log of the attempt before this one").short('p'),
        Flag::value("tail", "N", "only the last N lines"),
        Flag::value("since", "DURATION", "only lines newer than this, such as 5m"),
        Flag::switch("timestamps", "print the time of each line"),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    if given.has(ALL.long) {
        let used = [NAMESPACE.long, ALL.long, "previous", "tail", "since", "timestamps"];
        takes::only(&given, VERB.flags, "logs --all-containers", &used)?;
        return all(&given, &given.paths()?);
    }
    let paths = given.paths()?;
    let (pod, name) = find::container(&given, &paths)?;
    let (mut reader, id) = open(&given, &paths, &pod, &name)?;
    show(&mut reader, &id, &paths, &pod, &name)
}

fn all(given: &Given, paths: &Paths) -> Result<(), CliError> {
    let pod = find::pod(given, paths)?;
    let shown = pod.containers.iter().filter(|(_, one)| one.kind != ContainerKind::Pause);
    each(shown.map(|(name, _)| name.as_str()), &mut io::stdout(), |name| {
        let (mut reader, id) = open(given, paths, &pod, name)?;
        show(&mut reader, &id, paths, &pod, name)
    })
}

/// Shows each log below a line with the name of its container, as tail(1) does. The others follow one that cannot be read.
///
/// # Errors
/// A log cannot be read, or the output cannot be written.
fn each<'a>(
    names: impl Iterator<Item = &'a str>,
    out: &mut impl Write,
    mut show: impl FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut failed = Vec::new();
    for name in names {
        if !write(out, format!("==> {name} <==\n").as_bytes())? {
            return Ok(());
        }
        match show(name) {
            Err(CliError::Failed(why)) => {
                writeln!(io::stderr(), "container {name}: {why}")?;
                failed.push(name);
            }
            done => done?,
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        names => Err(CliError::Failed(format!("cannot read the logs of {}", names.join(", ")))),
    }
}

/// Opens the log of a container. Returns the id of the attempt that printed it, too.
fn open(given: &Given, paths: &Paths, pod: &PodRecord, name: &str) -> Result<(LogReader, String), CliError> {
    let (options, previous) = (options(given)?, given.has("previous"));
    let container = &pod.containers[name];
    let directory = paths.pod_logs(&pod.namespace, &pod.name, &pod.uid).join(name);
    let attempt = match (previous, container.attempt) {
        // Waiting to be started again: what can be read is the attempt before.
        (false, current @ 1..) if !directory.join(format!("{current}.log")).exists() => current - 1,
        (false, current) => current,
        (true, 0) => return Err(CliError::Failed(format!("container {name} has not been restarted"))),
        (true, current) => current - 1,
    };
    let id = container_id(&pod.uid, name, attempt);
    let mut reader = LogReader::open(&directory, attempt, options)?;
    if container.state.live_id() != Some(id.as_str()) {
        reader.container_ended();
    }
    Ok((reader, id))
}

fn show(reader: &mut LogReader, id: &str, paths: &Paths, pod: &PodRecord, name: &str) -> Result<(), CliError> {
    let still_runs = || -> Result<bool, CliError> {
        let pods = stored_pods(paths)?;
        let container = pods.iter().find(|one| one.uid == pod.uid).and_then(|one| one.containers.get(name));
        Ok(container.is_some_and(|container| container.state.live_id() == Some(id)))
    };
    smol::block_on(print(reader, still_runs))
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
    fn log_that_cannot_be_read_fails_after_the_others() {
        let mut out = Vec::new();
        let show = |name: &str| match name {
            "b" => Err(CliError::Failed("gone".to_owned())),
            _ => Ok(()),
        };
        let done = each(["a", "b", "c"].into_iter(), &mut out, show);
        assert!(matches!(done, Err(CliError::Failed(why)) if why == "cannot read the logs of b"));
        assert_eq!(String::from_utf8(out).unwrap(), "==> a <==\n==> b <==\n==> c <==\n");
        assert!(each(["a"].into_iter(), &mut Vec::new(), show).is_ok());
    }

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
