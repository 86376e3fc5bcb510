//! What an answer of the bridge means. Pure: no I/O.

use http::StatusCode;
use sampan_grpc::{Code, Status};

/// Bytes before a message: gRPC's code and the length.
pub(super) const HEAD: usize = 5;
/// Longest text of an error, bytes.
const MAX_TEXT: usize = 4 << 10;

/// Reads an answer with this status. The driver answers with 200 only; other answers are the bridge's, and become
/// UNAVAILABLE where sidecars should call again, also if the node does not know such calls yet.
pub(super) fn read(status: StatusCode, body: &[u8]) -> Result<Vec<u8>, Status> {
    let code = match status {
        StatusCode::OK => return parse(body),
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
        _ => Code::Unavailable,
    };
    Err(Status::new(code, cut(body)))
}

fn parse(body: &[u8]) -> Result<Vec<u8>, Status> {
    let whole = body.split_first().and_then(|(code, rest)| {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        (u32::try_from(rest.len()) == Ok(u32::from_be_bytes(*length))).then_some((Code::of(*code), rest))
    });
    match whole {
        Some((Code::Ok, message)) => Ok(message.to_vec()),
        Some((code, why)) => Err(Status::new(code, cut(why))),
        None => Err(Status::new(Code::Unavailable, "the answer is incomplete")),
    }
}

fn cut(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..MAX_TEXT).unwrap_or(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(status: StatusCode, body: &[u8]) -> Code {
        read(status, body).map_or_else(|status| status.code, |_| Code::Ok)
    }

    #[test]
    fn answer_of_the_driver_is_passed_on() {
        assert_eq!(read(StatusCode::OK, b"\0\0\0\0\x01a"), Ok(b"a".to_vec()));
        assert_eq!(read(StatusCode::OK, &[0; 5]), Ok(Vec::new()));
        assert_eq!(read(StatusCode::OK, b"\x06\0\0\0\x02no"), Err(Status::new(Code::AlreadyExists, "no")));
        assert_eq!(code(StatusCode::OK, b"\xff\0\0\0\0"), Code::Unknown);
    }

    #[test]
    fn part_of_an_answer_is_none() {
        for part in [&b""[..], b"\0", b"\0\0\0\0", b"\0\0\0\0\x02a", b"\0\0\0\0\0a", b"\0\xff\xff\xff\xffa"] {
            assert_eq!(code(StatusCode::OK, part), Code::Unavailable, "{part:?}");
        }
    }

    #[test]
    fn answer_of_the_bridge_is_none_of_the_driver() {
        let of = |status: u16| code(StatusCode::from_u16(status).expect("a status"), b"why");
        assert_eq!(
            [of(401), of(403), of(504)],
            [Code::Unauthenticated, Code::PermissionDenied, Code::DeadlineExceeded]
        );
        for status in [201, 400, 404, 413, 429, 500, 502, 503] {
            assert_eq!(of(status), Code::Unavailable, "{status}");
        }
        let long = read(StatusCode::BAD_GATEWAY, &[b'x'; 10_000]).map_err(|status| status.message.len());
        assert_eq!(long, Err(MAX_TEXT));
    }
}
