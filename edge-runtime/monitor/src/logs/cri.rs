//! The CRI log line: `RFC3339NANO STREAM TAG CONTENT`, tag `F` for a full line and `P` for a part of one. Pure.
//!
//! Format of the kubelet (pkg/kubelet/kuberuntime/logs) and of every collector that reads `/var/log/pods`.

/// A line longer than this is cut into parts, as containerd does by default.
pub const MAX_PART: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Turns what one container stream wrote into log lines; keeps the unfinished last line for the next call.
#[derive(Debug, Default)]
pub struct LineSplitter {
    carry: Vec<u8>,
}

impl LineSplitter {
    /// Appends to `out` the lines that `input` completes. `stamp` is the time they all carry.
    pub fn push(&mut self, stamp: &str, stream: Stream, input: &[u8], out: &mut Vec<u8>) {
        let mut rest = input;
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            self.full_line(stamp, stream, &rest[..end], out);
            rest = &rest[end + 1..];
        }
        self.carry.extend_from_slice(rest);
        let mut taken = 0;
        while self.carry.len() - taken >= MAX_PART {
            entry(stamp, stream, b'P', &self.carry[taken..taken + MAX_PART], out);
            taken += MAX_PART;
        }
        if taken > 0 {
            self.carry.drain(..taken);
        }
        if self.carry.is_empty() {
            // A hundred quiet containers must not keep a hundred buffers.
            self.carry = Vec::new();
        }
    }

    /// The stream has ended: what is left is a part that nothing follows, as containerd logs it.
    pub fn finish(&mut self, stamp: &str, stream: Stream, out: &mut Vec<u8>) {
        if !self.carry.is_empty() {
            entry(stamp, stream, b'P', &self.carry, out);
            self.carry = Vec::new();
        }
    }

    fn full_line(&mut self, stamp: &str, stream: Stream, end: &[u8], out: &mut Vec<u8>) {
        if self.carry.is_empty() && end.len() <= MAX_PART {
            return entry(stamp, stream, b'F', end, out);
        }
        self.carry.extend_from_slice(end);
        let mut line = self.carry.as_slice();
        while line.len() > MAX_PART {
            entry(stamp, stream, b'P', &line[..MAX_PART], out);
            line = &line[MAX_PART..];
        }
        entry(stamp, stream, b'F', line, out);
        self.carry.clear();
    }
}

pub(super) fn entry(stamp: &str, stream: Stream, tag: u8, content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(stamp.as_bytes());
    out.push(b' ');
    out.extend_from_slice(stream.name().as_bytes());
    out.extend_from_slice(&[b' ', tag, b' ']);
    out.extend_from_slice(content);
    out.push(b'\n');
}

/// One parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub stamp: &'a str,
    pub stream: Stream,
    /// Whether the line continues: the container has not ended it here.
    pub partial: bool,
    pub content: &'a [u8],
}

/// Parses one line without its newline. `None` for other lines (torn by a power cut, foreign).
pub fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let (stamp, rest) = split_word(line)?;
    let (stream, rest) = split_word(rest)?;
    let stream = match stream {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    // The tag is a list separated by colons, of which the first counts; content may be empty.
    let (tags, content) = split_word(rest).unwrap_or((rest, &[]));
    let partial = match tags.split(|&b| b == b':').next()? {
        b"F" => false,
        b"P" => true,
        _ => return None,
    };
    let stamp = std::str::from_utf8(stamp).ok().filter(|s| s.len() >= 20)?;
    Some(Entry { stamp, stream, partial, content })
}

fn split_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|&b| b == b' ')?;
    Some((&line[..at], &line[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "2026-01-02T03:04:05.000000006Z";

    fn text(chunks: &[&[u8]]) -> Vec<String> {
        let (mut splitter, mut out) = (LineSplitter::default(), Vec::new());
        for chunk in chunks {
            splitter.push(T, Stream::Stdout, chunk, &mut out);
        }
        splitter.finish(T, Stream::Stdout, &mut out);
        String::from_utf8(out).unwrap().lines().map(|l| l.strip_prefix(T).unwrap().to_owned()).collect()
    }

    #[test]
    fn lines_are_whole_wherever_reads_are_cut() {
        assert_eq!(
            text(&[b"a\nb", b"c\n", b"\n", b"end"]),
            [" stdout F a", " stdout F bc", " stdout F ", " stdout P end"]
        );
        assert!(text(&[b""]).is_empty());
    }

    #[test]
    fn long_lines_become_parts() {
        let long = vec![b'x'; 2 * MAX_PART + 5];
        let mut line = long.clone();
        line.push(b'\n');
        for lines in [text(&[&line]), text(&[&line[..100], &line[100..MAX_PART + 7], &line[MAX_PART + 7..]])] {
            let tags: Vec<_> = lines.iter().map(|l| (&l[..10], l.len() - 10)).collect();
            assert_eq!(tags, [(" stdout P ", MAX_PART), (" stdout P ", MAX_PART), (" stdout F ", 5)]);
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_ends_with_a_full_entry() {
        let mut line = vec![b'x'; MAX_PART];
        line.push(b'\n');
        let one = text(&[&line]);
        assert_eq!((one.len(), &one[0][..10]), (1, " stdout F "));
        // Cut just before its newline, the part has gone out already: the rest is an empty full entry.
        let two = text(&[&line[..MAX_PART], b"\n"]);
        assert_eq!((two.len(), &two[0][..10], two[1].as_str()), (2, " stdout P ", " stdout F "));
    }

    #[test]
    fn entries_are_parsed_back() {
        let entry = parse(b"2026-01-02T03:04:05.000000006Z stderr P a b ").unwrap();
        assert_eq!(entry, Entry { stamp: T, stream: Stream::Stderr, partial: true, content: b"a b " });
        assert_eq!(parse(b"2026-01-02T03:04:05Z stdout F").unwrap().content, b"");
        assert_eq!(parse(b"2026-01-02T03:04:05Z stdout F:x y").unwrap().content, b"y");
        for bad in [&b""[..], b"2026", b"2026-01-02T03:04:05Z std", b"2026-01-02T03:04:05Z stdin F x", b"x stdout F y"]
        {
            assert_eq!(parse(bad), None);
        }
    }
}
