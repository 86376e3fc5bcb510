//! The imports of each source file's product code, read from its text. Re-exports (`pub use`) do not count as use by
//! the file itself.

use std::collections::BTreeMap;
use std::path::Path;

use crate::sources::product_code;

/// The imported paths as written, by module path of the file.
pub(crate) fn imports(root: &Path) -> BTreeMap<String, Vec<String>> {
    let module = |file: &Path| {
        let relative = file.strip_prefix(root).unwrap_or(file).with_extension("");
        let parts = relative.iter().filter_map(|part| part.to_str());
        parts.filter(|part| !matches!(*part, "mod" | "lib" | "main")).collect::<Vec<_>>().join("::")
    };
    product_code(root).iter().map(|(file, text)| (module(file), used(text))).collect()
}

fn used(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut all = Vec::new();
    for item in code.split(';') {
        let start = item.rfind("\nuse ").or_else(|| item.rfind("\n    use ")).or(item.starts_with("use ").then_some(0));
        if let Some(start) = start {
            let tree = item[start..].trim_start().trim_start_matches("use ");
            branches("", &tree.split_whitespace().collect::<Vec<_>>().join(" "), &mut all);
        }
    }
    // Paths in the code. A visibility (`pub(in crate::x)`) does not count.
    let code = code.replace("pub(in crate::", "").replace("pub(in super::", "");
    let in_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        // `super::super::x` is one path.
        if !code[..at].ends_with(in_path) {
            let path: String = code[at..].chars().take_while(|c| in_path(*c)).collect();
            // The beginning of a list is read above.
            all.extend(Some(path).filter(|path| !path.ends_with(':')));
        }
    }
    all
}

/// Expands `a::{b, c::{d}}` to `a::b`, `a::c::d`.
fn branches(before: &str, tree: &str, out: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((stem, rest)) = tree.split_once('{').filter(|(stem, _)| !stem.contains(',')) else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return out.push(format!("{before}{}", path.trim_end_matches("::self")));
    };
    let inside = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut from) = (0_usize, 0);
    for (at, letter) in inside.char_indices().chain([(inside.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                if !inside[from..at].trim().is_empty() {
                    branches(&format!("{before}{stem}"), &inside[from..at], out);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_lists_and_where_they_are_written_out() {
        let text = "use super::{a::{b, c}, m};\nfn f(x: super::super::d::E) -> crate::f::G { notsuper::h(); super::i() }\n\
                    pub(in crate::j) struct K; // super::l\n";
        let found = used(text);
        assert!(!found.iter().any(|one| one == "super"), "{found:?}");
        for path in ["super::a::b", "super::a::c", "super::super::d::E", "crate::f::G", "super::i"] {
            assert!(found.iter().any(|one| one == path), "{path} in {found:?}");
        }
        assert!(!found.iter().any(|one| one.contains('h') || one.contains('j') || one.contains('l')), "{found:?}");
    }
}
