//! Common parts of both programs' pages: files for a browser, the headers of all answers, and the timeline of a node.
//! No I/O; does not know the server or the rest of a page.

mod colours;
mod timeline;

pub use colours::nameless_colour;
pub use timeline::{Change, Kind, Timeline};

/// Conditions of a Node that are bad news when they are as said, in the order of their bits, as the scripts know them.
pub const TROUBLES: [(&str, &str); 6] = [
    ("MemoryPressure", "True"),
    ("DiskPressure", "True"),
    ("PIDPressure", "True"),
    ("UnderVoltage", "True"),
    ("HighTemperature", "True"),
    ("ClockSynchronized", "False"),
];

/// A file as it is served: its path, content type and text.
pub type File = (&'static str, &'static str, &'static str);

pub const HTML: &str = "text/html; charset=utf-8";
pub const SCRIPT: &str = "text/javascript; charset=utf-8";
pub const STYLE: &str = "text/css; charset=utf-8";

/// What both pages load. They hold no secret.
pub const FILES: [File; 7] = [
    ("/icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("/page.css", STYLE, include_str!("page.css")),
    ("/words.js", SCRIPT, include_str!("words.js")),
    ("/parts.js", SCRIPT, include_str!("parts.js")),
    ("/timeline.js", SCRIPT, include_str!("timeline.js")),
    ("/history.js", SCRIPT, include_str!("history.js")),
    ("/zoom.js", SCRIPT, include_str!("zoom.js")),
];

/// Headers of every answer, in lower case. Scripts, styles, data and form targets only from this origin, and no
/// embedding into other pages.
pub const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// What is in a file that must not be there: a way to make markup of text, something inline, or a link to elsewhere. For the tests
/// of those who serve files.
#[must_use]
pub fn fault(text: &str) -> Option<&'static str> {
    let bad = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "style=",
        "<style",
        "javascript:",
    ];
    if let Some(bad) = bad.into_iter().find(|bad| text.contains(bad)) {
        return Some(bad);
    }
    // Names of namespaces are not links.
    let links = text.replace("http://www.w3.org/2000/svg", "");
    if links.contains("http://") || links.contains("https://") {
        return Some("a link");
    }
    if text.matches("<script").count() != text.matches("<script type=\"module\" src=\"/").count() {
        return Some("a script that is no file");
    }
    let handles = |word: &str| word.starts_with("on") && word.contains("=\"");
    text.split_whitespace().any(handles).then_some("a handler")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_know_every_condition_that_is_bad_when_true() {
        let parts = FILES.iter().find(|(path, ..)| *path == "/parts.js").map_or("", |(.., text)| *text);
        let list = parts.split_once("const BAD = [").and_then(|(_, rest)| rest.split(']').next()).unwrap_or_default();
        for (name, bad) in TROUBLES {
            assert_eq!(list.contains(&format!("'{name}'")), bad == "True", "{name} in {list:?}");
        }
    }

    #[test]
    fn the_files_ask_for_nothing_from_elsewhere_and_make_no_markup_of_text() {
        for (name, _, text) in FILES {
            assert_eq!(fault(text), None, "{name}");
        }
        for bad in [
            "a.innerHTML = b",
            "<p style=\"x\">",
            "import 'https://x'",
            "<script>1</script>",
            "<img onerror=\"x\">",
            "setTimeout(eval('1'))",
        ] {
            assert!(fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn headers_let_a_browser_do_nothing_that_is_not_ours() {
        let policy = HEADERS[0].1;
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(part), "{part} in {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert!(HEADERS.iter().all(|(name, _)| *name == name.to_lowercase()));
    }
}
