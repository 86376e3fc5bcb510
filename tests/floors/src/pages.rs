//! Parts of documents that are made from code: a test compares them, or writes them when `SAMPAN_UPDATE_DOCS` is set.

use std::path::Path;

/// Compares a part of `docs/PAGE` with `text`, or writes it there. The part stands between the lines
/// `<!-- begin NAME -->` and `<!-- end NAME -->`; the rest of the page is written by people. One test holds all parts of
/// a page: tests run at the same time.
///
/// # Panics
/// The page has no such part, or another text; the message has `again`, the command that writes it.
pub fn hold(page: &str, name: &str, text: &str, again: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let have = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("docs/{page}: {error}"));
    let want = with_part(&have, name, text).unwrap_or_else(|| panic!("docs/{page} has no part {name}"));
    if std::env::var_os("SAMPAN_UPDATE_DOCS").is_some() {
        std::fs::write(&path, want).expect("written");
        return;
    }
    for (have, want) in have.lines().zip(want.lines()) {
        assert_eq!(have, want, "docs/{page} is out of date; this writes it: {again}");
    }
    assert_eq!(have.lines().count(), want.lines().count(), "docs/{page} is out of date; this writes it: {again}");
}

/// Text for a cell of a table in Markdown, or for a paragraph.
#[must_use]
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

/// Text as code in a cell of a table.
#[must_use]
pub fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// The page with another text in a part, or `None` without that part.
fn with_part(page: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->\n"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_part_changes() {
        let page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n";
        let changed = with_part(page, "x", "\nnew\n").unwrap();
        assert_eq!(changed, "a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n");
        assert_eq!(with_part(&changed, "x", "new").as_deref(), Some(changed.as_str()), "a second time changes nothing");
        assert_eq!(with_part(page, "z", "new"), None);
    }

    #[test]
    fn signs_of_tables_are_escaped() {
        assert_eq!((cell("a|b <c>"), code("a|b")), ("a\\|b &lt;c>".to_owned(), "`a\\|b`".to_owned()));
    }
}
