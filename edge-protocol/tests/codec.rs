//! The codec against hostile and odd input: caps before parsing, slices, errors that name the field.

use edge_protocol::frame::{Decoded, Decoder, FrameError, MAX_FRAME, MAX_TO_CLOUD, PART, encode, split};
use edge_protocol::message::{Object, ObjectDigest, ObjectKey, ToCloud, ToEdge};
use proptest::prelude::*;

fn put(body: serde_json::Value) -> ToEdge {
    let key = ObjectKey { kind: "Secret".into(), namespace: "ns".into(), name: "n".into() };
    let digest = ObjectDigest { key, uid: "u".into(), digest: "d".into() };
    ToEdge::Put { seq: 1, sync: false, object: Object { digest, body } }
}

fn through(message: &ToEdge) -> (usize, Result<Decoded<ToEdge>, FrameError>) {
    let frames = split::<ToEdge>(encode(message));
    let mut decoder = Decoder::default();
    let mut last = Ok(Decoded::Incomplete);
    for frame in &frames {
        assert_eq!(last, Ok(Decoded::Incomplete), "complete before the last frame");
        assert!(frame.len() <= 2 * PART + 100, "a frame of {} bytes", frame.len());
        last = decoder.decode(frame);
    }
    (frames.len(), last)
}

#[test]
fn g19_a_full_secret_travels_in_slices() {
    // 1 MiB of data, the worst of it: control characters, quotes, backslashes, four-byte characters.
    for piece in ["\u{1}", "\"", "\\", "\u{1F980}", "x"] {
        let message = put(serde_json::json!({ "data": piece.repeat((1 << 20) / piece.len()) }));
        let (frames, read) = through(&message);
        assert!(frames > 10);
        assert_eq!(read, Ok(Decoded::Message(message)), "{piece:?}");
    }
}

#[test]
fn g19_too_much_is_refused_before_it_is_parsed_or_kept() {
    let long = format!("{{\"ping\":{{\"x\":\"{}\"}}}}", "x".repeat(MAX_FRAME));
    assert_eq!(Decoder::default().decode::<ToCloud>(&long), Err(FrameError::FrameTooLarge(long.len())));
    let mut decoder = Decoder::default();
    let slice = encode(&ToCloud::Part { more: true, data: "x".repeat(PART) });
    let refused = (0..1_000).find_map(|_| decoder.decode::<ToCloud>(&slice).err());
    assert_eq!(refused, Some(FrameError::MessageTooLarge { size: MAX_TO_CLOUD + PART, limit: MAX_TO_CLOUD }));
    let inner = encode(&ToCloud::Part { more: false, data: "{\"ping\":{}}".into() });
    let nested = encode(&ToCloud::Part { more: false, data: inner });
    assert_eq!(Decoder::default().decode::<ToCloud>(&nested), Err(FrameError::NestedPart));
}

/// A tree takes a hundred times its text: what is refused is counted in memory, before it is parsed.
#[test]
fn g19_text_that_grows_when_parsed_is_refused_unparsed() {
    let up = |fields: usize| {
        let many = format!("[{}0]", "{\"\":0},".repeat(fields));
        format!("{{\"up\":{{\"id\":1,\"report\":{{\"report\":\"node\",\"node\":{many}}}}}}}")
    };
    assert!(Decoder::default().decode::<ToCloud>(&up(5_000)).is_ok());
    let mut narrow = Decoder::default();
    narrow.set_room(10_000);
    assert!(matches!(narrow.decode::<ToCloud>(&up(5_000)), Err(FrameError::TooHeavy { limit: 10_000, .. })));
    narrow.set_room(usize::MAX);
    assert!(narrow.decode::<ToCloud>(&up(5_000)).is_ok());
    let refused = Decoder::default().decode::<ToCloud>(&up(100_000));
    assert!(matches!(refused, Err(FrameError::TooHeavy { .. })), "{refused:?}");
    let text = up(100_000);
    let (head, tail) = text.split_at(PART);
    let mut decoder = Decoder::default();
    let slice = |more, data: &str| encode(&ToCloud::Part { more, data: data.into() });
    assert_eq!(decoder.decode::<ToCloud>(&slice(true, head)), Ok(Decoded::Incomplete));
    let refused = decoder.decode::<ToCloud>(&slice(false, tail));
    assert!(matches!(refused, Err(FrameError::TooHeavy { .. })), "{refused:?}");
}

#[test]
fn errors_name_message_and_field() {
    let error = |text: &str| Decoder::default().decode::<ToEdge>(text).expect_err(text).to_string();
    for (text, wanted) in [
        (r#"{"syncDone":{"seq":"x"}}"#, ["message syncDone", "field seq", "invalid type"]),
        (r#"{"syncDone":{}}"#, ["message syncDone", "field (message)", "missing field `seq`"]),
        (r#"{"delete":{"seq":1,"object":{"kind":"Pod","name":"n","uid":5}}}"#, ["delete", "object.uid", "string"]),
        ("{\"delete\":{\"seq\":1,\n\"object\":{\"kind\":\"Pod\",\n\"name\":[]}}}", ["delete", "object.name", "string"]),
        (r#"{"upAck":{"ids":[1,-2]}}"#, ["upAck", "ids", "-2"]),
        (r#"{"streamData":{"stream":1,"data":"$"}}"#, ["streamData", "data", "base64"]),
        (r#"{"pong":{}"#, ["pong", "", "EOF"]),
        (r#"{"pong":{},"ack":{}}"#, ["pong", "", "expected"]),
    ] {
        let text = error(text);
        assert!(wanted.iter().all(|w| text.contains(w)), "{text:?} lacks one of {wanted:?}");
    }
    for bad in ["", " ", "[]", "null", "{}", "{\"", "{\"a", "{\"a\"}", "\u{feff}{\"pong\":{}}"] {
        assert_eq!(error(bad), FrameError::NotAMessage.to_string(), "{bad:?}");
    }
    // Deeper than any honest object: an error, not a stack overflow.
    let deep = format!("{{\"put\":{}", "[".repeat(100_000));
    assert!(error(&deep).contains("message put"));
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".{0,40}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map(".{0,10}", inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_body_survives(body in json(), pad in prop_oneof![Just(0), PART - 300..PART + 300]) {
        let message = put(serde_json::json!({ "body": body, "pad": "é".repeat(pad / 2) }));
        let (_, read) = through(&message);
        prop_assert_eq!(read, Ok(Decoded::Message(message)));
    }

    /// A frame that lacks its end is an error. With other text in it, it is a value or an error, never a panic.
    #[test]
    fn damaged_frames_do_not_panic(cut in 0usize..400, at in 0usize..400, with in ".{0,3}") {
        let to_edge = include_str!("fixtures/to-edge.v1.jsonl").lines().map(|line| (line, true));
        let to_cloud = include_str!("fixtures/to-cloud.v1.jsonl").lines().map(|line| (line, false));
        for (line, is_to_edge) in to_edge.chain(to_cloud) {
            let cut = line.floor_char_boundary(cut.min(line.len() - 1));
            let at = line.floor_char_boundary(at.min(line.len()));
            for text in [line[..cut].to_owned(), format!("{}{with}{}", &line[..at], &line[at..]), with.clone()] {
                let edge = Decoder::default().decode::<ToEdge>(&text);
                let cloud = Decoder::default().decode::<ToCloud>(&text);
                let refused = if is_to_edge { edge.is_err() } else { cloud.is_err() };
                prop_assert!(refused || text != line[..cut], "{text}");
            }
        }
    }
}
