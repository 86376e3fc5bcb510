//! Changes one value in the text of a configuration and keeps all other text, comments too. Pure. Edits mappings in lines, and
//! `{...}` in one line; the result is read again, and a text that it does not understand is refused.

use std::ops::Range;

use serde_yaml_ng::Value;

use crate::order::fields;

/// The text with `value` at `path`; the same text if it has that value.
///
/// # Errors
/// The text is not YAML, `path` leads through a value that is not a mapping, or the text cannot be edited by lines.
pub(crate) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, String> {
    let before: Value = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    let mut wanted = before.clone();
    let key = path.join(".");
    fields::set(&mut wanted, path, value.clone())
        .ok_or_else(|| format!("{key} lies below a value that is not a mapping"))?;
    if wanted == before {
        return Ok(text.to_owned());
    }
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
        last.push('\n');
    }
    let changed = change(&mut lines, path, &wanted).map(|()| lines.concat());
    let is_right = |text: &String| serde_yaml_ng::from_str::<Value>(text).is_ok_and(|after| after == wanted);
    changed.filter(is_right).ok_or_else(|| format!("{key} cannot be changed in place: use an editor, and config check"))
}

/// Edits the lines. `None` if it does not know the form of the text.
fn change(lines: &mut Vec<String>, path: &[&str], wanted: &Value) -> Option<()> {
    let (mut within, mut value, mut indent) = (0..lines.len(), wanted, 0);
    for (depth, key) in path.iter().enumerate() {
        value = value.get(*key)?;
        indent = within.clone().find_map(|at| column(&lines[at])).unwrap_or(indent);
        let Some(entry) = find(lines, within.clone(), indent, key) else {
            let value = path[depth + 1..].iter().try_fold(value, |value, key| value.get(*key))?;
            // The end of the file is after the comments there.
            let place = if depth == 0 { lines.len() } else { end(lines, within) };
            lines.splice(place..place, block(&path[depth..], indent, value));
            return Some(());
        };
        let (head, rest) = lines[entry.line].split_at(entry.colon);
        let (typed, comment) = parts(rest);
        if depth + 1 == path.len() || typed.starts_with('{') && entry.end == entry.line + 1 {
            let new = format!("{head} {}{comment}\n", flow(value));
            lines.splice(entry.line..entry.end, [new]);
            return Some(());
        }
        if !typed.is_empty() {
            return None;
        }
        within = entry.line + 1..entry.end;
        indent += 2;
    }
    None
}

/// A key and its value.
struct Entry {
    line: usize,
    /// First byte of the line behind the colon.
    colon: usize,
    /// Line after the value. Comments before the next key are that key's.
    end: usize,
}

/// The entry of a mapping whose keys stand in the column `indent` of these lines.
fn find(lines: &[String], within: Range<usize>, indent: usize, key: &str) -> Option<Entry> {
    let is_at = |at: &usize| column(&lines[*at]) == Some(indent);
    let (line, colon) = within.clone().filter(is_at).find_map(|at| Some((at, after_key(&lines[at], indent, key)?)))?;
    let next = (line + 1..within.end).find(|at| is_next(&lines[*at], indent)).unwrap_or(within.end);
    Some(Entry { line, colon, end: end(lines, line + 1..next) })
}

/// Column of the content of a line; none if it has only a comment.
fn column(line: &str) -> Option<usize> {
    let content = line.trim_start();
    (!content.is_empty() && !content.starts_with('#')).then(|| line.len() - content.len())
}

/// Whether a line ends the value of a key in the column `indent`. Items of a list may stand in that column.
fn is_next(line: &str, indent: usize) -> bool {
    let is_item = |content: &str| content.trim_end() == "-" || content.starts_with("- ");
    column(line).is_some_and(|at| at < indent || at == indent && !is_item(&line[at..]))
}

/// The line after the last one with content.
fn end(lines: &[String], within: Range<usize>) -> usize {
    within.clone().rev().find(|at| column(&lines[*at]).is_some()).map_or(within.start, |at| at + 1)
}

fn after_key(line: &str, indent: usize, key: &str) -> Option<usize> {
    let spelled = [key.to_owned(), format!("'{key}'"), format!("\"{key}\"")];
    let rest = spelled.iter().find_map(|key| line[indent..].strip_prefix(key.as_str()))?;
    let rest = rest.trim_start().strip_prefix(':')?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| line.len() - rest.len())
}

/// The value behind a colon, and the comment behind it with the spaces before it.
fn parts(rest: &str) -> (&str, &str) {
    let rest = rest.trim_end();
    let (mut quote, mut before) = (None, ' ');
    for (at, sign) in rest.char_indices() {
        match (quote, sign) {
            (None, '#') if before.is_whitespace() => {
                let value = rest[..at].trim_end();
                return (value.trim_start(), &rest[value.len()..]);
            }
            (None, '"' | '\'') if before.is_whitespace() || "[{,:'".contains(before) => quote = Some(sign),
            (Some(open), sign) if sign == open && !(open == '"' && before == '\\') => quote = None,
            _ => {}
        }
        before = sign;
    }
    (rest.trim_start(), "")
}

/// New lines for the last keys of a path.
fn block(path: &[&str], indent: usize, value: &Value) -> Vec<String> {
    let line = |(depth, key): (usize, &&str)| {
        let value = if depth + 1 == path.len() { format!(" {}", flow(value)) } else { String::new() };
        format!("{}{}:{value}\n", " ".repeat(indent + 2 * depth), flow(&Value::from(*key)))
    };
    path.iter().enumerate().map(line).collect()
}

/// A value in one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Sequence(all) => format!("[{}]", all.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Mapping(all) => {
            let pairs: Vec<String> = all.iter().map(|(key, value)| format!("{}: {}", flow(key), flow(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::String(text) if is_plain(text) => text.clone(),
        // Texts of JSON are texts of YAML.
        Value::String(text) => serde_json::Value::from(text.as_str()).to_string(),
        other => serde_yaml_ng::to_string(other).unwrap_or_default().trim_end().to_owned(),
    }
}

/// Whether a text needs no quotes, in a list or mapping either.
fn is_plain(text: &str) -> bool {
    let is_usual = |sign: char| sign.is_ascii_alphanumeric() || "-._/:@+=".contains(sign);
    text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '/')
        && text.chars().all(is_usual)
        && !text.ends_with(':')
        && matches!(serde_yaml_ng::from_str(text), Ok(Value::String(read)) if read == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, path: &[&str], value: &str) -> Result<String, String> {
        set(text, path, &serde_yaml_ng::from_str(value).unwrap())
    }

    const TEXT: &str = "# head\nmax-pods: 7  # few\nlogs:\n  # size\n  max-bytes: 1048576\n\n# pulls\n\
        pull: {window: '02:00-05:00'}  # night\nlabels:\n# max-pods: 1\n  'a': 'x # y'\n# end\n";

    #[test]
    fn only_the_value_changes() {
        for (path, value, old, new) in [
            (&["max-pods"][..], "9", "max-pods: 7  # few", "max-pods: 9  # few"),
            (&["logs", "max-bytes"], "4096", "  max-bytes: 1048576\n", "  max-bytes: 4096\n"),
            (&["logs", "max-files"], "3", "max-bytes: 1048576\n", "max-bytes: 1048576\n  max-files: 3\n"),
            (
                &["pull", "images"],
                "[a:1, '*']",
                "{window: '02:00-05:00'}  # night",
                "{window: 02:00-05:00, images: [a:1, \"*\"]}  # night",
            ),
            (&["labels", "a"], "z", "'a': 'x # y'\n", "'a': z\n"),
            (&["labels", "b.c/d"], "'1'", "'x # y'\n", "'x # y'\n  b.c/d: \"1\"\n"),
            (
                &["eviction", "hard", "pid.available"],
                "5%",
                "# end\n",
                "# end\neviction:\n  hard:\n    pid.available: \"5%\"\n",
            ),
            (&["labels"], "{}", "labels:\n# max-pods: 1\n  'a': 'x # y'\n", "labels: {}\n"),
        ] {
            assert!(TEXT.contains(old), "{old}");
            assert_eq!(with(TEXT, path, value).unwrap(), TEXT.replace(old, new), "{path:?}");
        }
        assert_eq!(with(TEXT, &["max-pods"], "7").unwrap(), TEXT);
    }

    #[test]
    fn empty_and_unfinished_texts_get_whole_lines() {
        assert_eq!(with("", &["max-pods"], "7").unwrap(), "max-pods: 7\n");
        assert_eq!(with("#a\n", &["logs", "max-files"], "7").unwrap(), "#a\nlogs:\n  max-files: 7\n");
        assert_eq!(with("---\nmax-pods: 7", &["node-name"], "a").unwrap(), "---\nmax-pods: 7\nnode-name: a\n");
        let empty = "logs:  # all\n    # max-files: 5\nmax-pods: 7\n";
        let wanted = "logs:  # all\n  max-files: 3\n    # max-files: 5\nmax-pods: 7\n";
        assert_eq!(with(empty, &["logs", "max-files"], "3").unwrap(), wanted);
        let wide = "logs:\r\n    max-bytes: 4096\r\n";
        assert_eq!(with(wide, &["logs", "max-files"], "3").unwrap(), format!("{wide}    max-files: 3\n"));
    }

    #[test]
    fn list_ends_before_the_next_key() {
        let text = "taints:\n- a=b:NoSchedule\n- c=d:NoSchedule\n\n# after\nmax-pods: 7\n";
        let wanted = "taints: [e=f:NoExecute]\n\n# after\nmax-pods: 7\n";
        assert_eq!(with(text, &["taints"], "['e=f:NoExecute']").unwrap(), wanted);
    }

    #[test]
    fn text_of_another_form_is_refused() {
        for text in
            ["{max-pods: 7}\n", "logs: &a {max-bytes: 1}\n", "logs: {max-bytes: 1,\n  b: 2}\n", "max-pods: 7\n...\n"]
        {
            assert!(
                with(text, &["logs", "max-files"], "3").unwrap_err().contains("logs.max-files cannot be"),
                "{text}"
            );
        }
        assert!(with("logs: 7\n", &["logs", "max-files"], "3").unwrap_err().contains("not a mapping"));
        assert!(with("logs: [", &["logs", "max-files"], "3").unwrap_err().contains("line"));
    }
}
