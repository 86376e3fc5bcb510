//! Channels inside one byte stream: the records of exec, attach and port-forward.
//!
//! A record is one byte of channel, four bytes of length (big endian), and that many bytes. The numbers are those of
//! Kubernetes' `v5.channel.k8s.io` (k8s.io/apimachinery/pkg/util/remotecommand), so that the bridge passes them on.
//! Does not know the credit of streams or the meaning of the bytes.

/// Bytes for the process, or for the port.
pub const STDIN: u8 = 0;
/// Bytes of the process, or from the port.
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
/// How the command ended: the JSON of a `metav1.Status`, as in `v4.channel.k8s.io`. The last record.
pub const STATUS: u8 = 3;
/// New size of the terminal: `{"Width":80,"Height":24}`.
pub const RESIZE: u8 = 4;
/// Empty, first from the edge: the request is granted and its work has started.
pub const OPENED: u8 = 254;
/// One byte: the channel on which nothing follows.
pub const CLOSE: u8 = 255;

/// Most bytes of one record.
pub const MAX_RECORD: usize = 32 << 10;
/// Bytes before a record's payload.
pub const HEADER: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub channel: u8,
    pub data: Vec<u8>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a record of {0} bytes came where {MAX_RECORD} are allowed")]
pub struct TooLong(usize);

/// Encodes one record. `data` is at most [`MAX_RECORD`]; longer data needs several records (see [`records`]).
fn encode(channel: u8, data: &[u8], out: &mut Vec<u8>) {
    out.push(channel);
    out.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(data);
}

/// `data` on `channel` as bytes of the stream; no data is one empty record.
pub fn records(channel: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + HEADER);
    if data.is_empty() {
        encode(channel, data, &mut out);
    }
    for part in data.chunks(MAX_RECORD) {
        encode(channel, part, &mut out);
    }
    out
}

/// Cuts a stream's bytes, as they come, into records.
#[derive(Debug, Default)]
pub struct Records {
    held: Vec<u8>,
}

impl Records {
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend(bytes);
    }

    /// The next whole record.
    ///
    /// # Errors
    /// The peer announces more than [`MAX_RECORD`]: end the stream.
    pub fn next_record(&mut self) -> Result<Option<Record>, TooLong> {
        let Some((&[channel, a, b, c, d], rest)) = self.held.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_RECORD {
            return Err(TooLong(length));
        }
        let Some(data) = rest.get(..length) else { return Ok(None) };
        let data = data.to_vec();
        self.held.drain(..HEADER + length);
        Ok(Some(Record { channel, data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_any_cut() {
        let long = vec![7; MAX_RECORD + 1];
        let mut bytes = records(OPENED, b"");
        bytes.extend(records(STDOUT, &long));
        bytes.extend(records(CLOSE, &[STDOUT]));
        for cut in [1, 2, 5, 4096, bytes.len()] {
            let (mut reader, mut seen) = (Records::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                reader.push(piece);
                while let Some(record) = reader.next_record().unwrap() {
                    seen.push(record);
                }
            }
            let lengths: Vec<_> = seen.iter().map(|r| (r.channel, r.data.len())).collect();
            assert_eq!(lengths, [(OPENED, 0), (STDOUT, MAX_RECORD), (STDOUT, 1), (CLOSE, 1)]);
        }
    }

    #[test]
    fn a_record_too_long_is_refused_before_it_has_come() {
        let mut reader = Records::default();
        reader.push(&[STDIN, 0xff, 0, 0, 0]);
        assert_eq!(reader.next_record(), Err(TooLong(0xff00_0000)));
    }
}
