//! Protobuf's encoding, <https://protobuf.dev/programming-guides/encoding/>. Parts of a message are read one after the
//! other, so a reader counts them before it keeps them: an empty part takes two bytes, and much more once it is kept.

/// A field: its number and its value.
pub(crate) type Field<'a> = (u32, Value<'a>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes: no message here has such a field.
    Fixed,
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the message is no protobuf message of this type")
    }
}

/// Fields of a message. An error is the last item.
#[derive(Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

pub(crate) const fn fields(message: &[u8]) -> Fields<'_> {
    Fields(message)
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read().ok_or(Malformed);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn read(&mut self) -> Option<Field<'a>> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0)?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed
            }
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Value::Fixed
            }
            // Groups are of proto2.
            _ => return None,
        };
        Some((number, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            // The tenth byte has one bit that counts.
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Value<'a> {
    pub(crate) const fn bytes(self) -> Result<&'a [u8], Malformed> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(Malformed) }
    }

    pub(crate) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    pub(crate) const fn flag(self) -> Result<bool, Malformed> {
        if let Self::Varint(value) = self { Ok(value != 0) } else { Err(Malformed) }
    }

    /// An `int64`: two's complement.
    pub(crate) const fn signed(self) -> Result<i64, Malformed> {
        if let Self::Varint(value) = self { Ok(value.cast_signed()) } else { Err(Malformed) }
    }
}

/// A message that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn bytes(mut self, number: u32, bytes: &[u8]) -> Self {
        self.varint((u64::from(number) << 3) | 2);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    /// An empty text is the default: it is left out.
    pub(crate) fn text(self, number: u32, text: &str) -> Self {
        if text.is_empty() { self } else { self.bytes(number, text.as_bytes()) }
    }

    pub(crate) fn texts<'a>(self, number: u32, texts: impl IntoIterator<Item = &'a str>) -> Self {
        texts.into_iter().fold(self, |writer, text| writer.bytes(number, text.as_bytes()))
    }

    pub(crate) fn message(self, number: u32, message: Self) -> Self {
        self.bytes(number, &message.0)
    }

    /// Zero is the default: it is left out.
    pub(crate) fn signed(mut self, number: u32, value: i64) -> Self {
        if value != 0 {
            self.varint(u64::from(number) << 3);
            self.varint(value.cast_unsigned());
        }
        self
    }

    pub(crate) fn flag(self, number: u32, value: bool) -> Self {
        self.signed(number, i64::from(value))
    }

    /// A list of numbers, packed as proto3 has them.
    pub(crate) fn list(self, number: u32, values: &[i64]) -> Self {
        if values.is_empty() {
            return self;
        }
        let mut packed = Self::default();
        for value in values {
            packed.varint(value.cast_unsigned());
        }
        self.message(number, packed)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = (value & 0x7f).to_le_bytes();
            value >>= 7;
            if value == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(message: &[u8]) -> Result<Vec<Field<'_>>, Malformed> {
        fields(message).collect()
    }

    #[test]
    fn bytes_are_as_in_the_description_of_the_encoding() {
        // The examples of the page named above.
        assert_eq!(read(&[0x08, 0x96, 0x01]), Ok(vec![(1, Value::Varint(150))]));
        assert_eq!(read(b"\x12\x07testing"), Ok(vec![(2, Value::Bytes(b"testing"))]));
        let minus_two = [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read(&minus_two).map(|all| all[0].1.signed()), Ok(Ok(-2)));
        assert_eq!(Writer::default().signed(1, -2).finish(), minus_two);
        assert_eq!(Writer::default().signed(1, 150).text(2, "testing").finish(), b"\x08\x96\x01\x12\x07testing");
        assert_eq!(Writer::default().list(6, &[3, 270, 86_942]).finish(), b"\x32\x06\x03\x8e\x02\x9e\xa7\x05");
        assert_eq!(Writer::default().text(1, "").flag(2, false).list(3, &[]).finish(), b"");
    }

    #[test]
    fn malformed_messages_are_refused() {
        for wrong in [
            &b"\x08"[..],
            b"\x0a\x02a",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x00\x01",
            b"\x0b",
            b"\x0d\0\0\0",
            b"\x09\0\0\0\0\0\0\0",
            b"\xff",
        ] {
            assert_eq!(read(wrong), Err(Malformed), "{wrong:?}");
        }
        assert_eq!(read(b"\x0d\0\0\0\0\x09\0\0\0\0\0\0\0\0"), Ok(vec![(1, Value::Fixed), (1, Value::Fixed)]));
        assert_eq!(Value::Bytes(&[0xff]).text(), Err(Malformed));
        assert_eq!(Value::Fixed.flag(), Err(Malformed));
    }

    proptest! {
        #[test]
        fn written_fields_are_read(number in 1..1_000_u32, value in any::<i64>(), text in ".{1,40}") {
            prop_assume!(value != 0);
            let message = Writer::default().signed(number, value).text(number + 1, &text).finish();
            let read = read(&message).expect("a message");
            prop_assert_eq!(read[0].1.signed(), Ok(value));
            prop_assert_eq!((read[1].0, read[1].1.text()), (number + 1, Ok(text.as_str())));
        }

        #[test]
        fn any_bytes_are_fields_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let count = fields(&bytes).filter(Result::is_ok).count();
            prop_assert!(count <= bytes.len() / 2);
        }
    }
}
