//! Estimates the memory of a parsed message from its text, before parsing. A tree of JSON can take a hundred times its
//! text, so a limit on the text limits nothing. Does not know the meaning of the text.

/// A value of a tree, with what its place in a list or object takes beside it.
const VALUE: usize = 64;
/// The first field of an object makes a node of a B-tree with room for eleven.
const OBJECT: usize = 704;

/// Bytes, roughly and rather too many.
pub fn weight(text: &str) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    let (mut values, mut objects) = (0_usize, 0_usize);
    for byte in text.bytes() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b',' | b'[' => values += 1,
            b'{' => objects += 1,
            _ => {}
        }
    }
    text.len().saturating_add(values.saturating_mul(VALUE)).saturating_add(objects.saturating_mul(OBJECT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_grows_when_parsed_weighs_more() {
        let status = r#"{"conditions":[{"type":"Ready","status":"True"},{"type":"x","status":"False"}]}"#;
        assert!(weight(status) < 40 * status.len());
        let bomb = format!("[{}0]", r#"{"":0},"#.repeat(100));
        assert_eq!(weight(&bomb), bomb.len() + 101 * VALUE + 100 * OBJECT);
        let text = r#""{{[[,,\"{\\""#;
        assert_eq!(weight(text), text.len(), "texts are what they are");
    }
}
