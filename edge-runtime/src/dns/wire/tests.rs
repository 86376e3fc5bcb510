//! Queries and answers as bytes, also malformed ones.

use super::record::written;
use super::*;

fn packet(name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    out.extend(written(name));
    out.extend(kind.to_be_bytes());
    out.extend(IN.to_be_bytes());
    if let Some(size) = edns {
        out.extend([0, 0, 41]);
        out.extend(size.to_be_bytes());
        out.extend([0; 6]);
    }
    out
}

#[test]
fn query_is_parsed_and_answered() {
    let asked = question(&packet("Web.Shop.svc", A, None)).unwrap();
    assert_eq!((asked.name.as_deref(), asked.kind, asked.recursion), (Some("web.shop.svc"), A, true));
    let record = Record { name: "web.shop.svc".into(), data: Data::Address("10.0.0.1".parse().unwrap()) };
    let told = answer(&asked, Code::NoError, &[record], &[], "cluster.local", false);
    assert_eq!(told[..4], [0x12, 0x34, 0x85, 0x80]);
    assert_eq!(told[HEADER..HEADER + asked.raw.len()], asked.raw[..], "as received");
    assert_eq!(told[HEADER + asked.raw.len()..], [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 0, 0, 1]);
    assert!(answers(&told, &asked));
    let other = question(&packet("other", A, None)).unwrap();
    assert!(!answers(&told, &other));
}

#[test]
fn long_answer_is_truncated() {
    let record = |number: u8| Record { name: "a.b".into(), data: Data::Address([10, 0, 0, number].into()) };
    let records: Vec<Record> = (0..200).map(record).collect();
    let length = |edns, tcp| {
        let asked = question(&packet("a.b", A, edns)).unwrap();
        let told = answer(&asked, Code::NoError, &records, &[], "z", tcp);
        (told.len() <= PLAIN, told.len() <= WITH_EDNS, told[2] & 2 != 0)
    };
    assert_eq!(length(None, false), (true, true, true));
    assert_eq!(length(Some(4096), false), (false, true, true));
    assert_eq!(length(None, true), (false, false, false));
}

#[test]
fn malformed_queries_are_refused() {
    let mut reply = packet("a.b", A, None);
    reply[2] |= 0x80;
    assert_eq!(question(&reply), Err(None));
    assert_eq!(question(&[1, 2, 3]), Err(None));
    assert_eq!(question(&packet("a.b", 252, None)), Err(Some((0x1234, Code::Refused))));
    let mut update = packet("a.b", A, None);
    update[2] = 0x28;
    assert_eq!(question(&update), Err(Some((0x1234, Code::NotImplemented))));
    // A pointer, a label that is too long, and a name without an end.
    for bytes in [&[0xc0, 0x0c][..], &[64, 1, 1], &[3, b'a']] {
        let packet = [&packet("", A, None)[..HEADER], bytes].concat();
        assert_eq!(question(&packet), Err(Some((0x1234, Code::FormatError))));
    }
    let mut odd = packet("a.b", A, None);
    odd[HEADER + 1] = b'.';
    assert_eq!(question(&odd).unwrap().name, None);
}
