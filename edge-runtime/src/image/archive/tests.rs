//! Archives that are odd or cut.

use super::*;

#[test]
fn names_are_taken_from_the_root_of_the_archive() {
    assert_eq!(normal("./a//b/../c").as_deref(), Some("a/c"));
    assert_eq!(normal("/blobs/x").as_deref(), Some("blobs/x"));
    assert_eq!(normal("a/../../x"), None);
}

#[test]
fn links_of_old_archives_are_followed_and_cuts_are_seen() {
    let temp = tempfile::tempdir().unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    builder.append_data(&mut header, "one/layer.tar", &b"bytes"[..]).unwrap();
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "two/layer.tar", "../one/layer.tar").unwrap();
    builder.append_link(&mut link, "circle", "circle").unwrap();
    builder.append_link(&mut link, "out", "../../etc/passwd").unwrap();
    let tar = builder.into_inner().unwrap();
    let path = temp.path().join("image.tar");
    std::fs::write(&path, &tar).unwrap();
    let source = Source::open(Some(&path), temp.path(), &Limits::default()).unwrap();
    assert_eq!(source.read("two/layer.tar", 10).unwrap(), b"bytes");
    assert!(source.read("two/layer.tar", 4).is_err());
    assert!(!source.has("circle") && !source.has("out") && !source.has("none"));
    std::fs::write(&path, &tar[..514]).unwrap();
    let error = Source::open(Some(&path), temp.path(), &Limits::default()).err().unwrap().to_string();
    assert!(error.contains("image.tar") && error.contains("one/layer.tar"), "{error}");
    std::fs::write(&path, "no tar at all").unwrap();
    assert!(Source::open(Some(&path), temp.path(), &Limits::default()).is_err());
}
