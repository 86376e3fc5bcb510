//! The files of the page, and the headers under which a browser gets anything from here.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use sampan_page::{File, HEADERS, HTML, SCRIPT, STYLE};

use super::board::cut;
use super::body::{Body, typed};

/// Nothing but our own files, which hold no secret: strangers get them, too.
const FILES: [File; 17] = [
    ("/nodes.css", STYLE, include_str!("nodes.css")),
    ("/page.js", SCRIPT, include_str!("page.js")),
    ("/counters.js", SCRIPT, include_str!("counters.js")),
    ("/filter.js", SCRIPT, include_str!("filter.js")),
    ("/groups.js", SCRIPT, include_str!("groups.js")),
    ("/groupline.js", SCRIPT, include_str!("groupline.js")),
    ("/cells.js", SCRIPT, include_str!("cells.js")),
    ("/table.js", SCRIPT, include_str!("table.js")),
    ("/node.js", SCRIPT, include_str!("node.js")),
    ("/jobs.js", SCRIPT, include_str!("jobs.js")),
    ("/listpage.js", SCRIPT, include_str!("listpage.js")),
    ("/pods.js", SCRIPT, include_str!("pods.js")),
    ("/podcells.js", SCRIPT, include_str!("podcells.js")),
    ("/devices.js", SCRIPT, include_str!("devices.js")),
    ("/usage.js", SCRIPT, include_str!("usage.js")),
    ("/copy.js", SCRIPT, include_str!("copy.js")),
    ("/login.js", SCRIPT, include_str!("login.js")),
];

const INDEX: &str = include_str!("index.html");
const LOGIN: &str = include_str!("login.html");
/// Where the login page says why it is there.
const WHY: &str = "<!-- why -->";
/// Where the page has the name of the site, the version of the bridge, and the name of the user.
const TITLE: &str = "<!-- title -->";
const VERSION: &str = "<!-- version -->";
const USER: &str = "<!-- user -->";
/// Bytes of a name of a user.
const LONGEST_USER: usize = 128;

/// One of the files.
pub(super) fn file(path: &str) -> Option<Response<Body>> {
    let (_, kind, text) = FILES.iter().chain(&sampan_page::FILES).find(|(name, ..)| *name == path)?;
    Some(typed(StatusCode::OK, kind, Bytes::from_static(text.as_bytes())))
}

/// The page itself for a user. `title` is the name of the site; empty: the page shows the host of its address.
pub(super) fn index(title: &str, user: &str) -> Response<Body> {
    typed(StatusCode::OK, HTML, filled(title, user).into())
}

fn filled(title: &str, user: &str) -> String {
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let text = INDEX.replace(VERSION, env!("CARGO_PKG_VERSION")).replace(TITLE, &plain(title));
    text.replace(USER, &plain(cut(user, LONGEST_USER)))
}

/// The form for a token. `why` is text of ours alone: it is put in as it is.
pub(super) fn login(code: StatusCode, why: &'static str) -> Response<Body> {
    typed(code, HTML, LOGIN.replace(WHY, why).into())
}

pub(super) fn guarded<B>(mut response: Response<B>) -> Response<B> {
    let headers = HEADERS.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_ask_for_nothing_from_elsewhere_and_make_no_markup_of_text() {
        for (name, _, text) in FILES.iter().copied().chain([("/", "", INDEX), ("/login", "", LOGIN)]) {
            assert_eq!(sampan_page::fault(text), None, "{name}");
        }
        for (name, _, text) in FILES.iter().filter(|(_, kind, _)| *kind == STYLE) {
            assert_eq!(sampan_page::nameless_colour(text), None, "{name}");
        }
        assert!(LOGIN.contains(WHY) && [TITLE, VERSION, USER].iter().all(|mark| INDEX.contains(mark)));
    }

    #[test]
    fn names_of_sites_and_users_are_text() {
        let page = filled("<b>&", "system:serviceaccount:a:<i>");
        assert!(page.contains(">&lt;b>&amp;</span>") && page.contains(":a:&lt;i></span>"), "{page}");
        assert!(!filled("", &"x".repeat(200)).contains(&"x".repeat(129)));
    }

    /// Values of an attribute in a text.
    fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        text.split(&format!(" {name}=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn controls_have_labels_and_keep_the_order_of_focus() {
        for text in [INDEX, LOGIN] {
            let (ids, labelled) = (values(text, "id"), values(text, "for"));
            let tags = ["<input ", "<select "].into_iter().flat_map(|tag| text.split(tag).skip(1));
            for tag in tags.filter_map(|rest| rest.split('>').next()) {
                let id = values(&format!(" {tag}"), "id").first().copied().unwrap_or_default().to_owned();
                assert!(labelled.contains(&&*id), "{tag}");
            }
            let named = labelled.iter().copied().chain(values(text, "aria-describedby"));
            assert!(named.clone().count() > 0 && named.clone().all(|id| ids.contains(&id)), "{ids:?}");
            let mut once = ids.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), ids.len(), "an id is there once: {ids:?}");
            assert!(values(text, "tabindex").iter().all(|at| ["0", "-1"].contains(at)));
        }
        for id in ["live", "count", "told"] {
            let mut lines = INDEX.lines().filter(|line| values(line, "id").contains(&id));
            assert!(lines.any(|line| line.contains("role=\"status\"")), "{id} is read aloud when it changes");
        }
    }

    #[test]
    fn named_files_exist_and_answers_restrict_the_browser() {
        let texts = FILES.iter().chain(&sampan_page::FILES).map(|(.., text)| *text).chain([INDEX, LOGIN]);
        for word in texts.flat_map(|text| text.split(['"', '\''])) {
            let named = word.strip_prefix('.').filter(|path| path.ends_with(".js")).unwrap_or(word);
            if named.starts_with('/') && [".js", ".css", ".svg"].iter().any(|end| named.ends_with(end)) {
                assert!(file(named).is_some(), "{named}");
            }
        }
        let answer = guarded(index("", ""));
        assert!(HEADERS.iter().all(|(name, value)| answer.headers()[*name] == *value));
    }
}
