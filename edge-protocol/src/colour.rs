//! Colours of what the doctors of both programs print. Pure.

use std::ffi::OsStr;

/// Whether to print colours: on a terminal that knows them, unless `NO_COLOR` has a value (<https://no-color.org>). `term`
/// and `no_color` are the variables of these names.
pub fn is_wanted(is_terminal: bool, term: Option<&OsStr>, no_color: Option<&OsStr>) -> bool {
    is_terminal && term.is_some_and(|term| term != "dumb") && no_color.is_none_or(OsStr::is_empty)
}

/// Findings, a line of each beginning with its severity: errors in red, warnings in yellow.
pub fn severities(text: &str) -> String {
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
    fn colours_need_a_terminal_that_knows_them() {
        let wanted = |is_terminal, term: Option<&str>, no_color: Option<&str>| {
            is_wanted(is_terminal, term.map(OsStr::new), no_color.map(OsStr::new))
        };
        assert!(wanted(true, Some("xterm"), None) && wanted(true, Some("linux"), Some("")));
        assert!(!wanted(true, Some("xterm"), Some("1")) && !wanted(false, Some("xterm"), None));
        assert!(!wanted(true, Some("dumb"), None) && !wanted(true, None, None));
    }

    #[test]
    fn only_the_severity_of_a_finding_is_coloured() {
        let shown = severities("warning  c: so so\n         why: error\nerror    b: broken\n1 error, 1 warning\n");
        let wanted = "\x1b[33mwarning\x1b[0m  c: so so\n         why: error\n\x1b[31merror\x1b[0m    b: broken\n\
                      1 error, 1 warning\n";
        assert_eq!(shown, wanted);
    }
}
