//! Names the field of a text in which an error was noticed.

/// Where in the text an error was noticed, in bytes. serde_json counts lines and columns from one.
pub(super) fn offset(text: &str, error: &serde_json::Error) -> usize {
    let lines: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    lines + error.column()
}

/// Path of the field that the parser stood in at this offset, as `object.uid`.
pub(super) fn field_at(text: &str, offset: usize) -> String {
    let mut path: Vec<String> = Vec::new();
    let mut key = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if at >= offset {
            break;
        }
        match c {
            '{' | '[' => path.push(std::mem::take(&mut key)),
            '}' | ']' => {
                key = path.pop().unwrap_or_default();
            }
            '"' => {
                let start = at + 1;
                let mut end = text.len();
                while let Some((at, c)) = chars.next() {
                    match c {
                        '\\' => drop(chars.next()),
                        '"' => {
                            end = at;
                            break;
                        }
                        _ => {}
                    }
                }
                if text[end..].trim_start_matches('"').trim_start().starts_with(':') {
                    key = text[start..end].chars().take(64).collect();
                }
            }
            _ => {}
        }
    }
    path.push(key);
    // The outermost is the frame itself, then the message's own name.
    let named: Vec<_> = path.into_iter().filter(|p| !p.is_empty()).skip(1).collect();
    if named.is_empty() { "(message)".to_owned() } else { named.join(".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_named_by_its_path_inside_the_message() {
        let text = r#"{"put":{"seq":1,"object":{"uid":7}}}"#;
        let at = |part: &str| field_at(text, text.find(part).unwrap());
        assert_eq!(at("1"), "seq");
        assert_eq!(at("7"), "object.uid");
        assert_eq!(at("}}}"), "object.uid");
        assert_eq!(field_at(text, 0), "(message)");
        assert_eq!(field_at(text, usize::MAX), "(message)", "all of it is closed");
    }

    #[test]
    fn broken_text_names_some_field_and_no_long_one() {
        for text in ["", "{", "{\"", "{\"put", "{\"put\\", "}}]]", "{\"put\":\"é", "{\"put\":"] {
            assert_eq!(field_at(text, usize::MAX), "(message)", "{text}");
        }
        let long = format!("{{\"put\":{{\"{}\":", "é".repeat(1000));
        assert_eq!(field_at(&long, usize::MAX), "é".repeat(64));
        assert_eq!(field_at(r#"{"put":{"a\"b":"{[", "c":"#, usize::MAX), "c", "a string opens nothing");
    }
}
