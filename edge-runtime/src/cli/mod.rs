//! The verbs of the binary, one file each, and what they share: finding the verb, `--root`, errors
//! with exit codes, the log. Knows nothing of what a verb does.

mod admin;
mod dns;
mod helpers;
mod import;
mod monitor;
mod pull;
mod reset;
mod run;
mod selftest;
mod shutdown;
pub mod verb;
mod version;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::de::DeserializeOwned;
use verb::{Given, Shown, Verb};

use crate::sys::from_json::from_json;
use crate::sys::oom;
use crate::sys::words::verb_first;

use admin::PROGRAM as ADMIN;
pub use run::{Configured, config_file, configure};
pub use shutdown::is_free;

/// Most of what is read: a few pull secrets, the looks and questions of all pods.
const LONGEST: u64 = 4 << 20;

/// All verbs; helpers last.
pub const VERBS: &[Verb] = &[
    run::VERB,
    import::VERB,
    pull::VERB,
    shutdown::VERB,
    reset::VERB,
    selftest::VERB,
    version::VERB,
    helpers::AS_CONTAINER,
    helpers::COLLECT,
    helpers::COPY,
    dns::VERB,
    helpers::LOOK,
    monitor::VERB,
    helpers::OWN,
    helpers::PAUSE,
    helpers::SWEEP,
    helpers::USAGE,
    helpers::USERNS,
];

/// Names and flags of them, for a program that runs none of them.
pub const SHOWN: [Shown; VERBS.len()] = {
    let mut all = [VERBS[0].shown(); VERBS.len()];
    let mut at = 1;
    while at < VERBS.len() {
        all[at] = VERBS[at].shown();
        at += 1;
    }
    all
};

/// Why a verb could not do its job. No [`std::error::Error`], so that any of those can become one.
#[derive(Debug)]
pub enum CliError {
    /// It was called wrongly.
    Usage(String),
    Failed(String),
    /// What there is to say has been said: this is how the process ends.
    Exit(u8),
}

impl<E: std::error::Error> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// How the process ends, for either program of the node; a failure is said on standard error.
pub fn exit_code(done: Result<(), CliError>) -> ExitCode {
    let (why, code) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CliError::Exit(code)) => return code.into(),
        Err(CliError::Usage(why)) => (why, 2),
        Err(CliError::Failed(why)) => (with_hint(why, nix::unistd::geteuid().is_root()), 1),
    };
    // Nothing is left to do when even stderr is gone.
    let _ = writeln!(std::io::stderr(), "{}: {why}", program());
    ExitCode::from(code)
}

/// What this program was called as: `edge-runtime` also when it became `edge-admin` for a verb.
pub fn program() -> &'static str {
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name().is_some_and(|name| name == ADMIN) { ADMIN } else { "edge-runtime" }
}

/// How a shell shows the end by SIGPIPE.
const NO_READER: u8 = 128 + 13;

/// A line on standard output.
///
/// # Errors
/// Standard output cannot be written. A closed pipe, as after `head`, is not an error.
pub fn print(text: &str) -> Result<(), CliError> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(CliError::Exit(NO_READER)),
        done => Ok(done?),
    }
}

/// Adds what to do to an error about a file or process that only root may touch: nearly all of a node are.
fn with_hint(why: String, is_root: bool) -> String {
    let is_denied = ["Permission denied", "Operation not permitted"].iter().any(|words| why.contains(words));
    if is_denied && !is_root { why + "; this command needs root: put sudo before it" } else { why }
}

/// What a file holds, or standard input for `-`: other users of the machine can read a command line.
///
/// # Errors
/// It cannot be read.
pub fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let done = match file.as_os_str() == "-" {
        true => std::io::stdin().take(LONGEST).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)),
    };
    done.map_err(|error| CliError::Failed(format!("{}: {error}", file.display())))?;
    Ok(bytes)
}

/// What the daemon asks of a helper.
fn read_json<T: DeserializeOwned>() -> Result<T, CliError> {
    Ok(from_json(&read(Path::new("-"))?)?)
}

/// No file of a crash, which would hold keys and Secrets (core(5)), wherever the host sends such files. What this process
/// starts is not concerned: execve(2) sets it back.
fn keep_memory_here() {
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        log::warn!("a crash may write this process's memory to disk: {error}");
    }
}

/// What ps(1) and top(1) show: what the daemon starts from `/proc/self/exe` would be called `exe`. The kernel keeps 15
/// bytes.
fn name_process(verb: &Verb) {
    let name = if verb.name == "run" { "edge-runtime".to_owned() } else { format!("edge-{}", verb.name) };
    // A process without a fitting name works all the same.
    let _ = CString::new(name).map(|name| nix::sys::prctl::set_name(&name));
}

/// Runs the verb that `args` (without the program's name) begins with. `edge-admin` runs all others, and answers mistakes and
/// `--help` of these, too: it has all words of the help.
///
/// # Errors
/// The verb's own failure, or there is no `edge-admin`.
pub fn dispatch(args: impl Iterator<Item = OsString>) -> Result<(), CliError> {
    let args = verb_first(args.collect());
    let name = match args.first().and_then(|name| name.to_str()) {
        Some("--version" | "-V") => "version",
        name => name.unwrap_or_default(),
    };
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else { return Err(admin::run(&args)) };
    match parse(verb.shown(), &args[1..]) {
        Err(_) if !verb.is_helper() => Err(admin::run(&args)),
        given => perform(verb, given?),
    }
}

/// What `words` give to a verb, whose name they do not have.
///
/// # Errors
/// Same as [`Shown::parse`], with the command that shows the help.
pub fn parse(verb: Shown, words: &[OsString]) -> Result<Given, CliError> {
    verb.parse(lexopt::Parser::from_args(words)).map_err(|error| with_help(error, verb))
}

/// Runs a verb with what was given to it.
///
/// # Errors
/// The verb's own failure.
pub fn perform(verb: &Verb, given: Given) -> Result<(), CliError> {
    name_process(verb);
    // What becomes another program begins again there, and of a pod's user namespace its mapped ids have to be written.
    if !matches!(verb.name, "as-container" | "userns") {
        keep_memory_here();
    }
    // Helpers whose memory use others decide. Losing a walk or a pull is better than losing DNS, and the DNS server's
    // memory is bounded.
    match verb.name {
        "copy" | "import" | "look" | "own" | "pull" | "sweep" | "usage" => oom::go_first(),
        "dns" => oom::give_up_protection(),
        _ => {}
    }
    (verb.run)(given).map_err(|error| with_help(error, verb.shown()))
}

fn with_help(error: CliError, verb: Shown) -> CliError {
    match error {
        CliError::Usage(why) if verb.is_helper() => CliError::Usage(format!("{why}; see edge-runtime --help")),
        CliError::Usage(why) => CliError::Usage(format!("{why}; see edge-runtime {} --help", verb.name)),
        other => other,
    }
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
    fn command_without_root_says_so() {
        let denied = std::io::Error::from_raw_os_error(nix::libc::EACCES).to_string();
        assert!(with_hint(denied.clone(), false).contains("needs root: put sudo"), "{denied}");
        assert_eq!(with_hint(denied.clone(), true), denied);
        let forbidden = nix::errno::Errno::EPERM.to_string();
        assert!(with_hint(forbidden.clone(), false).contains("needs root"), "{forbidden}");
        assert_eq!(with_hint("no such pod".to_owned(), false), "no such pod");
    }

    #[test]
    fn a_token_or_login_comes_from_a_file_too() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("token");
        std::fs::write(&path, "smp1.abc\n").expect("written");
        assert_eq!(read(&path).expect("read"), b"smp1.abc\n");
        assert!(matches!(read(&folder.path().join("none")), Err(CliError::Failed(why)) if why.contains("none: ")));
    }

    #[test]
    fn a_crash_writes_no_memory_to_disk() {
        set_dumpable(true).unwrap();
        // Fails at once for want of --root: what came before is what counts.
        dispatch(["selftest".into()].into_iter()).unwrap_err();
        assert!(!get_dumpable().unwrap());
        set_dumpable(true).unwrap();
    }

    #[test]
    fn error_of_a_helper_names_a_help_that_exists() {
        let Err(CliError::Usage(why)) = dispatch(["collect".into()].into_iter()) else { panic!("HOW is missing") };
        assert!(why.ends_with("HOW is missing; see edge-runtime --help"), "{why}");
        let Err(CliError::Usage(why)) = dispatch(["selftest".into()].into_iter()) else { panic!("--root is missing") };
        assert!(why.ends_with("see edge-runtime selftest --help"), "{why}");
    }

    #[test]
    fn process_name_of_a_verb_is_short() {
        assert!(VERBS.iter().all(|verb| format!("edge-{}", verb.name).len() <= 17));
    }
}
