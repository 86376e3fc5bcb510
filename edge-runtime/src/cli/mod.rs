//! The verbs of the binary, one file each: their table, and how one is found, parsed and run. Knows nothing of what a
//! verb does.

mod admin;
mod dns;
mod error;
mod helpers;
mod import;
mod monitor;
mod pull;
mod reset;
mod run;
mod selftest;
mod shutdown;
mod stdio;
pub mod verb;
mod version;

use std::ffi::{CString, OsString};

use verb::{Given, Shown, Verb};

use crate::sys::oom;
use crate::sys::words::verb_first;

pub use error::{CliError, exit_code, program};
pub use run::{Configured, config_file, configure};
pub use shutdown::is_free;
pub use stdio::{print, read, start_log};

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
/// The verb's own failure, or a missing `edge-admin`.
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

#[cfg(test)]
mod tests {
    use nix::sys::prctl::{get_dumpable, set_dumpable};

    use super::*;

    #[test]
    fn a_crash_writes_no_memory_to_disk() {
        set_dumpable(true).unwrap();
        // Fails at once without --root, but after the setting that is tested.
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
