//! `edge-runtime man`: the manual page, made from the tables of verbs.

use std::fmt::Write;

use edge_runtime::cli::verb::{Flag, Given, Operands, ROOT, Verb};
use edge_runtime::cli::{CliError, print};

use super::shown;

pub(super) const VERB: Verb =
    Verb { name: "man", about: "the manual page of this command", operands: Operands::None, flags: &[], run };

const BEFORE: &str = r".TH EDGE\-RUNTIME 8
.SH NAME
edge\-runtime \- a Kubernetes node for small boards
.SH SYNOPSIS
.B edge\-runtime
.I VERB
[\fIFLAG\fR]...
.SH DESCRIPTION
Runs the pods of a Kubernetes cluster, or static ones, on this machine: through runc, from one store on the disk, with or
without a network. The daemon is a service; with
.B join
this machine becomes a node.
.SH VERBS
";

const AFTER: &str = r".SH FILES
.TP
.I /etc/edge\-runtime/config.yaml
What the node does; every key is optional.
.TP
.I /etc/edge\-runtime/manifests
Static pods, which run without any cloud.
.TP
.I /boot/firmware/edge\-runtime.join
Read once by
.BR first\-boot ,
then removed.
.TP
.I /var/lib/edge\-runtime
Identity, store, images and volumes.
.TP
.I /var/log/pods
What containers have printed.
.SH ENVIRONMENT
.TP
.B EDGE_RUNTIME_LOG
What the daemon logs: error, warn, info or debug.
.SH EXIT STATUS
0; 1 when it failed; 2 when it was called wrongly.
.SH SEE ALSO
.BR cloud\-bridge (8),
.BR runc (8)
";

fn run(_: Given) -> Result<(), CliError> {
    print(page().trim_end())
}

fn page() -> String {
    let mut out = BEFORE.to_owned();
    for verb in shown() {
        let _ = writeln!(out, ".SS {}\n{}.", escaped(&verb.synopsis()), escaped(&capital(verb.about)));
        verb.shown_flags().filter(|flag| flag.long != ROOT.long).for_each(|flag| describe(&mut out, flag));
    }
    out.push_str(".SH EVERY VERB\n");
    describe(&mut out, &ROOT);
    out.push_str(".TP\n.B \\-\\-help\nwhat the verb and its flags are for\n");
    out + AFTER
}

fn describe(out: &mut String, flag: &Flag) {
    let short = flag.short.map(|short| format!("\\fB\\-{short}\\fR, ")).unwrap_or_default();
    let value = flag.value.map(|name| format!(" \\fI{}\\fR", escaped(name))).unwrap_or_default();
    let _ =
        writeln!(out, ".TP\n{short}\\fB{}\\fR{value}\n{}", escaped(&format!("--{}", flag.long)), escaped(flag.about));
}

/// A sentence begins with a capital.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// For roff a hyphen is none, a backslash begins an escape, and a line that begins with a dot or a quote is a request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_verb_and_flag_once_and_no_helper() {
        let page = page();
        for verb in shown() {
            assert_eq!(page.matches(&format!("\n.SS {} ", escaped(verb.name))).count(), 1, "{}", verb.name);
        }
        assert!(page.contains("\\fB\\-\\-token\\-file\\fR \\fIFILE\\fR"), "{page}");
        assert_eq!(page.matches(".TP\n\\fB\\-\\-root\\fR").count(), 1);
        assert!(!page.contains("userns"), "{page}");
    }

    #[test]
    fn nothing_is_a_request_by_accident() {
        assert_eq!(escaped(".so a\\b-c"), "\\&.so a\\eb\\-c");
        assert_eq!(capital("end all"), "End all");
    }
}
