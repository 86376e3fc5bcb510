//! The product code of a folder, as text: everything that is compiled without `cfg(test)`.

use std::path::{Path, PathBuf};

/// Returns the files below a folder, and their text without their own tests. Omits folders of tests, and files that are
/// modules of tests only.
///
/// # Panics
/// A folder or file cannot be read.
#[must_use]
pub fn product_code(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    walk(folder, &mut files);
    let mut tests = Vec::new();
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a source file");
    let mut all: Vec<(PathBuf, String)> = files.iter().map(|path| (path.clone(), read(path))).collect();
    for (path, text) in &mut all {
        tests.extend(test_modules(path, text));
        // Other files' tests use the helpers of one that is visible to them.
        let seen = ["", "pub(super) "].iter();
        let end = seen.filter_map(|seen| text.find(&format!("#[cfg(test)]\n{seen}mod tests {{"))).min();
        if let Some(end) = end {
            text.truncate(end);
        }
    }
    all.retain(|(path, _)| !tests.iter().any(|test| path.with_extension("").starts_with(test)));
    all
}

fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(name.as_str(), "tests" | "target") {
            walk(&path, out);
        } else if name.ends_with(".rs") {
            out.push(path);
        }
    }
}

/// Paths, without `.rs`, of the modules that a file declares for tests only.
fn test_modules(file: &Path, text: &str) -> Vec<PathBuf> {
    let is_face = file.file_name().is_some_and(|name| ["mod.rs", "lib.rs", "main.rs"].iter().any(|face| name == *face));
    let folder = if is_face { file.parent().unwrap_or(file).to_path_buf() } else { file.with_extension("") };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let of_tests = |pair: &[&str]| pair[0].starts_with("#[cfg(") && pair[0].contains("test");
    let modules = lines.windows(2).filter(|pair| of_tests(pair)).filter_map(|pair| {
        let (_, name) = pair[1].strip_suffix(';')?.split_once("mod ")?;
        Some(folder.join(name))
    });
    modules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_compiled_without_tests_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("lib.rs", "mod a;\n#[cfg(test)]\nmod checks;\n");
        write(
            "a.rs",
            "#[cfg(any(test, feature = \"testing\"))]\npub(crate) mod random;\nfn a() {}\n#[cfg(test)]\nmod tests {\n}\n",
        );
        write("a/random.rs", "");
        write("random.rs", "");
        write("selftest.rs", "fn b() {}\n#[cfg(test)]\npub(super) mod tests {\n}\n");
        write("checks.rs", "");
        write("checks/deep.rs", "");
        write("tests/one.rs", "");
        let found = product_code(folder.path());
        let mut names: Vec<_> =
            found.iter().map(|(path, _)| path.strip_prefix(folder.path()).expect("below")).collect();
        names.sort_unstable();
        assert_eq!(names, ["a.rs", "lib.rs", "random.rs", "selftest.rs"].map(Path::new));
        let (_, a) = found.iter().find(|(path, _)| path.ends_with("a.rs")).expect("a.rs");
        assert!(a.ends_with("fn a() {}\n"), "{a}");
        assert!(found.iter().any(|(_, text)| text == "fn b() {}\n"), "{found:?}");
    }
}
