//! Which answers may be kept, and whether pages follow. No I/O.

use serde::Deserialize;

use crate::asked::Asked;

/// Most bytes of one answer, all pages together.
pub(crate) const MAX_ANSWER: usize = 1 << 20;

/// Headers of an answer that are kept with it.
const HEADERS: [&str; 5] = ["content-type", "content-encoding", "vary", "cache-control", "etag"];

/// What comes after a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing.
    End,
    /// The page of this token.
    Page(String),
    /// That cannot be read: it is packed, or no JSON.
    Unknown,
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// Whether an answer may be kept, by its head.
pub(crate) fn may_keep(asked: &Asked, status: u16, headers: &[(String, String)]) -> bool {
    let kind = header(headers, "content-type");
    let kind = kind.split_once(';').map_or(kind, |(kind, _)| kind).trim();
    let is_document = kind == "application/json"
        || kind.starts_with("application/vnd.kubernetes.protobuf")
        || kind.starts_with("application/com.github.proto-openapi")
        || kind.ends_with("+json");
    // Of a paged list the next token must be readable.
    let is_readable = kind == "application/json" && header(headers, "content-encoding").is_empty();
    asked.is_kept && status == 200 && is_document && (!asked.is_paged || is_readable)
}

/// Headers that are kept of an answer.
pub(super) fn kept_headers(headers: &[(String, String)]) -> Vec<(String, String)> {
    headers.iter().filter(|(name, _)| HEADERS.contains(&name.as_str())).cloned().collect()
}

/// What follows a page. An answer to a request without a limit has no next one.
pub(super) fn next(is_paged: bool, body: &[u8]) -> Next {
    #[derive(Deserialize)]
    struct List {
        metadata: Option<Meta>,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "continue")]
        token: Option<String>,
    }
    if !is_paged {
        return Next::End;
    }
    match serde_json::from_slice::<List>(body) {
        Ok(list) => match list.metadata.and_then(|meta| meta.token) {
            Some(token) if !token.is_empty() => Next::Page(token),
            _ => Next::End,
        },
        Err(_) => Next::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::ApiRequest;

    use super::*;

    fn asked(path: &str) -> Asked {
        let request = ApiRequest { method: "GET".into(), path: path.into(), headers: Vec::new(), has_body: false };
        Asked::of(&request)
    }

    fn headers(kind: &str, packed: bool) -> Vec<(String, String)> {
        let mut headers = vec![("content-type".to_owned(), kind.to_owned())];
        if packed {
            headers.push(("content-encoding".to_owned(), "gzip".to_owned()));
        }
        headers
    }

    #[test]
    fn whole_documents_are_kept() {
        let list = asked("/api/v1/pods");
        for kind in [
            "application/json",
            "application/json; charset=utf-8",
            "application/vnd.kubernetes.protobuf",
            "application/apply-patch+json",
        ] {
            assert!(may_keep(&list, 200, &headers(kind, false)), "{kind}");
            assert!(may_keep(&list, 200, &headers(kind, true)), "{kind}");
        }
        assert!(!may_keep(&list, 200, &headers("text/plain", false)));
        assert!(!may_keep(&list, 206, &headers("application/json", false)));
        assert!(!may_keep(&list, 404, &headers("application/json", false)));
        assert!(!may_keep(&asked("/api/v1/pods?watch=1"), 200, &headers("application/json", false)));
    }

    #[test]
    fn pages_are_kept_only_if_the_next_can_be_read() {
        let page = asked("/api/v1/pods?limit=2");
        assert!(may_keep(&page, 200, &headers("application/json", false)));
        assert!(!may_keep(&page, 200, &headers("application/json", true)));
        assert!(!may_keep(&page, 200, &headers("application/vnd.kubernetes.protobuf", false)));
    }

    #[test]
    fn next_page_is_named_by_the_list() {
        let list =
            br#"{"kind":"PodList","metadata":{"resourceVersion":"5","continue":"abc"},"items":[{"metadata":{}}]}"#;
        assert_eq!(next(true, list), Next::Page("abc".into()));
        assert_eq!(next(false, list), Next::End);
        assert_eq!(next(true, br#"{"metadata":{"continue":""},"items":[]}"#), Next::End);
        assert_eq!(next(true, b"{}"), Next::End);
        assert_eq!(next(true, b"{\"metadata\":"), Next::Unknown);
    }

    #[test]
    fn headers_of_the_connection_are_not_kept() {
        let all = [("content-type", "a"), ("date", "b"), ("audit-id", "c"), ("warning", "d")];
        let all: Vec<_> = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(kept_headers(&all), [("content-type".to_owned(), "a".to_owned())]);
    }
}
