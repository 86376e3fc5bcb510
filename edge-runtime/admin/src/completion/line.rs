//! What the last word of a started command line may be. Pure.

use edge_runtime::cli::verb::{CONTAINER, Flag, NAMESPACE, Operands, Shown};

use crate::output::{FORMS, OUTPUT};

/// Kind of names that the last word is one of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// Nothing that is known here: a file, a number, the command of `exec`.
    Nothing,
    Words(Vec<&'static str>),
    Namespaces,
    Pods {
        namespace: Option<&'a str>,
    },
    /// Those of a pod as typed, `NAME` or `NAMESPACE/NAME`, or of all pods.
    Containers {
        namespace: Option<&'a str>,
        pod: Option<&'a str>,
    },
    Images,
    Devices {
        namespace: Option<&'a str>,
    },
    /// Keys of the configuration.
    Keys,
}

/// The words of a command line between the verb and the last word.
pub(crate) struct Line<'a> {
    verb: Shown,
    values: Vec<(&'static str, &'a str)>,
    operands: Vec<&'a str>,
    /// Flag whose value the last word is.
    open: Option<&'static Flag>,
}

impl<'a> Line<'a> {
    pub(crate) fn read(verb: Shown, before: &'a [String]) -> Self {
        let mut line = Self { verb, values: Vec::new(), operands: Vec::new(), open: None };
        let mut words = before.iter().map(String::as_str);
        let mut has_flags = true;
        while let Some(word) = words.next() {
            if has_flags && word == "--" {
                has_flags = false;
            } else if has_flags && word.starts_with('-') && word != "-" {
                let Some((flag, value)) = with_value(&verb, word) else { continue };
                match value.or_else(|| words.next()) {
                    Some(value) => line.values.push((flag.long, value)),
                    None => line.open = Some(flag),
                }
            } else {
                line.operands.push(word);
                // Flags of a command in a container are its own.
                has_flags &= !(matches!(verb.operands, Operands::Command(_)) && line.operands.len() > 1);
            }
        }
        line
    }

    /// The last one counts.
    pub(crate) fn value(&self, flag: &str) -> Option<&'a str> {
        self.values.iter().rev().find(|(name, _)| *name == flag).map(|(_, value)| *value)
    }

    pub(crate) fn wanted(&self) -> Wanted<'a> {
        let (namespace, pod) = (self.value(NAMESPACE.long), self.operands.first().copied());
        match (self.open, self.verb.name, self.operands.as_slice()) {
            (Some(flag), ..) if flag.long == CONTAINER.long => Wanted::Containers { namespace, pod },
            (Some(flag), ..) if flag.value == NAMESPACE.value => Wanted::Namespaces,
            (Some(flag), ..) if flag.value == Some("IMAGE") => Wanted::Images,
            (Some(flag), ..) => match few_values(flag) {
                few if few.is_empty() => Wanted::Nothing,
                few => Wanted::Words(few),
            },
            (None, "images", ["rm", ..] | ["export"]) => Wanted::Images,
            (None, "config", ["get" | "set"]) => Wanted::Keys,
            (None, "devices", ["get" | "watch" | "set" | "history"]) => Wanted::Devices { namespace },
            (None, _, []) => self.first(namespace),
            _ => Wanted::Nothing,
        }
    }

    fn first(&self, namespace: Option<&'a str>) -> Wanted<'a> {
        match self.verb.operands {
            Operands::One("POD") | Operands::Command("POD") | Operands::Words("[POD]") => Wanted::Pods { namespace },
            Operands::One("IMAGE") => Wanted::Images,
            Operands::One(synopsis) | Operands::Words(synopsis) => Wanted::Words(words_of(synopsis)),
            _ => Wanted::Nothing,
        }
    }
}

/// Values of a flag that has few of them, such as `cpu|memory|name`; none of others.
pub(super) fn few_values(flag: &Flag) -> Vec<&'static str> {
    match flag.value {
        Some(value) if OUTPUT.value == Some(value) => FORMS.to_vec(),
        Some(value) if value.contains('|') => words_of(value),
        _ => Vec::new(),
    }
}

/// The flag with a value that a word has, and the value if it is in the word too: `-itc`, `-cNAME`, `--tail=7`.
fn with_value<'a>(verb: &Shown, word: &'a str) -> Option<(&'static Flag, Option<&'a str>)> {
    let mut flags = verb.shown_flags().filter(|flag| flag.value.is_some());
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        return flags.find(|flag| flag.long == name).map(|flag| (flag, value));
    }
    let flags: Vec<&'static Flag> = flags.collect();
    word.char_indices().skip(1).find_map(|(at, short)| {
        let flag = flags.iter().find(|flag| flag.short == Some(short))?;
        let rest = &word[at + short.len_utf8()..];
        Some((*flag, (!rest.is_empty()).then_some(rest)))
    })
}

/// Words that are typed as they stand: `ls`, `check` and `rm` of `[ls|check|rm IMAGE...]`.
fn words_of(synopsis: &'static str) -> Vec<&'static str> {
    let is_literal = |word: &&str| !word.is_empty() && word.chars().all(|sign| sign.is_ascii_lowercase());
    synopsis.split(['[', ']', '|', ' ']).filter(is_literal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs;

    /// `line` lacks its last word.
    fn check(line: &str, wanted: &Wanted<'_>) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let verb = verbs::find(&words[0]).unwrap();
        assert_eq!(Line::read(verb, &words[1..]).wanted(), *wanted, "{line}");
    }

    #[test]
    fn operand_is_what_the_verb_takes() {
        for line in ["logs", "logs -f --tail 7", "exec -it", "restart --", "describe --root=/srv/n", "release"] {
            check(line, &Wanted::Pods { namespace: None });
        }
        check("inspect -n shop", &Wanted::Pods { namespace: Some("shop") });
        for line in ["pull", "images rm", "images rm a:1", "images --remove", "images --yes rm", "images export"] {
            check(line, &Wanted::Images);
        }
        check("images", &Wanted::Words(vec!["ls", "check", "rm", "prune", "export"]));
        check("completion", &Wanted::Words(vec!["bash", "zsh", "fish"]));
        check("devices", &Wanted::Words(vec!["get", "watch", "set", "history", "mappers", "plugins"]));
        check("devices get", &Wanted::Devices { namespace: None });
        check("devices -n shop set", &Wanted::Devices { namespace: Some("shop") });
        for line in ["config get", "config set"] {
            check(line, &Wanted::Keys);
        }
        for line in ["ps -o", "status --output", "events -f -o"] {
            check(line, &Wanted::Words(vec!["json", "yaml", "wide", "name"]));
        }
        check("top --sort", &Wanted::Words(vec!["cpu", "memory", "name"]));
        for line in [
            "logs web",
            "devices mappers",
            "devices set level",
            "images prune",
            "config check",
            "config get logs",
            "config set max-pods",
            "logs --tail",
            "status",
            "ps",
        ] {
            check(line, &Wanted::Nothing);
        }
        for line in ["import", "join", "upgrade"] {
            check(line, &Wanted::Words(Vec::new()));
        }
    }

    #[test]
    fn value_of_a_flag_is_not_an_operand() {
        let of = |namespace: Option<&'static str>, pod: Option<&'static str>| Wanted::Containers { namespace, pod };
        check("logs web -c", &of(None, Some("web")));
        check("logs -n shop -f web --container", &of(Some("shop"), Some("web")));
        check("logs --namespace=shop -c", &of(Some("shop"), None));
        check("exec -nshop web -itc", &of(Some("shop"), Some("web")));
        check("exec -itc app", &Wanted::Pods { namespace: None });
        check("logs -n a -n", &Wanted::Namespaces);
        check("events --namespace", &Wanted::Namespaces);
    }

    #[test]
    fn command_in_a_container_is_its_own() {
        for line in ["exec web", "exec web --", "exec web -- sh -c", "exec web sh -c", "exec -- web sh -n"] {
            check(line, &Wanted::Nothing);
        }
    }
}
