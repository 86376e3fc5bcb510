//! The daemon's program, which does the work of verbs that both programs have: this one asks and prints.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, ROOT};
use sampan_launcher::versions::DAEMON;

/// `edge-runtime VERB` of the version of this program, with `words`, these flags as they were given, and the operands.
pub(crate) fn command(verb: &str, words: &[&str], given: &Given, flags: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default().with_file_name(DAEMON));
    command.arg(verb).args(words);
    for flag in flags.iter().copied().chain([ROOT.long]) {
        for value in given.values(flag) {
            command.arg(format!("--{flag}"));
            // A switch has no value.
            if value.as_os_str() != OsStr::new("") {
                command.arg(value);
            }
        }
    }
    if !given.operands.is_empty() {
        // No flags, whatever they begin with.
        command.arg("--").args(&given.operands);
    }
    command
}

/// Becomes that program; returns only if it cannot.
pub(crate) fn become_it(mut command: Command) -> CliError {
    let error = command.exec();
    CliError::Failed(format!("{}: {error}", command.get_program().display()))
}

#[cfg(test)]
mod tests {
    use edge_runtime::cli::verb::{Flag, Operands, Verb};

    use super::*;

    const VERB: Verb = Verb {
        name: "pull",
        about: "x",
        operands: Operands::One("IMAGE"),
        flags: &[Flag::value("auth", "FILE", "x"), Flag::switch("all", "x"), Flag::switch("dry-run", "x")],
        run: |_| Ok(()),
    };

    #[test]
    fn work_is_asked_with_the_flags_that_the_daemon_knows() {
        let words = ["--dry-run", "--all", "--auth", "f", "--root", "/r", "--", "-x"];
        let given = VERB.parse(lexopt::Parser::from_args(words)).unwrap();
        let command = command("pull", &["--yes"], &given, &["all", "auth"]);
        let words: Vec<&OsStr> = command.get_args().collect();
        assert_eq!(words, ["pull", "--yes", "--all", "--auth", "f", "--root", "/r", "--", "-x"]);
        assert!(command.get_program().to_string_lossy().ends_with("/edge-runtime"));
    }
}
