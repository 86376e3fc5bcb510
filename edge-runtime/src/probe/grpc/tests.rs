//! Answers of a real server (grpcio 1.85), recorded as bytes and given again on loopback.

use std::net::TcpListener;

use smol::Async;

use super::*;

fn played(answer: &[u8], service: &str) -> (Outcome, Vec<u8>) {
    let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0)).unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = vec![0; 4096];
        let n = stream.read(&mut seen).await.unwrap();
        seen.truncate(n);
        // One byte at a time: frames come in pieces.
        for byte in answer {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        let _ = stream.get_ref().shutdown(std::net::Shutdown::Write);
        while stream.read(&mut [0; 256]).await.is_ok_and(|n| n > 0) {}
        seen
    };
    let connected = Cell::new(false);
    smol::block_on(smol::future::zip(probe(address, service, &connected), serve))
}

const OPENING: &str = "000018040000000000000400400000000500400000000600004000fe0300000001000004080000000000003f00010000\
    000401000000000000040800000000000000000500000806 0000000000 3e00eec522579cf7";
const HEADERS_OK: &str = "00004f0104000000012088400c636f6e74656e742d74797065106170706c69636174696f6e2f677270634014677270\
    632d6163636570742d656e636f64696e67176964656e746974792c206465666c6174652c20677a6970";
const TRAILERS_OK: &str = "00001e010500000001400b677270632d7374617475730130000c677270632d6d65737361676500";
const NO_SUCH_METHOD: &str = "0000510105000000012088400c636f6e74656e742d74797065106170706c69636174696f6e2f67727063400b67\
    7270632d737461747573023132000c677270632d6d657373616765114d6574686f64206e6f7420666f756e6421";
const NOT_FOUND: &str = "00001e010500000001400b677270632d7374617475730135000c677270632d6d65737361676500";

fn bytes(parts: &[&str]) -> Vec<u8> {
    let digits: Vec<char> = parts.concat().chars().filter(char::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

#[test]
fn answer_of_the_server_decides() {
    let message = |status: &str| format!("00000700000000000100000000 0208{status}");
    let failure = |text: &str| Outcome::Failure(text.to_owned());
    let unimplemented = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): \
                         Method not found!";
    for (parts, outcome) in [
        (vec![OPENING, HEADERS_OK, &message("01"), TRAILERS_OK], Outcome::Success),
        (
            vec![OPENING, HEADERS_OK, &message("02"), TRAILERS_OK],
            failure("service unhealthy (responded with \"NOT_SERVING\")"),
        ),
        (
            vec![OPENING, HEADERS_OK, NOT_FOUND],
            failure("error: health rpc probe failed: rpc error: code = NotFound desc = "),
        ),
        (vec![OPENING, NO_SUCH_METHOD], failure(unimplemented)),
        (vec![OPENING], failure("error: health rpc probe failed: the connection ended before the answer")),
        (
            vec!["485454502f312e312034303020426164205265717565"],
            failure("error: health rpc probe failed: the server does not speak HTTP/2"),
        ),
    ] {
        assert_eq!(played(&bytes(&parts), "").0, outcome, "{parts:?}");
    }
}

#[test]
fn the_request_names_the_service() {
    let (_, asked) = played(&[], "some.service");
    assert!(asked.starts_with(frame::PREFACE));
    assert!(asked.ends_with(b"\x00\x00\x00\x00\x0e\x0a\x0csome.service"));
    let (_, asked) = played(&[], &"x".repeat(300));
    assert!(asked.windows(3).any(|w| w == [0x0a, 0xac, 0x02]), "a length of two bytes");
}

#[test]
fn closed_port_is_a_failure() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let outcome = smol::block_on(probe(address, "", &Cell::new(false)));
    let text =
        format!("error: failed to connect service at \"{address}\": dial tcp {address}: connect: connection refused");
    assert_eq!(outcome, Outcome::Failure(text));
}
