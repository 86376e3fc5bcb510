//! What a shell needs to complete this command, made from the tables of verbs of both programs. Verbs and flags are in
//! the script; it asks `edge-runtime complete` for names of pods, containers and images. Pure.

pub(crate) mod line;

use std::fmt::Write;

use edge_runtime::cli::verb::{CONTAINER, Flag, NAMESPACE, Operands, Shown};

/// Script of a shell for these verbs; `None` for an unknown shell.
pub(crate) fn script(shell: &str, verbs: &[Shown]) -> Option<String> {
    match shell {
        "bash" => Some(bash(verbs)),
        "zsh" => Some(zsh(verbs)),
        "fish" => Some(fish(verbs)),
        _ => None,
    }
}

/// Files where nothing better is known (`-o default`). Readline takes `a:1` for three words: the line is split again, and of a
/// candidate only what follows the last such sign is given back. `compgen` runs what its words have in `$()`, so names of the
/// node do not pass it.
fn bash(verbs: &[Shown]) -> String {
    let names: Vec<&str> = verbs.iter().map(|verb| verb.name).collect();
    let mut cases = String::new();
    for verb in verbs {
        let flags: Vec<String> = verb.shown_flags().map(|flag| format!("--{}", flag.long)).collect();
        let _ = writeln!(cases, "    {}) flags='{}' ;;", verb.name, flags.join(" "));
    }
    BASH.replace("VERBS", &names.join(" ")).replace("CASES\n", &cases)
}

const BASH: &str = r#"_edge_runtime() {
    local line=${COMP_LINE:0:COMP_POINT} flags= words breaks=${COMP_WORDBREAKS//[^:=@]/}
    read -ra words <<< "$line"
    case $line in *[[:space:]]) words+=('') ;; esac
    local last=${words[-1]}
    case ${words[1]} in
CASES
    esac
    mapfile -t COMPREPLY < <(
        case ${#words[@]}:$last in
        2:*) compgen -W 'VERBS' -- "$last" ;;
        *:-*) compgen -W "$flags" -- "$last" ;;
        *) edge-runtime complete "${words[@]:1}" 2>/dev/null ;;
        esac
    )
    [ -z "$breaks" ] || COMPREPLY=("${COMPREPLY[@]#"${last%"${last##*[$breaks]}"}"}")
}
complete -o default -F _edge_runtime edge-runtime
"#;

fn zsh(verbs: &[Shown]) -> String {
    let mut out = "#compdef edge-runtime\n".to_owned();
    // In an action of _arguments `words` begins with the verb.
    out.push_str("_edge_runtime_names() {\n    local -a names\n    ");
    out.push_str(
        "names=(${(f)\"$(edge-runtime complete \"${(@)words[1,CURRENT-1]}\" \"$PREFIX\" 2>/dev/null)\"})\n    ",
    );
    out.push_str(
        "if (( $#names )); then\n        compadd \"$@\" -a names\n    else\n        _files \"$@\"\n    fi\n}\n",
    );
    out.push_str("_edge_runtime() {\n    local -a verbs\n    verbs=(\n");
    for verb in verbs {
        let _ = writeln!(out, "        '{}:{}'", verb.name, verb.about);
    }
    out.push_str("    )\n    if (( CURRENT == 2 )); then\n        _describe verb verbs\n        return\n    fi\n");
    out.push_str("    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n");
    for verb in verbs {
        let _ = write!(out, "    {}) _arguments", verb.name);
        for flag in verb.shown_flags() {
            let value = flag.value.map(|name| format!(":{name}:_edge_runtime_names")).unwrap_or_default();
            let _ = write!(out, " '*--{}[{}]{value}'", flag.long, flag.about);
            if let Some(short) = flag.short {
                let _ = write!(out, " '*-{short}[{}]{value}'", flag.about);
            }
        }
        out.push_str(" '*:operand:_edge_runtime_names' ;;\n");
    }
    // The file of a folder of zsh's is the function itself, and is called for what it is to complete.
    out.push_str("    esac\n}\nif [ \"$funcstack[1]\" = _edge-runtime ]; then\n    _edge_runtime \"$@\"\nelse\n");
    out.push_str("    compdef _edge_runtime edge-runtime\nfi\n");
    out
}

/// How fish asks for names.
const FISH: &str = "-a '(edge-runtime complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'";

fn fish(verbs: &[Shown]) -> String {
    let mut out = String::new();
    for verb in verbs {
        let name = verb.name;
        let _ = writeln!(out, "complete -c edge-runtime -f -n __fish_use_subcommand -a {name} -d '{}'", verb.about);
        let within = format!("complete -c edge-runtime -n '__fish_seen_subcommand_from {name}'");
        for flag in verb.shown_flags() {
            let short = flag.short.map(|short| format!(" -s {short}")).unwrap_or_default();
            let value = match flag.value {
                Some(_) if is_of_names(flag) => format!(" -x {FISH}"),
                Some(_) => " -r".to_owned(),
                None => String::new(),
            };
            let _ = writeln!(out, "{within} -l {}{short}{value} -d '{}'", flag.long, flag.about);
        }
        match verb.operands {
            // One of them is a file.
            Operands::Words(_) => {
                let _ = writeln!(out, "{within} {FISH}");
            }
            Operands::One("FILE" | "DIR") | Operands::None | Operands::Raw => {}
            Operands::One(_) | Operands::Command(_) => {
                let _ = writeln!(out, "{within} -f {FISH}");
            }
        }
    }
    out
}

/// Whether `edge-runtime complete` knows the values of a flag; others may be files.
fn is_of_names(flag: &Flag) -> bool {
    flag.long == CONTAINER.long
        || flag.value == NAMESPACE.value
        || flag.value == Some("IMAGE")
        || !line::few_values(flag).is_empty()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::verbs::completion::shown;

    /// What bash proposes at the end of this line, with a program that names what it was asked, and then `known`.
    fn proposed(line: &str, known: &str) -> String {
        let ask = format!(
            "{}\nedge-runtime() {{ echo \"$*\"; echo '{known}'; }}\nCOMP_WORDBREAKS=$' \\t\\n\"><=;|&(:@'\n\
             COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _edge_runtime; echo \"${{COMPREPLY[*]}}\"",
            bash(&shown())
        );
        let done = Command::new("bash").args(["-c", &ask]).output().unwrap();
        assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn bash_completes_verbs_and_flags_but_no_helpers() {
        assert_eq!(proposed("edge-runtime im", ""), "images import");
        assert_eq!(proposed("edge-runtime doc", ""), "doctor");
        assert_eq!(proposed("edge-runtime doctor --b", ""), "--bundle");
        assert_eq!(proposed("edge-runtime complet", ""), "completion");
        for hidden in ["mon", "shut", "first"] {
            assert_eq!(proposed(&format!("edge-runtime {hidden}"), ""), "");
        }
        assert_eq!(proposed("edge-runtime logs --t", ""), "--tail --timestamps");
    }

    #[test]
    fn bash_asks_the_program_for_names() {
        assert_eq!(proposed("edge-runtime logs -c app w", "web"), "complete logs -c app w web");
        assert_eq!(proposed("edge-runtime logs ", "web"), "complete logs  web");
        // What readline took for words of their own is not given again.
        assert_eq!(
            proposed("edge-runtime images rm r.io:5000/a:", "r.io:5000/a:1"),
            "complete images rm r.io:5000/a: 1"
        );
        assert_eq!(proposed("edge-runtime images rm a@sha256:1", "a@sha256:12"), "complete images rm a@sha256:1 12");
        // Would run, were it a word for compgen.
        assert_eq!(proposed("edge-runtime logs ", "$(echo x)"), "complete logs  $(echo x)");
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
        assert!(all.iter().all(|script| script.contains("edge-runtime complete ")));
    }
}
