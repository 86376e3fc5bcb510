//! Sizes of a client's terminal: JSON values one after another, cut anywhere. Pure.

use serde::{Deserialize, Serialize};

/// Bytes of a value that is not whole yet. One has thirty.
const MAX: usize = 1024;

#[derive(Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

/// Reads sizes.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    held: Vec<u8>,
}

impl Sizes {
    /// The last complete size, in a node's form. Malformed sizes are dropped.
    pub(super) fn newest(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.held.extend(bytes);
        let mut values = serde_json::Deserializer::from_slice(&self.held).into_iter::<Size>();
        let mut newest = None;
        let mut read = 0;
        loop {
            match values.next() {
                Some(Ok(size)) => {
                    newest = Some(size);
                    read = values.byte_offset();
                }
                Some(Err(error)) if error.is_eof() => break,
                Some(Err(_)) => {
                    read = self.held.len();
                    break;
                }
                None => {
                    read = self.held.len();
                    break;
                }
            }
        }
        self.held.drain(..read);
        if self.held.len() > MAX {
            self.held.clear();
        }
        newest.and_then(|size| serde_json::to_vec(&size).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_cut_and_in_rows() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.newest(b"{\"Width\":80,\"Hei"), None);
        assert_eq!(sizes.newest(b"ght\":24}\n{\"Width\":1,\"Height\":2}\n").unwrap(), b"{\"Width\":1,\"Height\":2}");
        assert_eq!(sizes.newest(b"{\"Width\":100,\"Height\":40}").unwrap(), b"{\"Width\":100,\"Height\":40}");
    }

    #[test]
    fn nonsense_is_dropped() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.newest(b"hello"), None);
        assert_eq!(sizes.newest(b"{\"Width\":-1,\"Height\":40}"), None);
        assert_eq!(sizes.newest(&[b' '; 4096]), None);
        assert_eq!(sizes.newest(b"{\"Width\":1,\"Height\":2}").unwrap(), b"{\"Width\":1,\"Height\":2}");
    }
}
