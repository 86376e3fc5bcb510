//! Links in pages from the `proxy` subresource: those relative to the pod's root are rewritten to lead through it (K8s
//! apimachinery pkg/util/proxy/transport.go `rewriteHTML`). A page may be hostile: it is read as bytes, once from its
//! beginning to its end.

/// Attributes with links, by tag.
const LINKS: &[(&[u8], &[&[u8]])] = &[
    (b"a", &[b"href"]),
    (b"applet", &[b"codebase"]),
    (b"area", &[b"href"]),
    (b"audio", &[b"src"]),
    (b"base", &[b"href"]),
    (b"blockquote", &[b"cite"]),
    (b"body", &[b"background"]),
    (b"button", &[b"formaction"]),
    (b"command", &[b"icon"]),
    (b"del", &[b"cite"]),
    (b"embed", &[b"src"]),
    (b"form", &[b"action"]),
    (b"frame", &[b"longdesc", b"src"]),
    (b"head", &[b"profile"]),
    (b"html", &[b"manifest"]),
    (b"iframe", &[b"longdesc", b"src"]),
    (b"img", &[b"longdesc", b"src", b"usemap"]),
    (b"input", &[b"src", b"usemap", b"formaction"]),
    (b"ins", &[b"cite"]),
    (b"link", &[b"href"]),
    (b"object", &[b"classid", b"codebase", b"data", b"usemap"]),
    (b"q", &[b"cite"]),
    (b"script", &[b"src"]),
    (b"source", &[b"src"]),
    (b"video", &[b"poster", b"src"]),
];
/// Elements whose content is not markup until their end tag.
const RAW: &[&[u8]] = &[b"script", b"style", b"textarea", b"title", b"xmp", b"iframe", b"noembed", b"noframes"];

/// The page with rewritten links; `lead` returns the new target, if any.
pub(super) fn rewritten(page: &[u8], lead: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        let (text, tag) = rest.split_at(at);
        out.extend_from_slice(text);
        if let Some(comment) = tag.strip_prefix(b"<!--") {
            let length = find(comment, b"-->").map_or(tag.len(), |end| end + 7);
            rest = copy(&mut out, tag, length);
            continue;
        }
        let name = name_of(tag);
        if name.is_empty() {
            rest = copy(&mut out, tag, 1);
            continue;
        }
        rest = start_tag(&mut out, tag, &name, &lead);
        if RAW.contains(&name.as_slice()) {
            let end = [b"</", name.as_slice()].concat();
            let length = rest.windows(end.len()).position(|here| here.eq_ignore_ascii_case(&end)).unwrap_or(rest.len());
            rest = copy(&mut out, rest, length);
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Copies `length` bytes and returns the rest.
fn copy<'a>(out: &mut Vec<u8>, from: &'a [u8], length: usize) -> &'a [u8] {
    let (done, rest) = from.split_at(length.min(from.len()));
    out.extend_from_slice(done);
    rest
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|here| here == what)
}

/// The name of the tag that begins here, in small letters; empty if none does.
fn name_of(tag: &[u8]) -> Vec<u8> {
    let name = tag.get(1..).unwrap_or_default();
    if !name.first().is_some_and(u8::is_ascii_alphabetic) {
        return Vec::new();
    }
    name.iter().take_while(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect()
}

/// Writes a tag and gives what follows it.
fn start_tag<'a>(out: &mut Vec<u8>, tag: &'a [u8], name: &[u8], lead: &impl Fn(&str) -> Option<String>) -> &'a [u8] {
    let links = LINKS.iter().find(|(tag, _)| *tag == name).map_or(&[][..], |(_, links)| *links);
    let mut rest = copy(out, tag, 1 + name.len());
    loop {
        let between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'/';
        rest = copy(out, rest, rest.iter().take_while(|byte| between(byte)).count());
        match rest.first() {
            None => return rest,
            Some(b'>') => return copy(out, rest, 1),
            Some(_) => {}
        }
        // The first byte always belongs to the name, so that each round consumes at least one.
        let ends = |byte: &u8| between(byte) || matches!(byte, b'>' | b'=');
        let length = 1 + rest.iter().skip(1).take_while(|byte| !ends(byte)).count();
        let attribute: Vec<u8> = rest.iter().take(length).map(u8::to_ascii_lowercase).collect();
        rest = copy(out, rest, length);
        let space = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if rest.get(space) != Some(&b'=') {
            continue;
        }
        let after = rest.iter().skip(space + 1).take_while(|byte| byte.is_ascii_whitespace()).count();
        rest = copy(out, rest, space + 1 + after);
        let quote = rest.first().copied().filter(|byte| matches!(byte, b'"' | b'\''));
        rest = copy(out, rest, usize::from(quote.is_some()));
        let ends = |byte: &u8| quote.map_or(byte.is_ascii_whitespace() || *byte == b'>', |quote| *byte == quote);
        let (value, behind) = rest.split_at(rest.iter().position(ends).unwrap_or(rest.len()));
        let is_link = links.contains(&attribute.as_slice());
        let led = std::str::from_utf8(value).ok().filter(|_| is_link).and_then(lead);
        out.extend_from_slice(led.as_deref().map_or(value, str::as_bytes));
        rest = copy(out, behind, usize::from(quote.is_some()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(text: &str) -> String {
        let lead = |link: &str| link.strip_prefix('/').map(|rest| format!("/P/{rest}"));
        String::from_utf8(rewritten(text.as_bytes(), lead)).unwrap()
    }

    #[test]
    fn links_to_the_root_lead_through_here() {
        assert_eq!(page(r#"<a href="/rewriteme">test</a>"#), r#"<a href="/P/rewriteme">test</a>"#);
        assert_eq!(page("<A\n HREF = '/x?y=1&amp;z'>/x</A>"), "<A\n HREF = '/P/x?y=1&amp;z'>/x</A>");
        assert_eq!(page("<img src=/a.png alt=/b><br/>"), "<img src=/P/a.png alt=/b><br/>");
        assert_eq!(page("<form x action='/go' disabled/>"), "<form x action='/P/go' disabled/>");
        assert_eq!(
            page(r#"<script src="/s.js">"<a href='/x'>"</script><a href=/y>"#),
            r#"<script src="/P/s.js">"<a href='/x'>"</script><a href=/P/y>"#
        );
    }

    #[test]
    fn everything_else_stays() {
        for same in [
            "",
            "1 < 2 <",
            "<",
            "<!-- <a href=\"/x\"> -->",
            "<!-- <a href=\"/x\">",
            "<a href=\"x\">",
            "<p href=\"/x\">",
            "<a title=\"href=/x\">",
            "<style><a href=/x></style>",
            "<a href",
            "<a href=",
            "</a href=/x>",
        ] {
            assert_eq!(page(same), same);
        }
    }

    proptest! {
        #[test]
        fn no_page_is_too_strange(parts in proptest::collection::vec(
            prop_oneof!["<", ">", "=", "\"", "'", "/", "a", " ", "href", "<!--", "-->", "<script", "</script", "\u{fc}"], 0..40)) {
            let text: String = parts.concat();
            let lead = |_: &str| None;
            prop_assert_eq!(rewritten(text.as_bytes(), lead), text.as_bytes());
            let cut = text.as_bytes().get(1..).unwrap_or_default();
            prop_assert_eq!(rewritten(cut, lead), cut);
        }
    }
}
