//! Parses the head of an untrusted request: its target, or the reason of a refusal. Pure.

/// Maximum length of a head with the empty line that ends it. A browser's cookies may exceed it: they are not
/// supported.
pub(super) const LONGEST: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Health,
    Live,
    Ready,
    Metrics,
}

/// Status of HTTP of a request that is not answered.
pub type Refusal = &'static str;

/// `None` until the head is whole. The answer is the same however the bytes are cut.
///
/// # Errors
/// The request is malformed, or asks for an unknown path.
pub fn read(bytes: &[u8]) -> Option<Result<What, Refusal>> {
    Some(head(bytes, LONGEST)?.and_then(target).and_then(asked))
}

/// Returns the head without its end; `None` until it is complete. With its end it may have at most `longest` bytes. The
/// result does not depend on how the bytes are split.
///
/// # Errors
/// It is longer.
pub fn head(bytes: &[u8], longest: usize) -> Option<Result<&[u8], Refusal>> {
    match bytes.windows(4).take(longest.saturating_sub(3)).position(|four| four == b"\r\n\r\n") {
        Some(end) => Some(Ok(bytes.get(..end).unwrap_or_default())),
        None => (bytes.len() > longest).then_some(Err("431 Request Header Fields Too Large")),
    }
}

/// Returns the target of a GET request, unchanged.
///
/// # Errors
/// It is not a GET of HTTP/1.
pub fn target(head: &[u8]) -> Result<&str, Refusal> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) || words.next().is_some() {
        return Err("400 Bad Request");
    }
    if method != Some("GET") {
        return Err("405 Method Not Allowed");
    }
    target.ok_or("400 Bad Request")
}

fn asked(target: &str) -> Result<What, Refusal> {
    // kubectl and probes add `?verbose`, which is what they get.
    match target.split('?').next() {
        Some("/healthz") => Ok(What::Health),
        Some("/livez") => Ok(What::Live),
        Some("/readyz") => Ok(What::Ready),
        Some("/metrics") => Ok(What::Metrics),
        _ => Err("404 Not Found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_paths_and_methods_are_refused() {
        let get = |line: &str| read(format!("{line}\r\nHost: x\r\n\r\n").as_bytes());
        assert_eq!(get("GET /metrics HTTP/1.1"), Some(Ok(What::Metrics)));
        assert_eq!(get("GET /readyz?verbose HTTP/1.0"), Some(Ok(What::Ready)));
        assert_eq!(get("GET /livez HTTP/1.1"), Some(Ok(What::Live)));
        assert_eq!(get("GET /healthz HTTP/1.1"), Some(Ok(What::Health)));
        for (line, status) in [
            ("GET /metrics/../etc HTTP/1.1", "404"),
            ("GET http://x/metrics HTTP/1.1", "404"),
            ("POST /metrics HTTP/1.1", "405"),
            ("GET /metrics", "400"),
            ("GET /metrics HTTP/2", "400"),
            ("GET /metrics HTTP/1.1 x", "400"),
            ("\u{16}\u{3}\u{1}", "400"),
            ("", "400"),
        ] {
            assert!(matches!(get(line), Some(Err(refused)) if refused.starts_with(status)), "{line}: {:?}", get(line));
        }
    }

    #[test]
    fn a_part_is_waited_for_and_no_head_is_endless() {
        let whole = b"GET /metrics HTTP/1.1\r\nA: b\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]), None, "cut at {cut}");
        }
        assert!(matches!(read(&[b'a'; LONGEST + 1]), Some(Err(refused)) if refused.starts_with("431")));
        let most = format!("GET /livez HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(LONGEST - 28));
        assert_eq!((most.len(), read(most.as_bytes())), (LONGEST, Some(Ok(What::Live))));
        let more = most.replace("A: ", "A: b") + "rest";
        for cut in LONGEST + 1..more.len() {
            assert!(matches!(read(&more.as_bytes()[..cut]), Some(Err(refused)) if refused.starts_with("431")), "{cut}");
        }
        let mut late = vec![b'a'; LONGEST + 1];
        late.extend(b"\r\n\r\n");
        assert!(matches!(read(&late), Some(Err(refused)) if refused.starts_with("431")));
        assert!(matches!(read(b"\xff\xff\r\n\r\n"), Some(Err(refused)) if refused.starts_with("400")));
    }
}
