//! What `read` promises, case by case.

use super::*;
use sampan_monitor::logs::cri::Stream;
use sampan_monitor::logs::rotate::rotated_files;
use sampan_monitor::logs::write::LogWriter;

const T: &str = "2026-01-02T03:04:05.00000000";

fn stamp(n: usize) -> String {
    format!("{T}{n}Z")
}

/// A log whose line n (0 to 9) is `line n` at time n; stderr for odd ones.
fn log(max_bytes: u64, lines: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, mut scratch) = (LogWriter::open(&dir.path().join("3.log"), max_bytes, 5).unwrap(), Vec::new());
    for n in 0..lines {
        let stream = if n % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
        writer.write(stream, format!("line {n}\n").as_bytes(), &stamp(n), &mut scratch).unwrap();
    }
    dir
}

fn drain(reader: &mut LogReader, max: usize) -> String {
    let mut all = Vec::new();
    while let Chunk::Data(data) = reader.next_chunk(max).unwrap() {
        assert!(!data.is_empty());
        all.extend(data);
    }
    String::from_utf8(all).unwrap()
}

fn read(dir: &tempfile::TempDir, options: LogOptions) -> String {
    drain(&mut LogReader::open(dir.path(), 3, options).unwrap(), 7)
}

fn lines(range: std::ops::Range<usize>) -> String {
    range.map(|n| format!("line {n}\n")).collect()
}

#[test]
fn the_options_of_kubectl_logs() {
    let dir = log(1 << 20, 10);
    let all = LogOptions::default();
    assert_eq!(read(&dir, all.clone()), lines(0..10));
    for n in [0, 1, 3, 10, 99] {
        let tail = LogOptions { tail_lines: Some(n), ..all.clone() };
        let first = 10usize.saturating_sub(usize::try_from(n).unwrap());
        assert_eq!(read(&dir, tail), lines(first..10), "tail {n}");
    }
    let since = LogOptions { since: Some(stamp(7).parse().unwrap()), ..all.clone() };
    assert_eq!(read(&dir, since), lines(7..10));
    assert_eq!(read(&dir, LogOptions { limit_bytes: Some(10), ..all.clone() }), "line 0\nlin");
    assert_eq!(read(&dir, LogOptions { limit_bytes: Some(0), ..all.clone() }), "");
    let stderr = LogOptions { stream: Some(Stream::Stderr), tail_lines: Some(4), ..all.clone() };
    assert_eq!(read(&dir, stderr), "line 7\nline 9\n");
    let stamped = LogOptions { timestamps: true, tail_lines: Some(1), ..all };
    assert_eq!(read(&dir, stamped), format!("{} line 9\n", stamp(9)));
}

#[test]
fn tail_and_since_reach_back_over_rotations() {
    let dir = log(100, 10);
    assert!(rotated_files(&dir.path().join("3.log")).len() >= 3);
    let tail = LogOptions { tail_lines: Some(5), ..LogOptions::default() };
    assert_eq!(read(&dir, tail), lines(5..10));
    let since = LogOptions { since: Some(stamp(6).parse().unwrap()), ..LogOptions::default() };
    assert_eq!(read(&dir, since), lines(6..10));
}

#[test]
fn a_tail_ends_though_the_log_grows() {
    use std::io::Write;
    let dir = log(1 << 20, 10);
    let grow = |text: &str| {
        let mut file = File::options().append(true).open(dir.path().join("3.log")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    for (follow, expected) in [(false, lines(7..10)), (true, lines(7..10) + "later\n")] {
        let options = LogOptions { tail_lines: Some(3), follow, ..LogOptions::default() };
        let mut reader = LogReader::open(dir.path(), 3, options).unwrap();
        grow(&format!("{T}9Z stdout F later\n"));
        assert_eq!(drain(&mut reader, 7), expected, "follow {follow}");
        let text = std::fs::read_to_string(dir.path().join("3.log")).unwrap();
        std::fs::write(dir.path().join("3.log"), text.split_inclusive('\n').take(10).collect::<String>()).unwrap();
    }
}

#[test]
fn parts_of_a_line_become_one_and_carry_one_timestamp() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{T}0Z stdout P one \nnoise\n{T}1Z stdout F two\n{T}2Z stdout F \n{T}3Z stdout F torn");
    std::fs::write(dir.path().join("3.log"), text).unwrap();
    assert_eq!(read(&dir, LogOptions::default()), "one two\n\n");
    let stamped = LogOptions { timestamps: true, ..LogOptions::default() };
    assert_eq!(read(&dir, stamped), format!("{T}0Z one two\n{T}2Z \n"));
}

#[test]
fn a_missing_file_is_an_error_unless_following() {
    let dir = tempfile::tempdir().unwrap();
    assert!(LogReader::open(dir.path(), 3, LogOptions::default()).is_err());
    let mut reader = LogReader::open(dir.path(), 3, LogOptions { follow: true, ..LogOptions::default() }).unwrap();
    assert_eq!(reader.next_chunk(100).unwrap(), Chunk::Wait);
    std::fs::write(dir.path().join("3.log"), format!("{T}0Z stdout F here\n")).unwrap();
    smol::block_on(reader.changed()).unwrap();
    assert_eq!(reader.next_chunk(100).unwrap(), Chunk::Data(b"here\n".to_vec()));
    reader.container_ended();
    assert_eq!(reader.next_chunk(100).unwrap(), Chunk::End);
}

#[test]
fn following_goes_on_over_rotations() {
    let dir = log(1 << 20, 2);
    let options = LogOptions { follow: true, tail_lines: Some(1), ..LogOptions::default() };
    let mut reader = LogReader::open(dir.path(), 3, options).unwrap();
    let mut got = drain(&mut reader, 5);
    let path = dir.path().join("3.log");
    let (mut writer, mut scratch) = (LogWriter::open(&path, 200, 50).unwrap(), Vec::new());
    for n in 2..100 {
        writer.write(Stream::Stdout, format!("line {n}\n").as_bytes(), &stamp(n % 10), &mut scratch).unwrap();
        // Sometimes several rotations happen between two looks.
        if n % 17 == 0 {
            smol::block_on(reader.changed()).unwrap();
            got += &drain(&mut reader, 50);
            assert_eq!(reader.next_chunk(50).unwrap(), Chunk::Wait);
        }
    }
    reader.container_ended();
    got += &drain(&mut reader, 1000);
    assert_eq!(got, lines(1..100));
    assert_eq!(reader.next_chunk(50).unwrap(), Chunk::End);
}
