//! The `edge-admin` program: the verbs for people, which no daemon needs, and the help of all verbs. `edge-runtime VERB`
//! becomes it for these.

mod ask;
mod columns;
mod completion;
mod config_text;
mod doctor;
mod elsewhere;
mod events;
mod find;
mod groups;
mod help;
mod holds;
mod join;
mod man;
mod order;
mod output;
mod page;
mod pods;
mod program;
mod progress;
mod takes;
mod top;
mod upgrade;
mod verbs;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

use edge_runtime::cli::{CliError, exit_code, parse, perform, print, program};
use sampan_sys::words::verb_first;

fn main() -> ExitCode {
    exit_code(dispatch(std::env::args_os().skip(1).collect()))
}

/// Runs the verb that `args` begins with, or prints a help.
///
/// # Errors
/// An unknown verb or flag, or the verb's own failure.
fn dispatch(args: Vec<OsString>) -> Result<(), CliError> {
    let args = verb_first(args);
    let see = |why: String| CliError::Usage(format!("{why}; see {} --help", program()));
    let Some((name, rest)) = args.split_first() else { return Err(see("a verb is missing".into())) };
    let word = rest.first().map(|word| word.to_str().unwrap_or_default());
    let (name, is_help) = match (name.to_str().unwrap_or_default(), word) {
        ("help" | "--help" | "-h", Some(verb)) if !verb.starts_with('-') => (verb, true),
        ("help" | "--help" | "-h", _) => return print(&help::all()),
        ("--version" | "-V", _) => ("version", false),
        (name, _) => (name, false),
    };
    let own = verbs::find_own(name);
    let Some(verb) = verbs::find(name) else {
        let advice = elsewhere::advice(name).map(|text| format!(": {text}")).unwrap_or_default();
        return Err(see(format!("unknown verb {name}{advice}")));
    };
    if is_help || help::is_asked(&verb, rest) {
        return print(&help::of(&verb));
    }
    let given = parse(verb, rest)?;
    match own {
        Some(verb) => perform(verb, given),
        None => Err(CliError::Failed(format!("{name} is a verb of edge-runtime: edge-runtime {name}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str]) -> String {
        match dispatch(words.iter().map(OsString::from).collect()) {
            Err(CliError::Usage(why)) => why,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn help_is_printed_for_verbs_of_both_programs() {
        for words in [
            &["--help"][..],
            &["help"],
            &["help", "run"],
            &["pull", "--help"],
            &["ps", "-h"],
            &["help", "logs"],
            &["--root", "/srv/n", "--help"],
            &["help", "--help"],
        ] {
            dispatch(words.iter().map(OsString::from).collect()).unwrap();
        }
    }

    #[test]
    fn wrong_usage_names_the_help_that_explains_it() {
        assert!(refused(&[]).contains("a verb is missing; see ") && refused(&[]).ends_with(" --help"));
        assert!(refused(&["dance"]).starts_with("unknown verb dance; see "));
        assert!(refused(&["stop", "web"]).starts_with("unknown verb stop: pods follow the API "));
        assert!(refused(&["token", "create", "pi-1"]).starts_with("unknown verb token: cloud-bridge has it, "));
        assert!(refused(&["help", "as-container"]).starts_with("unknown verb as-container"));
        assert!(refused(&["ps", "--bogus"]).ends_with("; see edge-runtime ps --help"));
        assert!(refused(&["run", "--bogus"]).ends_with("; see edge-runtime run --help"));
    }
}
