//! Help texts: groups of verbs, and examples of each. Pure.

use std::ffi::OsString;

use edge_runtime::cli::verb::{Operands, Shown};

use crate::verbs::shown;

/// Groups of verbs, in the order of `--help`.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["join", "upgrade", "confirm", "reset"]),
    ("Look", &["status", "ps", "describe", "inspect", "top", "events", "logs", "doctor", "page"]),
    ("Work", &["exec", "restart", "images", "pull", "import", "devices"]),
    ("Service", &["run", "config", "selftest", "completion", "version"]),
];

/// Examples of a verb: the words behind `edge-runtime`, and what they do.
type Examples = &'static [(&'static str, &'static str)];

const EXAMPLES: &[(&str, Examples)] = &[
    (
        "join",
        &[
            ("join -", "read the token from standard input: echo TOKEN | sudo edge-runtime join -"),
            ("join --token-file FILE --label site=north", "read it from a file, and set a label"),
        ],
    ),
    (
        "upgrade",
        &[
            ("upgrade edge-runtime_0.2.0_arm64.tar", "run another version on trial"),
            ("upgrade --back", "return to the version before"),
            ("upgrade --status -o json", "show the version in force"),
        ],
    ),
    ("confirm", &[("confirm", "approve the only job that waits"), ("confirm to-1-4", "approve this job")]),
    (
        "reset",
        &[
            ("reset", "end all containers and keep images, pods and identity"),
            ("reset --all", "uninstall: also delete images, volumes, logs and identity"),
            ("reset --all --dry-run", "print what would be deleted"),
        ],
    ),
    ("status", &[("status", "node, version, link and queue"), ("status -o json", "the same for scripts")]),
    (
        "ps",
        &[
            ("ps", "running containers"),
            ("ps --all -o wide", "ended ones too, with address and image"),
            ("ps -o name", "pods as NAMESPACE/NAME"),
        ],
    ),
    ("inspect", &[("inspect web", "the stored record"), ("inspect shop/web", "a pod of another namespace")]),
    ("describe", &[("describe web", "state, last end and events of a pod")]),
    ("restart", &[("restart web", "all containers of a pod"), ("restart shop/web -c app", "one container")]),
    (
        "config",
        &[
            ("config get", "the configuration with all defaults"),
            ("config get images.pinned", "one key"),
            ("config check new.yaml", "check a file before use"),
        ],
    ),
    ("top", &[("top", "refresh every 2 s; q ends"), ("top --once --sort memory", "print once")]),
    (
        "events",
        &[
            ("events --follow", "new events as they come"),
            ("events --for pod/web --tail 20", "the last events of a pod"),
        ],
    ),
    (
        "logs",
        &[
            ("logs web --tail 100 --follow", "the last lines, and new ones"),
            ("logs shop/web -c app --previous", "output of the attempt before this one"),
        ],
    ),
    (
        "doctor",
        &[
            ("doctor", "problems, and the commands that fix them"),
            ("doctor --bundle /tmp/report.tar.gz", "pack a report, with secrets redacted"),
        ],
    ),
    ("page", &[("page", "serve the page on a unix socket"), ("page --listen 127.0.0.1:8080", "on a port, too")]),
    ("exec", &[("exec web -- cat /etc/hosts", "run a command"), ("exec -it shop/web -c app -- sh", "open a shell")]),
    (
        "images",
        &[
            ("images", "list images"),
            ("images check", "read all layers"),
            ("images rm docker.io/library/nginx:1", "remove an image"),
            ("images prune --dry-run", "list images that no pod uses"),
        ],
    ),
    (
        "pull",
        &[
            ("pull docker.io/library/nginx:1", "fetch an image"),
            ("pull registry.example/app:2 --auth /root/.docker/config.json", "with a login"),
        ],
    ),
    (
        "import",
        &[
            ("import app.tar", "import the output of docker save"),
            ("import - --reference registry.example/app:2", "read standard input and set the name"),
        ],
    ),
    (
        "devices",
        &[
            ("devices", "all devices and their values"),
            ("devices set default/lamp power=on", "set a property from here"),
            ("devices history default/t1 temp", "former values"),
        ],
    ),
    ("run", &[("run", "what the service runs"), ("run --print-config", "print the configuration in force")]),
    ("selftest", &[("selftest --root /tmp/empty", "test this program on a new board")]),
    ("completion", &[("completion bash", "for /etc/bash_completion.d/edge-runtime")]),
    ("version", &[("version", "version, commit, Kubernetes API level"), ("version -o json", "for scripts")]),
    ("first-boot", &[("first-boot", "called by edge-runtime-firstboot.service")]),
    ("shutdown", &[("shutdown", "called when the machine shuts down")]),
];

/// Examples of a verb, as lines that can be typed with a comment.
pub(crate) fn examples(verb: &str) -> impl Iterator<Item = (String, &'static str)> + use<> {
    let of_verb = EXAMPLES.iter().find(|(name, _)| *name == verb).map(|(_, examples)| *examples).unwrap_or_default();
    of_verb.iter().map(|(words, what)| (format!("edge-runtime {words}"), *what))
}

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
