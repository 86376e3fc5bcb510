//! Paths that match a pattern with `*` and `?` in its parts. Reads folders, follows no link in search of them.

use std::path::{Path, PathBuf};

use crate::sys::sort::sort_by;

/// Existing paths below `root`, sorted.
pub(super) fn matching(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![root.to_path_buf()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = found.iter().flat_map(|folder| step(folder, part)).collect();
    }
    found
}

fn step(folder: &Path, part: &str) -> Vec<PathBuf> {
    if !part.contains(['*', '?']) {
        let path = folder.join(part);
        return Vec::from_iter(path.symlink_metadata().is_ok().then_some(path));
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let fits = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| fits(part.as_bytes(), name.as_bytes()));
    let mut paths: Vec<PathBuf> = entries.filter(|entry| fits(&entry.file_name())).map(|entry| entry.path()).collect();
    // ttyUSB10 after ttyUSB9.
    sort_by(&mut paths, |a, b| (a.as_os_str().len(), a).cmp(&(b.as_os_str().len(), b)));
    paths
}

/// Matches like a shell; a leading dot is an ordinary character.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|skip| name.get(skip..).is_some_and(|tail| fits(rest, tail))),
        (Some((b'?', rest)), Some((_, tail))) => fits(rest, tail),
        (Some((want, rest)), Some((got, tail))) if want == got => fits(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("tty*", "ttyUSB0", true),
            ("tty*0", "ttyUSB10", true),
            ("tty?", "tty10", false),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn in_the_order_of_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("dev")).unwrap();
        for name in ["t10", "t9", "u1"] {
            std::fs::write(dir.path().join("dev").join(name), "").unwrap();
        }
        let names = |pattern: &str| {
            let found = matching(dir.path(), pattern);
            found.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("/dev/t*"), ["t9", "t10"]);
        assert_eq!(names("/d*/u1"), ["u1"]);
        assert_eq!(names("/dev/none"), [""; 0]);
    }
}
