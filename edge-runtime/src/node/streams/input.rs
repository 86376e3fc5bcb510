//! Meaning of a record that a client of exec, attach or port-forward has sent. Pure.

use edge_protocol::channel::{CLOSE, RESIZE, Record, STDIN};

use crate::sys::from_json::from_json;
use crate::sys::terminal::Size;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input<'a> {
    Bytes(&'a [u8]),
    /// No further bytes follow.
    End,
    /// New size of the client's terminal.
    Size(Size),
    /// Unknown or malformed; a newer bridge may send more.
    Other,
}

impl<'a> Input<'a> {
    pub(super) fn of(record: &'a Record) -> Self {
        match record.channel {
            STDIN => Self::Bytes(&record.data),
            CLOSE if record.data == [STDIN] => Self::End,
            RESIZE => from_json(&record.data).map_or(Self::Other, Self::Size),
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::channel::{OPENED, STATUS, STDERR, STDOUT};

    use super::*;

    #[test]
    fn client_sends_bytes_their_end_and_its_size() {
        let of = |channel, data: &[u8]| format!("{:?}", Input::of(&Record { channel, data: data.to_vec() }));
        assert_eq!(of(STDIN, b"ls"), "Bytes([108, 115])");
        assert_eq!(of(STDIN, b""), "Bytes([])", "which does not end it");
        assert_eq!(of(CLOSE, &[STDIN]), "End");
        assert_eq!(of(RESIZE, br#"{"Width":80,"Height":24}"#), "Size(Size { width: 80, height: 24 })");
    }

    #[test]
    fn other_records_are_ignored() {
        let records: [(u8, &[u8]); 12] = [
            (CLOSE, b""),
            (CLOSE, &[STDOUT]),
            (CLOSE, &[STDIN, STDIN]),
            (RESIZE, b""),
            (RESIZE, b"80x24"),
            (RESIZE, br#"{"Width":65536,"Height":-1}"#),
            (RESIZE, b"\xff"),
            (STDOUT, b"x"),
            (STDERR, b"x"),
            (STATUS, br#"{"status":"Success"}"#),
            (OPENED, b""),
            (99, b"x"),
        ];
        for (channel, data) in records {
            let record = Record { channel, data: data.to_vec() };
            assert_eq!(Input::of(&record), Input::Other, "{record:?}");
        }
    }
}
