//! `cloud-bridge --help` with its verbs in groups.

use std::fmt::Write;

use clap::Command;

/// Groups of verbs, in the order of the help. A build without the embedded API lacks some of these verbs.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Service", &["standalone", "serve", "csi-proxy"]),
    ("Nodes and people", &["token", "nodes", "page", "kubeconfig"]),
    ("Care", &["doctor", "backup", "restore", "authority"]),
    ("Shell", &["completion", "version"]),
];

/// Gives the command a help that lists its verbs in groups. Verbs and their flags stay as they are.
pub(super) fn grouped(command: Command) -> Command {
    // Tags of clap (`Command::help_template`).
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}{{after-help}}",
        list(&command)
    );
    command.help_template(template)
}

fn list(command: &Command) -> String {
    let mut out = String::new();
    for (title, verbs) in GROUPS {
        let _ = writeln!(out, "\n{title}:");
        for verb in verbs.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(out, "  {:<11} {about}", verb.get_name());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Arguments;

    #[test]
    fn every_verb_is_in_one_group() {
        for verb in Arguments::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let groups = GROUPS.iter().filter(|(_, verbs)| verbs.contains(&verb.get_name())).count();
            assert_eq!(groups, 1, "{}", verb.get_name());
        }
    }

    #[test]
    fn help_has_groups_then_flags_then_examples() {
        let help = grouped(Arguments::command()).render_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text:?} in {help}"));
        assert!(at("Usage: cloud-bridge") < at("\nService:\n") && at("\nService:\n") < at("\n  token "), "{help}");
        assert!(at("\n  token ") < at("\nCare:\n") && at("\nCare:\n") < at("\nOptions:\n"), "{help}");
        assert!(at("--log-level") < at("\nExamples:\n") && at("\nOptions:\n") < at("--log-level"), "{help}");
        assert!(!help.contains("{options}") && !help.contains("\n  man "), "{help}");
    }
}
