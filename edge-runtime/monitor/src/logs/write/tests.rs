//! Refused, dropped and counted lines of a log, and how it is opened again.

use super::*;

const T: &str = "2026-01-02T03:04:05.000000006Z";

fn all_text(log: &Path) -> String {
    let mut text = String::new();
    for path in rotate::rotated_files(log).iter().chain([&log.to_path_buf()]) {
        text += &fs::read_to_string(path).unwrap();
    }
    text
}

#[test]
fn rotation_loses_nothing_but_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("c/0.log");
    let (mut writer, mut scratch) = (LogWriter::open(&log, 1000, 5).unwrap(), Vec::new());
    for n in 0..200 {
        writer.write(Stream::Stdout, format!("line {n}\n").as_bytes(), T, &mut scratch).unwrap();
    }
    assert_eq!(rotate::rotated_files(&log).len(), 4);
    let text = all_text(&log);
    let numbers: Vec<u32> = text.lines().map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(*numbers.last().unwrap(), 199);
    assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "no gap: {numbers:?}");
    assert!(numbers.len() >= 80, "{}", numbers.len());
}

#[test]
fn limited_log_reports_dropped_lines() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let writer = LogWriter::open(&log, 1 << 20, 5).unwrap().limited(Some(1024));
    let (mut writer, mut scratch) = (writer, Vec::new());
    for _ in 0..5000 {
        writer.write(Stream::Stdout, &[b'x'; 99], T, &mut scratch).unwrap();
        writer.write(Stream::Stdout, b"\n", T, &mut scratch).unwrap();
    }
    writer.finish(T, &mut scratch).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let kept = text.lines().filter(|line| line.ends_with("xxx")).count();
    let said = text.lines().filter_map(|line| line.split_once("edge-runtime: ")?.1.split_once(" lines dropped"));
    let said: usize = said.map(|(number, _)| number.parse::<usize>().unwrap()).sum();
    assert!((2000..4000).contains(&kept), "{kept}");
    assert_eq!(kept + said, 5000, "every line is there or counted");
}

#[test]
fn a_torn_line_is_closed_when_the_file_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    fs::write(&log, "2026-01-02T03:04:05Z stdout F tor").unwrap();
    let (mut writer, mut scratch) = (LogWriter::open(&log, 1000, 5).unwrap(), Vec::new());
    writer.write(Stream::Stderr, b"next", T, &mut scratch).unwrap();
    writer.finish(T, &mut scratch).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text, format!("2026-01-02T03:04:05Z stdout F tor\n{T} stderr P next\n"));
}

/// A file like one on a read-only file system: it refuses bytes and another length.
fn refusing() -> File {
    let (reader, _) = io::pipe().unwrap();
    File::from(std::os::fd::OwnedFd::from(reader))
}

#[test]
fn what_a_bad_disk_refuses_is_counted_and_goes_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (bad, good) = (dir.path().join("bad/0.log"), dir.path().join("good/0.log"));
    let mut scratch = Vec::new();
    let mut one = LogWriter::open(&bad, 1 << 20, 5).unwrap();
    let mut other = LogWriter::open(&good, 1 << 20, 5).unwrap();
    one.file = Some(refusing());
    fs::rename(dir.path().join("bad"), dir.path().join("away")).unwrap();
    fs::write(dir.path().join("bad"), "").unwrap();
    for _ in 0..1000 {
        one.write(Stream::Stdout, &b"mine\n".repeat(100), T, &mut scratch).unwrap_err();
        other.write(Stream::Stdout, b"yours\n", T, &mut scratch).unwrap();
        assert!(scratch.is_empty());
    }
    assert!(scratch.capacity() < 256 << 10, "{}", scratch.capacity());
    let text = fs::read_to_string(&good).unwrap();
    assert!(text.lines().count() == 1000 && !text.contains("mine"));
    fs::remove_file(dir.path().join("bad")).unwrap();
    fs::rename(dir.path().join("away"), dir.path().join("bad")).unwrap();
    std::thread::sleep(AGAIN);
    one.write(Stream::Stdout, b"again\n", T, &mut scratch).unwrap();
    one.write(Stream::Stdout, b"and on\n", T, &mut scratch).unwrap();
    let text = fs::read_to_string(&bad).unwrap();
    let lines: Vec<_> = text.lines().map(|line| &line[T.len() + 1..]).collect();
    assert!(lines[0].starts_with("stderr F [edge-runtime: 100000 lines dropped, they could not be written: "));
    assert_eq!(lines[1..], ["stdout F again", "stdout F and on"], "told once");
}

#[test]
fn a_file_that_refuses_is_opened_anew_where_its_path_leads() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("pod/c/0.log");
    let (mut writer, mut scratch) = (LogWriter::open(&log, 1 << 20, 5).unwrap(), Vec::new());
    writer.write(Stream::Stdout, b"first\n", T, &mut scratch).unwrap();
    // The same file again: half a batch, which could not be removed, is discarded.
    writer.file = Some(refusing());
    writer.write(Stream::Stdout, b"lost\nlost\n", T, &mut scratch).unwrap_err();
    assert!(writer.file.is_none(), "nothing is held of a file system that has failed");
    let half = fs::read_to_string(&log).unwrap() + T + " stdout F lost\n" + T + " std";
    fs::write(&log, half).unwrap();
    let why = writer.write(Stream::Stdout, b"lost\n", T, &mut scratch).unwrap_err();
    assert!(why.to_string().contains("Bad file descriptor"), "not before a pause, and it says why: {why}");
    std::thread::sleep(AGAIN);
    writer.write(Stream::Stdout, b"second\n", T, &mut scratch).unwrap();
    let of = |log: &Path| -> Vec<String> {
        fs::read_to_string(log).unwrap().lines().map(|line| line[T.len() + 1..].to_owned()).collect()
    };
    let lines = of(&log);
    assert_eq!((lines.len(), &*lines[0], &*lines[2]), (3, "stdout F first", "stdout F second"), "{lines:?}");
    assert!(lines[1].contains("3 lines dropped"), "{lines:?}");
    // Another card: nothing of it is there yet.
    fs::rename(dir.path().join("pod"), dir.path().join("old")).unwrap();
    writer.file = Some(refusing());
    writer.write(Stream::Stdout, b"lost\n", T, &mut scratch).unwrap_err();
    std::thread::sleep(AGAIN);
    writer.write(Stream::Stdout, b"third\n", T, &mut scratch).unwrap();
    let lines = of(&log);
    assert_eq!((lines.len(), &*lines[1]), (2, "stdout F third"), "{lines:?}");
}

#[test]
fn a_log_goes_on_where_its_path_leads() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("pod/c/0.log");
    let (mut writer, mut scratch) = (LogWriter::open(&log, 1 << 20, 5).unwrap(), Vec::new());
    // The same effect as a mount over it.
    fs::rename(dir.path().join("pod"), dir.path().join("hidden")).unwrap();
    writer.write(Stream::Stdout, b"hidden\n", T, &mut scratch).unwrap();
    writer.seen -= LOOK;
    writer.write(Stream::Stdout, b"seen\n", T, &mut scratch).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.ends_with("stdout F seen\n") && text.lines().count() == 1, "{text}");
    writer.seen -= LOOK;
    writer.write(Stream::Stdout, b"on\n", T, &mut scratch).unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2);
}

#[test]
fn a_log_whose_folder_is_gone_begins_anew_instead_of_growing_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("pod/c/0.log");
    let (mut writer, mut scratch) = (LogWriter::open(&log, 1000, 5).unwrap(), Vec::new());
    fs::remove_dir_all(dir.path().join("pod")).unwrap();
    for _ in 0..100 {
        // Into a file without a name, and then nowhere.
        let _ = writer.write(Stream::Stdout, b"lost\n", T, &mut scratch);
    }
    std::thread::sleep(AGAIN);
    writer.write(Stream::Stdout, b"there\n", T, &mut scratch).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    assert!(
        text.contains(" lines dropped, they could not be written: ") && text.ends_with("stdout F there\n"),
        "{text}"
    );
}

#[test]
fn a_rotation_that_finds_no_inode_is_made_up_for() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let flags = nix::mount::MsFlags::empty();
    // The root, the container's folder, its log, and none for another.
    nix::mount::mount(Some("logs"), dir.path(), Some("tmpfs"), flags, Some("nr_inodes=3")).unwrap();
    let log = dir.path().join("c/0.log");
    let (mut writer, mut scratch) = (LogWriter::open(&log, 1000, 5).unwrap(), Vec::new());
    let mut failures = 0;
    for n in 0..200 {
        let line = format!("line {n}\n");
        failures += usize::from(writer.write(Stream::Stdout, line.as_bytes(), T, &mut scratch).is_err());
    }
    let (size, names) = (fs::metadata(&log).unwrap().len(), fs::read_dir(log.parent().unwrap()).unwrap().count());
    nix::mount::mount(None::<&str>, dir.path(), None::<&str>, nix::mount::MsFlags::MS_REMOUNT, Some("nr_inodes=9"))
        .unwrap();
    std::thread::sleep(AGAIN);
    for _ in 0..2 {
        writer.write(Stream::Stdout, b"well\n", T, &mut scratch).unwrap();
    }
    let (text, rotated) = (all_text(&log), rotate::rotated_files(&log).len());
    drop(writer);
    nix::mount::umount(dir.path()).unwrap();
    assert!(
        failures > 0 && (2000..2100).contains(&size) && names == 1,
        "{failures} failures, {size} bytes, {names} files"
    );
    assert_eq!(rotated, 1);
    assert!(
        text.ends_with("stdout F well\n") && text.contains(" lines dropped, they could not be written: "),
        "{text}"
    );
}

#[test]
fn a_log_that_cannot_be_opened_yet_counts() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("pod/c/0.log");
    fs::write(dir.path().join("pod"), "").unwrap();
    assert!(LogWriter::open(&log, 1000, 5).is_err());
    let (mut writer, opened) = LogWriter::open_some_time(&log, 1000, 5);
    opened.unwrap_err();
    let mut scratch = Vec::new();
    writer.write(Stream::Stdout, b"lost\n", T, &mut scratch).unwrap_err();
    fs::remove_file(dir.path().join("pod")).unwrap();
    std::thread::sleep(AGAIN);
    writer.write(Stream::Stdout, b"kept\n", T, &mut scratch).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("1 lines dropped") && text.ends_with("stdout F kept\n"), "{text}");
}
