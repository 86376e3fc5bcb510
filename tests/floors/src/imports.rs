//! The imports of each source file's product code, read from its text. Re-exports (`pub use`) do not count as use by
//! the file itself.

use std::collections::BTreeMap;
use std::path::Path;

use crate::sources::product_code;

/// Which paths count as imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// Those of `use`, and those that begin with `crate` or `super`.
    Imports,
    /// Also those that begin with a module of the file's own: calls of its children.
    Calls,
}

/// The imported paths as written, by module path of the file.
pub(crate) fn imports(root: &Path, paths: Paths) -> BTreeMap<String, Vec<String>> {
    let module = |file: &Path| {
        let relative = file.strip_prefix(root).unwrap_or(file).with_extension("");
        let parts = relative.iter().filter_map(|part| part.to_str());
        parts.filter(|part| !matches!(*part, "mod" | "lib" | "main")).collect::<Vec<_>>().join("::")
    };
    product_code(root).iter().map(|(file, text)| (module(file), used(text, paths))).collect()
}

fn used(text: &str, paths: Paths) -> Vec<String> {
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
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        // `super::super::x` is one path.
        if !code[..at].ends_with(in_path) {
            let path: String = code[at..].chars().take_while(|c| in_path(*c)).collect();
            // The beginning of a list is read above.
            all.extend(Some(path).filter(|path| !path.ends_with(':')));
        }
    }
    if paths == Paths::Calls {
        all.extend(relative(&code));
    }
    all
}

fn in_path(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | ':')
}

/// Paths that may begin with a module of the file. Whether they do, the caller knows.
fn relative(code: &str) -> Vec<String> {
    let mut in_re_export = false;
    let lines = code.lines().filter(|line| {
        let line = line.trim();
        let visibility = line.split_once("use ").map(|(before, _)| before.trim_end());
        in_re_export |=
            visibility.is_some_and(|before| before == "pub" || (before.starts_with("pub(") && before.ends_with(')')));
        let skipped = in_re_export;
        in_re_export &= !line.ends_with(';');
        !skipped
    });
    let begins_with_a_module = |path: &&str| path.starts_with(|letter: char| letter.is_ascii_lowercase());
    let paths = lines.flat_map(|line| line.split(|letter: char| !in_path(letter))).filter(begins_with_a_module);
    paths.filter(|path| path.contains("::") && !path.ends_with(':')).map(str::to_owned).collect()
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
        let found = used(text, Paths::Imports);
        assert!(!found.iter().any(|one| one == "super"), "{found:?}");
        for path in ["super::a::b", "super::a::c", "super::super::d::E", "crate::f::G", "super::i"] {
            assert!(found.iter().any(|one| one == path), "{path} in {found:?}");
        }
        assert!(!found.iter().any(|one| one.contains('h') || one.contains('j') || one.contains('l')), "{found:?}");
    }

    #[test]
    fn calls_of_own_modules_are_found_and_re_exports_are_not() {
        let text = "mod a;\npub use a::Seen;\npub(super) use a::{B,\n    c::D};\n\
                    fn f() { let all: Vec<_> = a::g().collect::<Vec<_>>(); }\n";
        assert_eq!(used(text, Paths::Calls), ["a::g"]);
        assert!(used(text, Paths::Imports).is_empty());
    }
}
