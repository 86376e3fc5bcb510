//! Lines out of bytes as they come, with a bound. No I/O.

/// A line is longer than this number of bytes: the connection must be closed.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong(usize);

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a line of more than {} bytes", self.0)
    }
}

impl std::error::Error for TooLong {}

/// Received bytes that are not yet a line, and lines that are not yet taken.
#[derive(Debug)]
pub struct Splitter {
    most: usize,
    bytes: Vec<u8>,
    /// No line ends before this.
    looked: usize,
}

impl Splitter {
    /// `most`: bytes of a line without its end.
    pub const fn new(most: usize) -> Self {
        Self { most, bytes: Vec::new(), looked: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next line without its end; `None` until more bytes arrive.
    ///
    /// # Errors
    /// It is too long.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        if let Some(at) = self.bytes[self.looked..].iter().position(|byte| *byte == b'\n') {
            let rest = self.bytes.split_off(self.looked + at + 1);
            let mut line = std::mem::replace(&mut self.bytes, rest);
            line.pop();
            self.looked = 0;
            return Ok(Some(line));
        }
        self.looked = self.bytes.len();
        if self.looked > self.most { Err(TooLong(self.most)) } else { Ok(None) }
    }

    /// Received bytes that were not taken as lines.
    pub fn into_rest(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_lines_are_joined() {
        let text = b"a\n\nbc\nrest";
        for cut in 0..=text.len() {
            let (mut splitter, mut lines) = (Splitter::new(100), Vec::new());
            for piece in [&text[..cut], &text[cut..]] {
                splitter.push(piece);
                while let Ok(Some(line)) = splitter.next_line() {
                    lines.push(line);
                }
            }
            assert_eq!(lines, [&b"a"[..], b"", b"bc"], "cut at {cut}");
            assert_eq!(splitter.into_rest(), b"rest", "cut at {cut}");
        }
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut splitter = Splitter::new(1_000);
        splitter.push(&[b'x'; 1_000]);
        assert_eq!(splitter.next_line(), Ok(None));
        splitter.push(b"x");
        assert_eq!(splitter.next_line(), Err(TooLong(1_000)));
    }
}
