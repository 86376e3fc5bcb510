//! The files of the page, and the headers under which a browser gets anything from here.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::body::{Body, typed};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Nothing but our own files, which hold no secret: strangers get them, too.
const FILES: [(&str, &str, &str); 8] = [
    ("/jobs.js", SCRIPT, include_str!("jobs.js")),
    ("/icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("/page.js", SCRIPT, include_str!("page.js")),
    ("/table.js", SCRIPT, include_str!("table.js")),
    ("/node.js", SCRIPT, include_str!("node.js")),
    ("/timeline.js", SCRIPT, include_str!("timeline.js")),
    ("/words.js", SCRIPT, include_str!("words.js")),
];

const INDEX: &str = include_str!("index.html");
const LOGIN: &str = include_str!("login.html");
/// Where the login page says why it is there.
const WHY: &str = "<!-- why -->";

/// Scripts and styles are ours, data comes from here, forms go here, and nobody puts the page into another.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

/// Of everything that is answered.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// One of the files.
pub(super) fn file(path: &str) -> Option<Response<Body>> {
    let (_, kind, text) = FILES.iter().find(|(name, ..)| *name == path)?;
    Some(typed(StatusCode::OK, kind, Bytes::from_static(text.as_bytes())))
}

/// The page itself.
pub(super) fn index() -> Response<Body> {
    typed(StatusCode::OK, HTML, Bytes::from_static(INDEX.as_bytes()))
}

/// The form for a token. `why` is text of ours alone: it is put in as it is.
pub(super) fn login(code: StatusCode, why: &'static str) -> Response<Body> {
    typed(code, HTML, LOGIN.replace(WHY, why).into())
}

pub(super) fn guarded<B>(mut response: Response<B>) -> Response<B> {
    let headers = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_ask_for_nothing_from_elsewhere_and_make_no_markup_of_text() {
        for (name, _, text) in FILES.iter().copied().chain([("/", "", INDEX), ("/login", "", LOGIN)]) {
            for bad in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "style="]
            {
                assert!(!text.contains(bad), "{bad} in {name}");
            }
            let links = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!links.contains("http://") && !links.contains("https://"), "a link in {name}");
        }
        for text in [INDEX, LOGIN] {
            let scripts = text.matches("<script").count();
            assert_eq!(scripts, text.matches("<script type=\"module\" src=\"/").count(), "scripts are files");
            let handles = text.split_whitespace().any(|word| word.starts_with("on") && word.contains('='));
            assert!(!text.contains("<style") && !handles, "nothing inline");
        }
        assert!(LOGIN.contains(WHY));
    }

    #[test]
    fn every_answer_says_what_a_browser_may_do() {
        let answer = guarded(index());
        let policy = answer.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(part), "{part} in {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(answer.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(answer.headers()[CACHE_CONTROL], "no-store");
    }
}
