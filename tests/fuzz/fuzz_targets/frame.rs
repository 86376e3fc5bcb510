//! Frames of an unauthenticated peer, texts one per line, a binary one whole, in the decoders of both directions. No
//! panic, no memory beyond the limits, and each decoded message can be encoded and decoded again.
#![no_main]

use edge_protocol::frame::{Decoded, Decoder, MAX_FRAME, Message, encode, split};
use edge_protocol::message::{ToCloud, ToEdge};
use edge_protocol::wire::{self, Content, Frame, Wire};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    binary(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    read::<ToEdge>(text);
    read::<ToCloud>(text);
});

fn binary(bytes: &[u8]) {
    // A peer that did not agree to binary streams cannot send one.
    assert!(!matches!(wire::read(bytes, false), Ok(Content::Data { .. })));
    let content = match wire::read(bytes, true) {
        Err(_) => return,
        Ok(content) => content,
    };
    match &content {
        Content::Text(text) => assert!(text.len() <= MAX_FRAME),
        Content::Data { data, .. } => assert!(data.len() <= MAX_FRAME),
    }
    match Frame::new(content.clone(), true).wire() {
        Wire::Text(text) => assert_eq!(content, Content::Text(text)),
        // A frame of the full size exceeds the limit once it has a header.
        Wire::Binary(again) if again.len() > MAX_FRAME => {}
        Wire::Binary(again) => assert_eq!(wire::read(&again, true), Ok(content)),
        Wire::Shared(_) => panic!("this is nobody else's"),
    }
}

fn read<T: Message + std::fmt::Debug>(text: &str) {
    let mut decoder = Decoder::default();
    for frame in text.lines() {
        // An error ends a connection.
        let Ok(decoded) = decoder.decode::<T>(frame) else { return };
        let Decoded::Message(message) = decoded else { continue };
        assert!(decoder.last_size() <= T::MAX);
        // Numbers in bodies may lose their last digit, so the texts are not compared.
        let mut again = Decoder::default();
        let mut last = None;
        for frame in split::<T>(encode(&message)) {
            assert!(frame.len() <= MAX_FRAME);
            last = Some(again.decode::<T>(&frame));
        }
        assert!(matches!(last, Some(Ok(Decoded::Message(_)))), "{message:?} was read back as {last:?}");
    }
}
