//! Records before a tar entry: long names, PAX headers, maps of sparse files. They are bounded, because the tar reader
//! keeps all of them in memory, whatever size they claim. PAX headers are parsed here, because that reader splits them
//! at line breaks, which attribute values may contain (composefs/tar-rs#428).

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use tar::{EntryType, Header};

/// Bytes of all records before one entry. Attributes of a file are at most 64 KiB each (xattr(7)).
const MOST: u64 = 1 << 20;
const BLOCK: usize = 512;

/// The bytes that may be read before the next entry, and those that were.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowance(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    /// Remaining allowance; `None` while content is read, which is counted separately.
    left: Option<u64>,
    /// Bytes of the tar that were read.
    position: u64,
    /// Where `seen` begins.
    from: u64,
    /// Bytes read since the end of the last content.
    seen: Vec<u8>,
}

impl Allowance {
    /// The next entry is looked for.
    pub(super) fn records(&self) {
        let mut state = self.0.borrow_mut();
        state.left = Some(MOST);
        state.from = state.position;
        state.seen.clear();
    }

    /// Its content is read.
    pub(super) fn content(&self) {
        self.0.borrow_mut().left = None;
    }

    /// The records before the entry that was found.
    ///
    /// # Errors
    /// They are not of the form of POSIX.
    pub(super) fn found(&self) -> io::Result<Records> {
        let state = self.0.borrow();
        let padding = state.from.next_multiple_of(BLOCK as u64) - state.from;
        let seen = usize::try_from(padding).ok().and_then(|padding| state.seen.get(padding..));
        Records::of(seen.unwrap_or_default())
    }
}

/// Records before one entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    /// Keys and values of the PAX header, in order.
    pax: Vec<(Vec<u8>, Vec<u8>)>,
    /// GNU tar's long name and long link have precedence over the header's, as in Go's archive/tar.
    long_name: bool,
    long_link: bool,
}

impl Records {
    /// Parses whole blocks, the last of which is the entry's own header.
    fn of(mut blocks: &[u8]) -> io::Result<Self> {
        let mut records = Self::default();
        while let Some((block, rest)) = blocks.split_at_checked(BLOCK) {
            let header = Header::from_byte_slice(block);
            let kind = header.entry_type();
            if !matches!(kind, EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink) {
                break;
            }
            let size = usize::try_from(header.entry_size()?).ok();
            let Some(content) = size.and_then(|size| rest.get(..size)) else { break };
            match kind {
                EntryType::GNULongName => records.long_name = true,
                EntryType::GNULongLink => records.long_link = true,
                _ => records.pax = pax(content)?,
            }
            blocks = rest.get(content.len().next_multiple_of(BLOCK)..).unwrap_or_default();
        }
        Ok(records)
    }

    /// Keys and values of the PAX header.
    pub(super) fn pax(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pax.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    /// The name that the PAX header gives the entry.
    pub(super) fn name(&self) -> Option<&[u8]> {
        self.last(b"path").filter(|_| !self.long_name)
    }

    /// Where a link leads by the PAX header.
    pub(super) fn link(&self) -> Option<&[u8]> {
        self.last(b"linkpath").filter(|_| !self.long_link)
    }

    /// An owner that has no place in the entry's own header.
    ///
    /// # Errors
    /// The value is not a 32-bit number.
    pub(super) fn id(&self, key: &str) -> io::Result<Option<u32>> {
        let Some(value) = self.last(key.as_bytes()) else { return Ok(None) };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.map(Some).ok_or_else(|| io::Error::other(format!("its {key} in the PAX header is none")))
    }

    /// The last value of a key counts; an empty value removes the key (POSIX pax, "pax Extended Header").
    fn last(&self, key: &[u8]) -> Option<&[u8]> {
        let found = self.pax.iter().rev().find(|(own, _)| own == key)?;
        Some(found.1.as_slice()).filter(|value| !value.is_empty())
    }
}

/// Records `LENGTH KEY=VALUE\n`, where the length is of the whole record and the value is any bytes (POSIX pax, "pax
/// Extended Header"; so does `parsePAXRecord` of Go's archive/tar, with which Docker and containerd read layers).
fn pax(mut content: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut records = Vec::new();
    while !content.is_empty() {
        let (record, rest) = record(content).ok_or_else(|| io::Error::other("its PAX header is malformed"))?;
        records.push(record);
        content = rest;
    }
    Ok(records)
}

type Record = (Vec<u8>, Vec<u8>);

fn record(content: &[u8]) -> Option<(Record, &[u8])> {
    let space = content.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&content[..space]).ok()?.parse().ok()?;
    let (record, rest) = content.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=').filter(|equals| *equals > 0)?;
    Some(((record[..equals].to_vec(), record[equals + 1..].to_vec()), rest))
}

/// A tar that is read within the allowance.
pub(super) struct Bounded<R> {
    pub(super) tar: R,
    pub(super) allowance: Allowance,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.0.borrow().left;
        if left == Some(0) {
            return Err(io::Error::other("the records before an entry (long names, PAX headers) have more than 1 MiB"));
        }
        let most = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX)).min(buffer.len());
        let read = self.tar.read(&mut buffer[..most])?;
        let mut state = self.allowance.0.borrow_mut();
        state.position = state.position.saturating_add(read as u64);
        if let Some(left) = left {
            state.left = Some(left.saturating_sub(read as u64));
            state.seen.extend_from_slice(&buffer[..read]);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(content: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
        let records = pax(content).ok()?;
        Some(records.into_iter().map(|(key, value)| (String::from_utf8(key).unwrap(), value)).collect())
    }

    #[test]
    fn pax_values_may_have_line_breaks() {
        let record = |key: &str, value: &[u8]| {
            let rest = [&b" "[..], key.as_bytes(), b"=", value, b"\n"].concat();
            let length = (1..).find(|length: &usize| length.to_string().len() + rest.len() == *length).unwrap();
            [length.to_string().as_bytes(), &rest].concat()
        };
        let capability = [1, 0, 0, 2, 2, 0, b'\n', b'\n', 0];
        let forged = b"x\n13 path=no\n";
        let records = [record("SCHILY.xattr.a", &capability), record("comment", forged), record("path", b"yes")];
        let header = records.concat();
        let read = keys(&header).unwrap();
        assert_eq!(read[0], ("SCHILY.xattr.a".to_owned(), capability.to_vec()));
        assert_eq!(read[1], ("comment".to_owned(), forged.to_vec()));
        assert_eq!((&read[2], read.len()), (&("path".to_owned(), b"yes".to_vec()), 3));
        assert_eq!(keys(&record("origin", b"")).unwrap(), [("origin".to_owned(), Vec::new())]);
    }

    #[test]
    fn malformed_pax_headers_are_refused() {
        let short = ["x", "5", "5 a=b", "6 a=b", "4 ab\n", "\n"];
        for bad in short.into_iter().chain(["7 a=b\n", "99 a=b\n", "5 =b\n", "-1 a=\n", "0 a=b\n"]) {
            assert!(pax(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(keys(b"6 a=b\n").unwrap(), [("a".to_owned(), b"b".to_vec())]);
        assert!(keys(b"").unwrap().is_empty());
    }
}
