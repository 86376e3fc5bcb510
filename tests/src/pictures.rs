//! Pictures of the docs: the sizes in which `./scripts/page-pictures` makes them, and whether all of them are there.

/// Window at a desk, in pixels.
pub const DESK: (u32, u32) = (1440, 900);
/// Window of a phone, in pixels.
pub const PHONE: (u32, u32) = (390, 844);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
    }

    /// Returns the files of a folder.
    fn files(folder: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
    }

    fn file_name(path: &Path) -> Option<&str> {
        path.file_name()?.to_str()
    }

    /// Returns the names of the PNG files that a text names, without folders.
    fn named(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"-_./".contains(c));
        // A name may end a sentence.
        let pictures = words.map(|word| word.trim_end_matches('.')).filter(|word| word.ends_with(".png"));
        pictures.filter_map(|path| file_name(Path::new(path))).map(str::to_owned).collect()
    }

    /// Returns width and height of a PNG (PNG specification, 5.2 and 11.2.1: the signature, then the chunk IHDR).
    fn size(png: &[u8]) -> Option<(u32, u32)> {
        let header = png.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
        let number = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
        if header.get(4..8)? == b"IHDR" { Some((number(8)?, number(12)?)) } else { None }
    }

    #[test]
    fn pictures_are_found_in_a_text_and_measured() {
        let text = "![a](page-a.png) <img src=\"docs/page-b-dark.png\">, page-c.pngs. Not so page-d.png.";
        let names = ["page-a.png", "page-b-dark.png", "page-d.png"];
        assert_eq!(named(text), BTreeSet::from(names.map(str::to_owned)));
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x05\xa0\0\0\x03\x84\x08\x06";
        assert_eq!((size(png), size(&png[..20]), size(b"GIF89a")), (Some(DESK), None, None));
    }

    #[test]
    fn pictures_of_the_docs_are_there_and_no_others() {
        let docs = root().join("docs");
        let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
        let mut pages: Vec<PathBuf> = files(&docs).into_iter().filter(is_page).collect();
        pages.push(root().join("README.md"));
        let text = |page: &PathBuf| std::fs::read_to_string(page).expect("a page");
        let named: BTreeSet<String> = pages.iter().flat_map(|page| named(&text(page))).collect();
        assert!(!named.is_empty(), "the pages show pictures");
        for name in &named {
            let png = std::fs::read(docs.join(name)).unwrap_or_else(|error| panic!("docs/{name}: {error}"));
            let size = size(&png).unwrap_or_else(|| panic!("docs/{name} is no PNG"));
            assert!([DESK, PHONE].contains(&size), "docs/{name} is {size:?}: make it with ./scripts/page-pictures");
        }
        let there = files(&docs);
        let there = there.iter().filter_map(|path| file_name(path)).filter(|name| name.ends_with(".png"));
        let unused: Vec<&str> = there.filter(|name| name.starts_with("page-") && !named.contains(*name)).collect();
        assert!(unused.is_empty(), "no page of docs names {unused:?}");
    }
}
