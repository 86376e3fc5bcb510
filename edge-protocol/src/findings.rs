//! How the doctors of both programs print what they found: summary and colours. Pure.

use std::ffi::{OsStr, OsString};

/// Last line: `1 error, 2 warnings (24 checks)`.
pub fn summary(errors: usize, warnings: usize, checks: usize) -> String {
    let checks = counted(checks, "check");
    match (errors, warnings) {
        (0, 0) => format!("all is well ({checks})\n"),
        _ => format!("{}, {} ({checks})\n", counted(errors, "error"), counted(warnings, "warning")),
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The text for standard output: findings have colours on a terminal that knows them, unless `NO_COLOR` has a value
/// (<https://no-color.org>). `variable` reads the environment.
pub fn for_output(text: String, is_terminal: bool, variable: impl Fn(&'static str) -> Option<OsString>) -> String {
    match are_coloured(is_terminal, variable("TERM").as_deref(), variable("NO_COLOR").as_deref()) {
        true => coloured(&text),
        false => text,
    }
}

fn are_coloured(is_terminal: bool, term: Option<&OsStr>, no_color: Option<&OsStr>) -> bool {
    is_terminal && term.is_some_and(|term| term != "dumb") && no_color.is_none_or(OsStr::is_empty)
}

/// Findings, a line of each beginning with its severity: errors in red, warnings in yellow.
fn coloured(text: &str) -> String {
    text.split_inclusive('\n').map(painted).collect()
}

fn painted(line: &str) -> String {
    for (severity, colour) in [("error", 31), ("warning", 33)] {
        if let Some(rest) = line.strip_prefix(severity).filter(|rest| rest.starts_with(' ')) {
            return format!("\x1b[{colour}m{severity}\x1b[0m{rest}");
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_counts_one_as_one() {
        assert_eq!(summary(1, 2, 24), "1 error, 2 warnings (24 checks)\n");
        assert_eq!(summary(0, 0, 1), "all is well (1 check)\n");
    }

    #[test]
    fn colours_need_a_terminal_that_knows_them() {
        let wanted = |is_terminal, term: Option<&str>, no_color: Option<&str>| {
            are_coloured(is_terminal, term.map(OsStr::new), no_color.map(OsStr::new))
        };
        assert!(wanted(true, Some("xterm"), None) && wanted(true, Some("linux"), Some("")));
        assert!(!wanted(true, Some("xterm"), Some("1")) && !wanted(false, Some("xterm"), None));
        assert!(!wanted(true, Some("dumb"), None) && !wanted(true, None, None));
    }

    #[test]
    fn pipe_gets_the_text_as_it_is() {
        let variable = |name: &'static str| (name == "TERM").then(|| OsString::from("xterm"));
        let text = "error    b: broken\n".to_owned();
        assert_eq!(for_output(text.clone(), false, variable), text);
        assert_eq!(for_output(text.clone(), true, variable), "\x1b[31merror\x1b[0m    b: broken\n");
        assert_eq!(for_output(text.clone(), true, |_| Some(OsString::from("1"))), text, "NO_COLOR is set");
    }

    #[test]
    fn only_the_severity_of_a_finding_is_coloured() {
        let shown = coloured("warning  c: so so\n         why: error\nerror    b: broken\n1 error, 1 warning\n");
        let wanted = "\x1b[33mwarning\x1b[0m  c: so so\n         why: error\n\x1b[31merror\x1b[0m    b: broken\n\
                      1 error, 1 warning\n";
        assert_eq!(shown, wanted);
    }
}
