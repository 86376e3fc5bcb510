//! Files with holes in PAX form, which `tar --sparse --format=posix` writes: an ordinary entry with a made-up name, whose
//! content is the pieces between the holes (GNU tar manual, "Storing Sparse Files", versions 0.0, 0.1 and 1.0).

use std::io::{self, Read};

/// Pieces of one file; tar itself writes a few thousand for a disk image.
const MOST_PIECES: u64 = 1 << 16;
const BLOCK: usize = 512;

/// PAX header of a sparse file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sparse {
    /// Its real name, if the entry's is made up.
    pub(super) name: Option<Vec<u8>>,
    /// Size of the file including holes.
    pub(super) size: u64,
    /// Offset and length of each piece; version 1.0 has it before the content.
    map: Option<Vec<(u64, u64)>>,
}

impl Sparse {
    /// Parses the keys and values of a PAX header; `None` for files that are not sparse.
    ///
    /// # Errors
    /// They do not fit together.
    pub(super) fn of<'a>(header: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> io::Result<Option<Self>> {
        let (mut sparse, mut found, mut major, mut size) = (Self::default(), false, 0, None);
        let mut pieces = Vec::new();
        for (key, value) in header {
            let Some(key) = key.strip_prefix(b"GNU.sparse.") else { continue };
            found = true;
            match key {
                b"name" => sparse.name = Some(value.to_vec()),
                b"major" => major = number(value)?,
                // Of versions 0 and 1.
                b"size" | b"realsize" => size = Some(number(value)?),
                b"offset" => pieces.push((number(value)?, 0)),
                b"numbytes" => pieces.last_mut().ok_or_else(|| bad("a length without an offset"))?.1 = number(value)?,
                b"map" => pieces = map(value)?,
                _ => {}
            }
        }
        if !found {
            return Ok(None);
        }
        sparse.size = size.ok_or_else(|| bad("its size is missing"))?;
        sparse.map = match major {
            0 => Some(pieces),
            1 => None,
            _ => return Err(bad("its version is not known")),
        };
        Ok(Some(sparse))
    }

    /// The pieces, in order. Reads them from the beginning of the content if they are there.
    ///
    /// # Errors
    /// They overlap, or lie outside the file.
    pub(super) fn pieces(&mut self, content: &mut impl Read) -> io::Result<Vec<(u64, u64)>> {
        let pieces = match self.map.take() {
            Some(map) => map,
            None => map_before(content)?,
        };
        let mut end = 0;
        for (offset, length) in &pieces {
            let next = offset.checked_add(*length).filter(|next| *offset >= end && *next <= self.size);
            end = next.ok_or_else(|| bad("its pieces overlap or lie outside of it"))?;
        }
        Ok(pieces)
    }
}

/// `offset,length,offset,length`.
fn map(text: &[u8]) -> io::Result<Vec<(u64, u64)>> {
    let numbers = text.split(|byte| *byte == b',').filter(|part| !part.is_empty()).map(number);
    let numbers: Vec<u64> = numbers.collect::<io::Result<_>>()?;
    let pairs = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    if numbers.len().is_multiple_of(2) { Ok(pairs.collect()) } else { Err(bad("an offset without a length")) }
}

/// Lines of decimal numbers, the first of which is the number of pieces; filled up to a whole block.
fn map_before(content: &mut impl Read) -> io::Result<Vec<(u64, u64)>> {
    let (mut block, mut at) = ([0; BLOCK], BLOCK);
    let mut line = || {
        let mut digits = Vec::new();
        loop {
            if at == BLOCK {
                content.read_exact(&mut block)?;
                at = 0;
            }
            at += 1;
            match block[at - 1] {
                b'\n' => return number(&digits),
                digit if digits.len() < 20 => digits.push(digit),
                _ => return Err(bad("a number of its map is too long")),
            }
        }
    };
    let count = line()?;
    if count > MOST_PIECES {
        return Err(bad("it has more than 65536 pieces"));
    }
    (0..count).map(|_| Ok((line()?, line()?))).collect()
}

fn number(text: &[u8]) -> io::Result<u64> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| bad("a number of its map is none"))
}

fn bad(why: &str) -> io::Error {
    io::Error::other(format!("a sparse file (GNU.sparse) that cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(header: &[(&str, &str)]) -> io::Result<Option<Sparse>> {
        Sparse::of(header.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())))
    }

    fn pieces(header: &[(&str, &str)], content: &[u8]) -> io::Result<Vec<(u64, u64)>> {
        of(header)?.unwrap().pieces(&mut &*content)
    }

    #[test]
    fn all_versions_are_understood() {
        let expected = vec![(1, 2), (10, 5)];
        let v00 = [
            ("size", "20"),
            ("numblocks", "2"),
            ("offset", "1"),
            ("numbytes", "2"),
            ("offset", "10"),
            ("numbytes", "5"),
        ];
        let v01 = [("size", "20"), ("name", "a"), ("map", "1,2,10,5")];
        let v10 = [("major", "1"), ("minor", "0"), ("name", "a"), ("realsize", "20")];
        let mut content = b"2\n1\n2\n10\n5\n".to_vec();
        content.resize(512, 0);
        for (header, content) in [(&v00[..], &b""[..]), (&v01, b""), (&v10, &content)] {
            let keys: Vec<String> = header.iter().map(|(key, _)| format!("GNU.sparse.{key}")).collect();
            let header: Vec<_> = keys.iter().zip(header).map(|(key, (_, value))| (key.as_str(), *value)).collect();
            assert_eq!(of(&header).unwrap().unwrap().size, 20);
            assert_eq!(pieces(&header, content).unwrap(), expected);
        }
        assert_eq!(of(&[("path", "x"), ("mtime", "1")]).unwrap(), None);
    }

    #[test]
    fn maps_that_do_not_fit_are_refused() {
        let with = |map: &str| pieces(&[("GNU.sparse.size", "20"), ("GNU.sparse.map", map)], b"");
        for bad in ["0,21", "5,5,9,1", "18446744073709551615,1", "1", "x,1", "-1,2"] {
            assert!(with(bad).is_err(), "{bad}");
        }
        assert!(with("0,20").is_ok() && with("").is_ok());
        assert!(of(&[("GNU.sparse.major", "2"), ("GNU.sparse.realsize", "1")]).is_err());
        assert!(of(&[("GNU.sparse.map", "0,1")]).is_err());
        let v10 = [("GNU.sparse.major", "1"), ("GNU.sparse.realsize", "1")];
        for bad in [&b"99999999\n"[..], b"1\n0\n"] {
            let mut content = bad.to_vec();
            content.resize(512, b'9');
            assert!(pieces(&v10, &content).is_err());
        }
    }
}
