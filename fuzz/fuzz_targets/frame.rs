//! Frames as a stranger sends them, one per line, into the decoders of both directions: no panic, nothing held beyond
//! the limits, and what was read as a message can be written, and read again.
#![no_main]

use edge_protocol::frame::{Decoded, Decoder, MAX_FRAME, Message, encode, split};
use edge_protocol::message::{ToCloud, ToEdge};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    read::<ToEdge>(text);
    read::<ToCloud>(text);
});

fn read<T: Message + std::fmt::Debug>(text: &str) {
    let mut decoder = Decoder::default();
    for frame in text.lines() {
        // An error ends a connection.
        let Ok(decoded) = decoder.decode::<T>(frame) else { return };
        let Decoded::Message(message) = decoded else { continue };
        assert!(decoder.last_size() <= T::MAX);
        // Numbers in bodies may lose their last digit, so that the texts are not compared.
        let mut again = Decoder::default();
        let mut last = None;
        for frame in split::<T>(encode(&message)) {
            assert!(frame.len() <= MAX_FRAME);
            last = Some(again.decode::<T>(&frame));
        }
        assert!(matches!(last, Some(Ok(Decoded::Message(_)))), "{message:?} was read back as {last:?}");
    }
}
