//! Compresses similar texts, as differences from a sample: a node more often has a thousand devices of one model than
//! ten models, and little memory.

use std::collections::BTreeMap;
use std::rc::Rc;

use sampan_devices_control::Named;

/// Fewer equal bytes are not worth a copy.
const LEAST: usize = 6;
/// How far ahead in the sample equal bytes are looked for: what differs is a value here and there.
const AHEAD: usize = 64;

/// A text as pieces of a sample and what is between them.
#[derive(Debug)]
pub(in super::super) struct Packed {
    sample: Rc<str>,
    /// Pieces: a length and that many bytes, then the number of sample bytes to skip and the number to copy. All
    /// lengths as LEB128.
    pieces: Box<[u8]>,
}

impl Packed {
    fn new(sample: Rc<str>, text: &str) -> Self {
        let (from, text) = (sample.as_bytes(), text.as_bytes());
        let (mut pieces, mut between, mut at, mut done) = (Vec::new(), Vec::new(), 0, 0);
        while let Some(rest) = text.get(done..).filter(|rest| !rest.is_empty()) {
            let ahead = from.get(at..).unwrap_or_default();
            let near = ahead.get(..AHEAD).unwrap_or(ahead);
            let found = rest.get(..LEAST).and_then(|start| near.windows(LEAST).position(|window| window == start));
            let Some(skip) = found else {
                between.extend(rest.first());
                done += 1;
                continue;
            };
            let equal = ahead.iter().skip(skip).zip(rest).take_while(|(one, other)| one == other).count();
            piece(&mut pieces, &between, skip, equal);
            between.clear();
            at += skip + equal;
            done += equal;
        }
        piece(&mut pieces, &between, 0, 0);
        Self { sample, pieces: pieces.into_boxed_slice() }
    }

    pub(in super::super) fn text(&self) -> Option<String> {
        let (mut text, mut at, mut pieces) = (Vec::new(), 0, &*self.pieces);
        while !pieces.is_empty() {
            let count = number(&mut pieces)?;
            let (between, rest) = pieces.split_at_checked(count)?;
            pieces = rest;
            text.extend_from_slice(between);
            at += number(&mut pieces)?;
            let count = number(&mut pieces)?;
            text.extend_from_slice(self.sample.as_bytes().get(at..at + count)?);
            at += count;
        }
        String::from_utf8(text).ok()
    }
}

fn piece(pieces: &mut Vec<u8>, between: &[u8], skip: usize, equal: usize) {
    put(pieces, between.len());
    pieces.extend_from_slice(between);
    put(pieces, skip);
    put(pieces, equal);
}

fn put(to: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        to.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    to.push(u8::try_from(number).unwrap_or_default());
}

fn number(from: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= usize::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The samples, one for each model.
#[derive(Debug, Default)]
pub(in super::super) struct Samples(BTreeMap<Named, Rc<str>>);

impl Samples {
    /// `model`: of the device whose text it is.
    pub(in super::super) fn pack(&mut self, model: &Named, text: &str) -> Packed {
        if let Some(sample) = self.0.get(model) {
            let packed = Packed::new(Rc::clone(sample), text);
            if packed.pieces.len() <= text.len() / 2 {
                return packed;
            }
        }
        // The first one, or they have come to look otherwise.
        let sample: Rc<str> = text.into();
        self.0.insert(model.clone(), Rc::clone(&sample));
        Packed::new(sample, text)
    }

    /// Removes unused samples.
    pub(in super::super) fn forget(&mut self) {
        self.0.retain(|_, sample| Rc::strong_count(sample) > 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model() -> Named {
        Named { namespace: "default".into(), name: "lab".into() }
    }

    #[test]
    fn devices_of_a_model_take_little() {
        let text = |n: u32| {
            let port = if n.is_multiple_of(3) { "/dev/ttyS0" } else { "/dev/ttyUSB12" };
            format!(
                r#"{{"protocol":{{"configData":{{"port":"{port}","unit":{n}}},"protocolName":"modbus"}},"properties":[{{"collectCycle":1000,"name":"temp","visitors":{{"configData":{{"register":{n}}}}}}},{{"desired":{{"value":"{n}"}},"name":"led"}}]}}"#
            )
        };
        let mut samples = Samples::default();
        for n in 0..1_000 {
            let (text, packed) = (text(n), samples.pack(&model(), &text(n)));
            assert!(packed.pieces.len() < 50, "{} bytes", packed.pieces.len());
            assert_eq!(packed.text().as_deref(), Some(text.as_str()));
        }
        let held = samples.pack(&model(), "of another shape");
        assert_eq!((held.text().as_deref(), samples.0.len()), (Some("of another shape"), 1));
        samples.forget();
        assert_eq!(samples.0.len(), 1);
        drop(held);
        samples.forget();
        assert!(samples.0.is_empty());
    }

    proptest! {
        #[test]
        fn packed_value_is_restored_unchanged(texts in proptest::collection::vec("[ab\u{e9}\u{1f600}]{0,300}|.{0,40}", 1..6)) {
            let mut samples = Samples::default();
            let packed: Vec<Packed> = texts.iter().map(|text| samples.pack(&model(), text)).collect();
            for (text, packed) in texts.iter().zip(&packed) {
                prop_assert_eq!(packed.text(), Some(text.clone()));
            }
        }
    }
}
