//! `edge-runtime completion`: what a shell needs to complete this command, made from the tables of verbs of both programs.

use std::fmt::Write;

use edge_runtime::cli::verb::{Given, Operands, Shown, Verb};
use edge_runtime::cli::{CliError, print};

use crate::groups::GROUPS;
use crate::verbs;

pub(crate) const VERB: Verb = Verb {
    name: "completion",
    about: "Print the completion script of a shell",
    operands: Operands::One("bash|zsh|fish"),
    flags: &[],
    run,
};

/// Verbs in the order of `--help`, without those that only services call.
fn shown() -> Vec<Shown> {
    GROUPS.iter().flat_map(|(_, names)| names.iter()).filter_map(|name| verbs::find(name)).collect()
}

fn run(given: Given) -> Result<(), CliError> {
    let shown = shown();
    let script = match given.operand()?.as_str() {
        "bash" => bash(&shown),
        "zsh" => zsh(&shown),
        "fish" => fish(&shown),
        other => return Err(CliError::Usage(format!("completion knows bash, zsh and fish, not {other:?}"))),
    };
    print(script.trim_end())
}

/// What completes the first operand.
fn words(verb: &Shown) -> &'static str {
    match verb.operands {
        Operands::One(words) if words.contains('|') => words,
        _ => "",
    }
}

/// Files where nothing better is known (`-o default`).
fn bash(verbs: &[Shown]) -> String {
    let names: Vec<&str> = verbs.iter().map(|verb| verb.name).collect();
    let mut cases = String::new();
    for verb in verbs {
        let flags: Vec<String> = verb.shown_flags().map(|flag| format!("--{}", flag.long)).collect();
        let words = words(verb).replace('|', " ");
        let _ = writeln!(cases, "        {}) words='{} {words}' ;;", verb.name, flags.join(" "));
    }
    format!(
        "_edge_runtime() {{\n    local words='{}'\n    if [ \"$COMP_CWORD\" -gt 1 ]; then\n        words=\n        \
         case ${{COMP_WORDS[1]}} in\n{cases}        esac\n    fi\n    \
         mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\")\n}}\n\
         complete -o default -F _edge_runtime edge-runtime\n",
        names.join(" ")
    )
}

fn zsh(verbs: &[Shown]) -> String {
    let mut out = "#compdef edge-runtime\n_edge_runtime() {\n    local -a verbs\n    verbs=(\n".to_owned();
    for verb in verbs {
        let _ = writeln!(out, "        '{}:{}'", verb.name, verb.about);
    }
    out.push_str("    )\n    if (( CURRENT == 2 )); then\n        _describe verb verbs\n        return\n    fi\n");
    out.push_str("    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n");
    for verb in verbs {
        let _ = write!(out, "    {}) _arguments", verb.name);
        for flag in verb.shown_flags() {
            let value = flag.value.map(|name| format!(":{name}:_files")).unwrap_or_default();
            let _ = write!(out, " '*--{}[{}]{value}'", flag.long, flag.about);
            if let Some(short) = flag.short {
                let _ = write!(out, " '*-{short}[{}]{value}'", flag.about);
            }
        }
        match words(verb).replace('|', " ").as_str() {
            "" => out.push_str(" '*:file:_files' ;;\n"),
            words => {
                let _ = writeln!(out, " '1:word:({words})' ;;");
            }
        }
    }
    // The file of a folder of zsh's is the function itself, and is called for what it is to complete.
    out.push_str("    esac\n}\nif [ \"$funcstack[1]\" = _edge-runtime ]; then\n    _edge_runtime \"$@\"\nelse\n");
    out.push_str("    compdef _edge_runtime edge-runtime\nfi\n");
    out
}

fn fish(verbs: &[Shown]) -> String {
    let mut out = String::new();
    for verb in verbs {
        let name = verb.name;
        let _ = writeln!(out, "complete -c edge-runtime -f -n __fish_use_subcommand -a {name} -d '{}'", verb.about);
        let within = format!("complete -c edge-runtime -n '__fish_seen_subcommand_from {name}'");
        for flag in verb.shown_flags() {
            let short = flag.short.map(|short| format!(" -s {short}")).unwrap_or_default();
            let value = if flag.value.is_some() { " -r" } else { "" };
            let _ = writeln!(out, "{within} -l {}{short}{value} -d '{}'", flag.long, flag.about);
        }
        if !words(verb).is_empty() {
            let _ = writeln!(out, "{within} -f -a '{}'", words(verb).replace('|', " "));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What bash proposes for this line, whose last word is started.
    fn proposed(line: &[&str]) -> String {
        let ask = format!(
            "{}\nCOMP_WORDS=({}); COMP_CWORD={}; _edge_runtime; echo \"${{COMPREPLY[*]}}\"",
            bash(&shown()),
            line.join(" "),
            line.len() - 1
        );
        let done = Command::new("bash").args(["-c", &ask]).output().unwrap();
        assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn bash_completes_verbs_and_flags_but_no_helpers() {
        assert_eq!(proposed(&["edge-runtime", "im"]), "images import");
        assert_eq!(proposed(&["edge-runtime", "doc"]), "doctor");
        assert_eq!(proposed(&["edge-runtime", "doctor", "--b"]), "--bundle");
        for hidden in ["mon", "shut", "first"] {
            assert_eq!(proposed(&["edge-runtime", hidden]), "");
        }
        assert_eq!(proposed(&["edge-runtime", "logs", "--t"]), "--tail --timestamps");
        assert_eq!(proposed(&["edge-runtime", "completion", "z"]), "zsh");
    }

    /// Quotes, and what `_arguments` and `_describe` of zsh take for their own, would need escapes.
    #[test]
    fn no_text_needs_an_escape() {
        for verb in shown() {
            for text in verb.shown_flags().map(|flag| flag.about).chain([verb.about]) {
                assert!(!text.is_empty() && !text.contains(['\'', '"', '[', ']', ':', '\\', '$', '`']), "{text}");
            }
        }
        let all = [bash(&shown()), zsh(&shown()), fish(&shown())];
        assert!(all.iter().all(|script| script.contains("token-file") && !script.contains("as-container")));
    }
}
