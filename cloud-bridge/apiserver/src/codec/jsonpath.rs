//! The small part of JSONPath that printer columns and subresource paths use: `.a.b`, `['a.b']`, `[0]`, `[*]`
//! and `[?(@.type=="Ready")]`. Pure.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    All,
    Filter(Vec<Step>, String),
}

/// All values at a path; a path that cannot be read finds nothing.
pub(crate) fn find<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    match parse(path) {
        Some(steps) => walk(value, &steps),
        None => Vec::new(),
    }
}

/// The fields of a path made of names only (`.spec.replicas`).
pub(crate) fn fields(path: &str) -> Option<Vec<String>> {
    parse(path)?
        .into_iter()
        .map(|step| match step {
            Step::Field(name) => Some(name),
            _ => None,
        })
        .collect()
}

fn walk<'a>(value: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in steps {
        found = found
            .into_iter()
            .flat_map(|value| -> Vec<&Value> {
                match step {
                    Step::Field(name) => value.get(name).into_iter().collect(),
                    Step::Index(index) => value.get(index).into_iter().collect(),
                    Step::All => match value {
                        Value::Array(items) => items.iter().collect(),
                        Value::Object(map) => map.values().collect(),
                        _ => Vec::new(),
                    },
                    Step::Filter(path, wanted) => value
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter(|item| {
                            walk(item, path)
                                .iter()
                                .any(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned) == *wanted)
                        })
                        .collect(),
                }
            })
            .collect();
    }
    found
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let path = path.trim();
    let path = path.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or(path);
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = field_end(after);
            if end > 0 {
                steps.push(match &after[..end] {
                    "*" => Step::All,
                    name => Step::Field(name.replace('\\', "")),
                });
            } else if !after.starts_with('[') && !after.is_empty() {
                return None;
            }
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let close = bracket_end(after)?;
            steps.push(bracket(&after[..close])?);
            rest = &after[close + 1..];
        } else {
            return None;
        }
    }
    Some(steps)
}

/// Where a field name ends; `\.` is a dot within it.
fn field_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && (c == '.' || c == '[') {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

fn bracket_end(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, ']') => return Some(at),
            _ => {}
        }
    }
    None
}

fn unquote(text: &str) -> &str {
    let text = text.trim();
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        let (path, wanted) = filter.split_once("==")?;
        let steps = parse(path.trim().strip_prefix('@')?)?;
        return Some(Step::Filter(steps, unquote(wanted).to_owned()));
    }
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    Some(Step::Field(unquote(text).to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let value = json!({"spec": {"a.b": 1, "l": [{"n": 1}, {"n": 2}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]}});
        let one = |path: &str| find(&value, path).first().map(|v| (*v).clone()).unwrap_or_default();
        assert_eq!(one(".spec['a.b']"), 1);
        assert_eq!(one(".spec.a\\.b"), 1);
        assert_eq!(one(".spec.l[1].n"), 2);
        assert_eq!(find(&value, ".spec.l[*].n").len(), 2);
        assert_eq!(one(".status.conditions[?(@.type==\"Ready\")].status"), "True");
        assert_eq!(one(".nothing.here"), Value::Null);
        assert_eq!(fields(".spec.replicas").unwrap(), ["spec", "replicas"]);
    }
}
