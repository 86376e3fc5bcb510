//! The verbs of the binary, one file each, and what they share: finding the verb, `--root`, errors
//! with exit codes, the log. Knows nothing of what a verb does.

mod as_container;
mod copy;
mod exec;
mod find;
mod images;
mod import;
mod inspect;
mod join;
mod logs;
mod look;
mod monitor;
mod own;
mod pause;
mod ps;
mod pull;
mod reset;
mod run;
mod selftest;
mod shutdown;
mod status;
mod sweep;
mod usage;
mod userns;
mod version;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::paths::Paths;
use crate::sys::oom;

const USAGE: &str = "usage: edge-runtime VERB [--root DIR] ...

  join --bridge URL --token TOKEN --node NAME   become a node of the bridge's cluster
       --token-file FILE                        the same with a token from a file, or - for standard input
  run                                           be the node: run its pods until told to stop
  status [--json]                               the node's link: last seen, epoch, queue, round trip
  ps [-a]                                       the node's pods and containers
  logs POD [-c NAME] [-f] [--tail N] [-p]       what a container printed
  exec POD [-c NAME] [-it] -- COMMAND           a command in a running container
  inspect POD                                   all that is known of a pod, as JSON
  images                                        images on this node
  import FILE [--reference NAME]                take in an OCI layout or docker archive
  pull IMAGE                                    fetch an image from its registry
  as-container BUNDLE PROGRAM [ARGUMENT]...     become a program that counts as the container's own when memory is gone;
                                                started by run
  copy                                          make the second copy of the store; started by run
  look                                          look at volumes that may not answer; started by run
  monitor                                       parent of the containers; started by run
  pause                                         first process of a shared pid namespace
  own                                           give a volume to a pod's group; started by run
  reset [--all]                                 end all containers, leave nothing on the host
  shutdown                                      the machine goes down: stop the pods in order, end the daemon
  sweep                                         delete what pods left; started by run
  usage                                         measure what pods hold; started by run
  userns                                        hold a pod's user namespace until it is pinned; started by run
  selftest --root DIR                           does this build work on this machine?
  version

Every verb takes --root DIR (default /): all state, sockets and logs are below it.";

/// Why a verb could not do its job.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{0}\n\n{USAGE}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    /// 2 when called wrongly, 1 when it failed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        }
    }

    /// Wraps any error as a failure of the verb.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<lexopt::Error> for CliError {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}

/// No file of a crash, which would hold keys and Secrets (core(5)), wherever the host sends such files. What this process
/// starts is not concerned: execve(2) sets it back.
fn keep_memory_here() {
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        log::warn!("a crash may write this process's memory to disk: {error}");
    }
}

/// Runs the verb that `args` (without the program's name) begins with.
///
/// # Errors
/// An unknown verb or flag, or the verb's own failure.
pub fn dispatch(args: impl Iterator<Item = OsString>) -> Result<ExitCode, CliError> {
    let mut args = args.peekable();
    let Some(verb) = args.next() else {
        return Err(CliError::Usage("a verb is missing".into()));
    };
    let parser = lexopt::Parser::from_args(args);
    // What becomes another program begins anew there, and of a pod's user namespace its mapped ids have to be written.
    if !matches!(verb.to_str(), Some("as-container" | "userns")) {
        keep_memory_here();
    }
    // Helpers that hold what others decide the size of.
    if matches!(verb.to_str(), Some("copy" | "import" | "look" | "own" | "pull" | "sweep" | "usage")) {
        oom::give_up_protection();
    }
    match verb.to_str() {
        Some("join") => join::run(parser),
        Some("run") => run::run(parser),
        Some("images") => images::run(parser),
        Some("import") => import::run(parser),
        Some("pull") => pull::run(parser),
        Some("ps") => ps::run(parser),
        Some("inspect") => inspect::run(parser),
        Some("reset") => reset::run(parser),
        Some("selftest") => selftest::run(parser),
        Some("exec") => exec::run(parser),
        Some("copy") => copy::run(parser),
        Some("as-container") => as_container::run(parser),
        Some("logs") => logs::run(parser),
        Some("look") => look::run(parser),
        Some("monitor") => monitor::run(parser),
        Some("pause") => pause::run(),
        Some("shutdown") => shutdown::run(parser),
        Some("status") => status::run(parser),
        Some("own") => own::run(parser),
        Some("sweep") => sweep::run(parser),
        Some("usage") => usage::run(parser),
        Some("userns") => userns::run(parser),
        Some("version" | "--version" | "-V") => version::run(),
        Some("help" | "--help" | "-h") => version::print(USAGE),
        _ => Err(CliError::Usage(format!("unknown verb {}", verb.to_string_lossy()))),
    }
}

/// The value of `--root`, made absolute.
///
/// # Errors
/// The current folder cannot be read.
pub fn paths(root: Option<PathBuf>) -> Result<Paths, CliError> {
    let root = root.unwrap_or_else(|| PathBuf::from("/"));
    let root = std::path::absolute(&root).map_err(|error| CliError::Failed(format!("{}: {error}", root.display())))?;
    Ok(Paths::new(&root))
}

/// The value of `--root` for a verb that takes nothing else.
fn lone_root(mut parser: lexopt::Parser) -> Result<Option<PathBuf>, CliError> {
    let mut root = None;
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("root") => root = Some(parser.value()?.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(root)
}

/// Starts the log on stderr at the level of `EDGE_RUNTIME_LOG` (error, warn, info, debug, trace; info if unset). Feature
/// `no-trace`, which binaries for boards have, leaves trace out.
pub fn start_log() {
    let level = std::env::var("EDGE_RUNTIME_LOG").ok().and_then(|level| level.parse().ok());
    let levels = simple_logger::SimpleLogger::new().with_level(level.unwrap_or(log::LevelFilter::Info));
    // Fails only when a logger is set already, which then stays.
    let _ = sampan_log::start(levels);
}

#[cfg(test)]
mod tests {
    use nix::sys::prctl::{get_dumpable, set_dumpable};

    use super::*;

    #[test]
    fn a_crash_writes_no_memory_to_disk() {
        set_dumpable(true).unwrap();
        // Fails at once, as all that have no argument they need: what came before is what counts.
        dispatch(["join".into()].into_iter()).unwrap_err();
        assert!(!get_dumpable().unwrap());
        set_dumpable(true).unwrap();
    }
}
