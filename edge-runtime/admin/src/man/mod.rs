//! Manual pages, made from the tables of verbs and of the configuration's keys. Pure.

mod config;
#[cfg(test)]
mod docs_tests;
pub(crate) mod keys;

use std::fmt::Write;

use edge_runtime::cli::verb::Shown;

use crate::groups::examples;

/// Names and texts of all pages.
///
/// # Errors
/// The default configuration is not valid.
pub(crate) fn pages(verbs: &[Shown]) -> Result<[(&'static str, String); 2], Box<dyn std::error::Error>> {
    Ok([("edge-runtime.8", page(verbs)), ("edge-runtime.yaml.5", config::page()?)])
}

/// The manual page in the macros of man(7).
fn page(verbs: &[Shown]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(
        ".TH EDGE-RUNTIME 8 \"\" \"Sampan {version}\" \"System Administration\"\n\
         .SH NAME\nedge-runtime \\- a Kubernetes node for small boards\n\
         .SH SYNOPSIS\n.B edge-runtime\n.I VERB\n.RI [ FLAG ]...\n\
         .SH DESCRIPTION\n\
         Runs the pods that a cluster has placed on this machine, with or without a connection to it. The verb\n\
         .B run\nis the daemon; the others look, mend and ask, mostly also while it does not run.\n\
         .PP\nEvery verb takes\n.BI \\-\\-root\\~ DIR\nand\n.BR \\-\\-help .\n.SH VERBS\n"
    );
    for verb in verbs {
        let _ = writeln!(out, ".SS {}", plain(&verb.synopsis()));
        let _ = writeln!(out, "{}", line(verb.about));
        for flag in verb.shown_flags().filter(|flag| flag.long != "root") {
            let short = flag.short.map(|short| format!("\\-{short}, ")).unwrap_or_default();
            let value = flag.value.map(|value| format!(" \" \" \"{}\"", plain(value))).unwrap_or_default();
            let _ = writeln!(out, ".TP\n.BI \"{short}\\-\\-{}\"{value}\n{}", plain(flag.long), line(flag.about));
        }
        for (command, what) in examples(verb.name) {
            let _ = writeln!(out, ".TP\n.B \"{}\"\n{}", plain(&command), line(what));
        }
    }
    out.push_str(
        ".SH \"EXIT STATUS\"\n0: success. 1: failure. 2: wrong usage. 141: nobody reads standard output any more.\n\
         .B doctor\nends with 3 if there are warnings and with 4 if there are errors,\n\
         .B exec\nwith the exit code of the command.\n\
         .SH FILES\n\
         .TP\n.I /etc/edge\\-runtime/config.yaml\nThe configuration; none is needed.\n\
         .TP\n.I /etc/edge\\-runtime/manifests\nPods that run without a cluster.\n\
         .TP\n.I /var/lib/edge\\-runtime\nWhat is remembered: identity, store, images, volumes.\n\
         .TP\n.I /run/edge\\-runtime/health.sock\nHealth and metrics over HTTP: /livez, /readyz, /healthz, /metrics.\n\
         .SH ENVIRONMENT\n.TP\n.B EDGE_RUNTIME_LOG\nHow much is logged: error, warn, info, debug or trace.\n\
         .SH \"SEE ALSO\"\n.BR edge\\-runtime.yaml (5),\n.BR kubectl (1),\n.BR runc (8),\n.BR journalctl (1)\n",
    );
    out
}

/// Text within a line: no hyphen becomes another sign, no backslash an escape.
fn plain(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A line of its own, which no dot or apostrophe makes a request of.
fn line(text: &str) -> String {
    let text = plain(text);
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::shown;

    #[test]
    fn the_page_has_every_verb_and_flag_and_no_helper() {
        let page = page(&shown());
        for verb in shown() {
            assert!(page.contains(&format!(".SS {} ", plain(verb.name))), "{}", verb.name);
            for flag in verb.shown_flags().filter(|flag| flag.long != "root") {
                assert!(page.contains(&format!("\\-\\-{}\"", plain(flag.long))), "{} --{}", verb.name, flag.long);
            }
        }
        assert!(page.contains(".SS doctor") && page.contains(".SS run") && !page.contains("as\\-container"));
        // Lines that begin with a dot are requests of man(7), and no others.
        let known = ["TH", "SH", "SS", "TP", "PP", "B", "I", "BI", "BR", "RI"];
        for line in page.lines().filter(|line| line.starts_with('.')) {
            let request = line[1..].split(' ').next().unwrap_or_default();
            assert!(known.contains(&request), "{line}");
        }
    }

    /// groff, where it is there, has nothing to complain of.
    #[test]
    fn groff_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        for text in [page(&shown()), config::page().unwrap()] {
            let file = folder.path().join("page");
            std::fs::write(&file, text).unwrap();
            let Ok(done) =
                std::process::Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&file).output()
            else {
                return;
            };
            assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
        }
    }
}
