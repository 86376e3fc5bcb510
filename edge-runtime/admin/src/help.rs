//! Help texts, of the verbs in their groups. Pure.

use std::ffi::OsString;

use edge_runtime::cli::verb::{Operands, Shown};

use crate::groups::{GROUPS, examples};
use crate::verbs::shown;

/// Whether `--help` is among the words of a verb. Flags of a command in a container are its own.
pub(crate) fn is_asked(verb: &Shown, words: &[OsString]) -> bool {
    let own = if matches!(verb.operands, Operands::Command(_)) { 1 } else { words.len() };
    !verb.is_helper() && words.iter().take(own).any(|word| word == "--help" || word == "-h")
}

/// Text of `--help` without a verb.
pub(crate) fn all() -> String {
    let mut out = "Usage: edge-runtime VERB [FLAG]...\n\nA Kubernetes node for small boards.\n".to_owned();
    let verbs = shown();
    for (title, names) in GROUPS {
        out.push_str(&format!("\n{title}\n"));
        for verb in names.iter().filter_map(|name| verbs.iter().find(|verb| verb.name == *name)) {
            out.push_str(&format!("  {:<12} {}\n", verb.name, verb.about));
        }
    }
    out + "\nedge-runtime VERB --help shows flags and examples. Every verb takes --root DIR, which is / by default.\n\
        Exit codes: 0 success, 1 failure, 2 wrong usage; doctor: 3 warnings, 4 errors. Manual page: edge-runtime(8)"
}

/// Text of `VERB --help`.
pub(crate) fn of(verb: &Shown) -> String {
    let mut out = format!("Usage: edge-runtime {}\n\n{}\n\nFlags\n", verb.synopsis(), verb.about);
    for flag in verb.shown_flags() {
        let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
        let long = format!("--{} {}", flag.long, flag.value.unwrap_or_default());
        out.push_str(&format!("  {short}{:<24} {}\n", long.trim_end(), flag.about));
    }
    out.push_str("\nExamples\n");
    for (command, what) in examples(verb.name) {
        out.push_str(&format!("  {command}   # {what}\n"));
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Called by units and init scripts only: they have a help, but are in no list.
    const OF_SERVICES: &[&str] = &["first-boot", "shutdown"];

    #[test]
    fn every_verb_is_in_one_group_or_hidden() {
        for verb in shown() {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&verb.name)).count();
            assert_eq!(groups, usize::from(!OF_SERVICES.contains(&verb.name)), "{}", verb.name);
        }
        for name in GROUPS.iter().flat_map(|(_, names)| names.iter()) {
            assert!(shown().iter().any(|verb| verb.name == *name), "{name} is no verb");
        }
    }

    #[test]
    fn list_has_titles_and_no_verb_of_machines() {
        let shown = all();
        let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text:?} in {shown}"));
        assert!(at("\nStart\n  join ") < at("\nLook\n  status ") && at("\nWork\n  exec ") < at("\nService\n  run "));
        for hidden in ["shutdown", "first-boot", "as-container", "print-config"] {
            assert!(!shown.contains(&format!("\n  {hidden} ")), "{hidden}: {shown}");
        }
        assert!(shown.lines().all(|line| line.chars().count() <= 110), "{shown}");
    }

    #[test]
    fn examples_of_every_verb_are_accepted_by_its_parser() {
        for verb in shown() {
            let all: Vec<(String, &str)> = examples(verb.name).collect();
            assert!(!all.is_empty(), "{} has no example", verb.name);
            for (command, what) in all {
                let words: Vec<&str> = command.split(' ').collect();
                assert!(words[..2] == ["edge-runtime", verb.name] && !what.is_empty(), "{command}");
                verb.parse(lexopt::Parser::from_args(&words[2..]))
                    .unwrap_or_else(|error| panic!("{command}: {error:?}"));
            }
        }
    }

    #[test]
    fn help_of_a_verb_shows_the_flags_of_people() {
        let pull = shown().into_iter().find(|verb| verb.name == "pull").unwrap();
        let help = of(&pull);
        assert!(help.starts_with("Usage: edge-runtime pull [FLAG]... IMAGE\n"), "{help}");
        assert!(help.contains("\n      --auth FILE ") && help.contains("\nExamples\n  edge-runtime pull "), "{help}");
        assert!(!help.contains("--helper"), "only the daemon gives it: {help}");
        let exec = shown().into_iter().find(|verb| verb.name == "exec").unwrap();
        let asked = |words: &[&str]| is_asked(&exec, &words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(asked(&["--help"]) && !asked(&["web", "--", "ls", "--help"]));
    }
}
