//! Header fields of gRPC ("gRPC over HTTP2", Requests and Responses): required fields of a request, its timeout, and
//! how to recognize a gRPC answer.

use std::time::Duration;

/// Bytes of all fields of a stream with 32 for each (RFC 9113 section 6.5.2): eight times what gRPC's clients send.
pub(super) const MAX_FIELDS: usize = 8 << 10;
/// The longest path: three words, of which one is a package.
const MAX_PATH: usize = 256;

/// Bytes of fields of one stream.
#[derive(Debug, Default)]
pub(super) struct Sum(usize);

impl Sum {
    /// Whether this one fits too.
    pub(super) const fn add(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.0 = self.0.saturating_add(name.len()).saturating_add(value.len()).saturating_add(32);
        self.0 <= MAX_FIELDS
    }
}

/// Header fields of a request.
#[derive(Debug, Default)]
pub(super) struct Head {
    is_post: bool,
    is_grpc: bool,
    path: Option<String>,
    /// `None` if it sets no timeout; an unreadable one is an error.
    timeout: Option<Result<Duration, ()>>,
}

/// Reason why a request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Method,
    ContentType,
    Path,
    Timeout,
}

impl Head {
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b":method" => self.is_post = value == b"POST",
            b":path" => {
                let path = std::str::from_utf8(value).ok();
                self.path = path.filter(|path| path.len() <= MAX_PATH && path.starts_with('/')).map(str::to_owned);
            }
            b"content-type" => self.is_grpc = is_grpc(value),
            b"grpc-timeout" => self.timeout = Some(parse_timeout(value).ok_or(())),
            _ => {}
        }
    }

    /// # Errors
    /// It is not gRPC.
    pub(super) fn finish(self) -> Result<(String, Option<Duration>), Wrong> {
        if !self.is_post {
            return Err(Wrong::Method);
        }
        if !self.is_grpc {
            return Err(Wrong::ContentType);
        }
        let timeout = self.timeout.transpose().map_err(|()| Wrong::Timeout)?;
        Ok((self.path.ok_or(Wrong::Path)?, timeout))
    }
}

/// `application/grpc`, of whatever kind of message.
pub(super) fn is_grpc(content_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let head = content_type.get(..GRPC.len()).unwrap_or_default();
    let next = content_type.get(GRPC.len());
    head.eq_ignore_ascii_case(GRPC) && matches!(next, None | Some(b'+' | b';' | b' '))
}

/// Eight digits at most, and a unit.
fn parse_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(count * 3_600)),
        b'M' => Some(Duration::from_secs(count * 60)),
        b'S' => Some(Duration::from_secs(count)),
        b'm' => Some(Duration::from_millis(count)),
        b'u' => Some(Duration::from_micros(count)),
        b'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// Formats a timeout in milliseconds, or in seconds if milliseconds have more than eight digits.
pub(super) fn timeout(deadline: Duration) -> String {
    const MOST: u64 = 99_999_999;
    match u64::try_from(deadline.as_millis()) {
        Ok(millis) if millis <= MOST => format!("{millis}m"),
        _ => format!("{}S", deadline.as_secs().min(MOST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(change: &[(&str, &str)]) -> Result<(String, Option<Duration>), Wrong> {
        let mut head = Head::default();
        let usual = [(":method", "POST"), (":path", "/a.B/C"), ("content-type", "application/grpc")];
        for (name, value) in usual.iter().chain(change) {
            head.field(name.as_bytes(), value.as_bytes());
        }
        head.finish()
    }

    #[test]
    fn path_and_timeout_of_a_request_are_parsed() {
        assert_eq!(head(&[]), Ok(("/a.B/C".to_owned(), None)));
        for (text, millis) in
            [("1S", 1_000), ("2M", 120_000), ("1H", 3_600_000), ("5000000n", 5), ("7000u", 7), ("0m", 0)]
        {
            let expected = Some(Duration::from_millis(millis));
            assert_eq!(head(&[("grpc-timeout", text)]), Ok(("/a.B/C".to_owned(), expected)), "{text}");
        }
    }

    #[test]
    fn requests_without_grpc_are_refused() {
        assert_eq!(head(&[(":method", "GET")]), Err(Wrong::Method));
        assert_eq!(head(&[("content-type", "application/json")]), Err(Wrong::ContentType));
        assert_eq!(head(&[("content-type", "application/grpc-web")]), Err(Wrong::ContentType));
        assert_eq!(head(&[("content-type", "application/grpc+proto")]), Ok(("/a.B/C".to_owned(), None)));
        assert_eq!(head(&[(":path", "*")]), Err(Wrong::Path));
        assert_eq!(head(&[(":path", &format!("/{}", "x".repeat(MAX_PATH)))]), Err(Wrong::Path));
        for text in ["", "S", "123456789S", "-1S", "1", "1x", "+1S"] {
            assert_eq!(head(&[("grpc-timeout", text)]), Err(Wrong::Timeout), "{text}");
        }
    }

    #[test]
    fn a_deadline_is_written_so_that_it_can_be_read() {
        for millis in [0, 1, 1_000, 99_999_999, 100_000_000, u64::from(u32::MAX)] {
            let deadline = Duration::from_millis(millis);
            let read = parse_timeout(timeout(deadline).as_bytes()).expect("a timeout");
            assert!(read <= deadline && deadline - read < Duration::from_secs(1), "{millis}");
        }
        assert_eq!(timeout(Duration::MAX), "99999999S");
    }

    #[test]
    fn fields_have_a_bound() {
        let mut sum = Sum::default();
        let fits = (0..10_000).take_while(|_| sum.add(b"a", b"b")).count();
        assert_eq!(fits, MAX_FIELDS / 34);
    }
}
