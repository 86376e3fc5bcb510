//! The text of an object's body, once for all nodes that should hold it; for a large one also its shared frames. The
//! parts before and after these are in [`outgoing`](crate::outgoing). Does not know nodes or sessions.

use crate::compress;
use crate::frame::{self, Message, PART};
use crate::message::ToEdge;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Minimum size of a large body, in bytes: compressing it takes longer than sending it.
pub const LARGE: usize = 16 << 10;

/// JSON text of a body.
#[derive(Debug)]
pub struct Body {
    text: Box<str>,
    large: Option<Box<Large>>,
}

/// Frames of a large text. None is larger than the text, and they are dropped with the text.
#[derive(Debug)]
struct Large {
    held: AtomicBool,
    /// A second node is to hold it.
    shared: AtomicBool,
    /// Packed slices by number; `None` if packing gains nothing.
    packed: Box<[OnceLock<Packed>]>,
}

type Packed = Option<Arc<[u8]>>;

impl Body {
    pub fn new(text: impl Into<Box<str>>) -> Self {
        let text = text.into();
        let large = (text.len() > LARGE).then(|| {
            let packed = std::iter::repeat_with(OnceLock::new).take(text.len().div_ceil(PART)).collect();
            Box::new(Large { held: AtomicBool::new(false), shared: AtomicBool::new(false), packed })
        });
        Self { text, large }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// One more node is to hold it.
    pub(crate) fn hold(&self) {
        if let Some(large) = &self.large
            && large.held.swap(true, Ordering::Relaxed)
        {
            large.shared.store(true, Ordering::Relaxed);
        }
    }

    /// Slices of the text as frames, none of which is the last of its message. `None` for a small text, which is a part
    /// of a frame.
    pub(crate) fn slices(self: &Arc<Self>) -> Option<impl Iterator<Item = Slice> + use<>> {
        let count = self.large.as_ref()?.packed.len();
        let body = Arc::clone(self);
        Some((0..count).map(move |at| Slice { body: Arc::clone(&body), at }))
    }

    fn range(&self, at: usize) -> Range<usize> {
        let cut = |at: usize| self.text.floor_char_boundary(at.saturating_mul(PART));
        cut(at)..cut(at.saturating_add(1))
    }
}

/// One frame of a large body.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    body: Arc<Body>,
    at: usize,
}

impl Slice {
    pub(crate) fn text(&self) -> String {
        let data = self.body.text.get(self.body.range(self.at)).unwrap_or_default();
        frame::encode(&ToEdge::part(true, data.to_owned()))
    }

    /// The frame packed, if that is worth it. What only one node holds is not kept: it is sent once.
    pub(crate) fn packed(&self) -> Packed {
        let pack = || compress::pack(&self.text()).map(Arc::from);
        let large = self.body.large.as_ref()?;
        match large.packed.get(self.at) {
            Some(kept) if large.shared.load(Ordering::Relaxed) => kept.get_or_init(pack).clone(),
            _ => pack(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::unpack;
    use crate::frame::{Decoded, Decoder};
    use proptest::prelude::*;

    /// JSON text of about `bytes` bytes.
    fn text(bytes: usize) -> String {
        let mut seed = 7_u32;
        let letter = |_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + seed.to_be_bytes()[0] % 26)
        };
        format!("{{\"data\":\"{}\"}}", (0..bytes).map(letter).collect::<String>())
    }

    #[test]
    fn what_many_nodes_hold_is_packed_once_and_goes_with_it() {
        let body = Arc::new(Body::new(text(300_000)));
        let packed =
            |body: &Arc<Body>| body.slices().expect("is large").map(|s| s.packed().expect("shrinks")).collect();
        body.hold();
        let (first, again): (Vec<_>, Vec<_>) = (packed(&body), packed(&body));
        assert_eq!(first, again);
        assert!(!Arc::ptr_eq(&first[0], &again[0]), "for one node nothing is kept");
        body.hold();
        let (first, again): (Vec<_>, Vec<_>) = (packed(&body), packed(&body));
        assert!(first.iter().zip(&again).all(|(first, again)| Arc::ptr_eq(first, again)), "packed once");
        assert!(first.iter().map(|frame| frame.len()).sum::<usize>() < body.text().len());
        let left = Arc::downgrade(&first[0]);
        drop((first, again, body));
        assert!(left.upgrade().is_none());
    }

    #[test]
    fn small_body_is_not_split_into_frames() {
        assert!(Arc::new(Body::new(text(LARGE - 100))).slices().is_none());
        assert!(Arc::new(Body::new("")).slices().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn slices_are_the_text_for_every_reader(letters in "\\PC{1,40}", more in 0..200_000_usize) {
            let times = (LARGE + more) / letters.len() + 1;
            let body = Arc::new(Body::new(serde_json::json!({ "data": letters.repeat(times) }).to_string()));
            body.hold();
            body.hold();
            let mut whole = String::new();
            for slice in body.slices().expect("is large") {
                let frame = slice.text();
                if let Some(packed) = slice.packed() {
                    let unpacked = unpack(&packed);
                    prop_assert_eq!(unpacked.as_deref(), Ok(frame.as_str()));
                }
                prop_assert_eq!(Decoder::default().decode::<ToEdge>(&frame), Ok(Decoded::Incomplete));
                let Ok(ToEdge::Part { more: true, data }) = serde_json::from_str(&frame) else {
                    panic!("{}", &frame[..40]);
                };
                whole.push_str(&data);
            }
            prop_assert_eq!(whole.as_str(), body.text());
        }
    }
}
