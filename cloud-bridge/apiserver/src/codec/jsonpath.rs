//! JSONPath of printer columns and subresource paths: `.a.b`, `['a.b']`, `[0]`, `[-1:]`, `[0,2]`, `[*]` and
//! `[?(@.type=="Ready")]` with one comparison, as client-go's util/jsonpath reads them. Pure.

use std::cmp::Ordering;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    /// From, to and step of a slice; an index is a slice of one. Negative places count from the end.
    Slice(Option<i64>, Option<i64>, usize),
    All,
    Filter(Filter),
    Union(Vec<Step>),
}

/// Selected items of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Filter {
    Exists(Vec<Step>),
    Compare(Vec<Step>, Operator, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Operator {
    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Filter {
    fn takes(&self, item: &Value) -> bool {
        match self {
            Self::Exists(path) => !walk(item, path).is_empty(),
            Self::Compare(path, operator, wanted) => match walk(item, path).as_slice() {
                [found] => order(found, wanted).is_some_and(|order| operator.holds(order)),
                _ => false,
            },
        }
    }
}

/// Compares a value with a literal; numbers compare only with numbers.
fn order(value: &Value, wanted: &str) -> Option<Ordering> {
    match value {
        Value::String(text) => Some(text.as_str().cmp(wanted)),
        Value::Number(number) => number.as_f64()?.partial_cmp(&wanted.parse().ok()?),
        other => Some(other.to_string().as_str().cmp(wanted)),
    }
}

/// The items of a slice; none where the places lie outside of the list.
fn slice(items: &[Value], from: Option<i64>, to: Option<i64>, step: usize) -> Vec<&Value> {
    let place =
        |at: i64| usize::try_from(if at < 0 { at.saturating_add_unsigned(items.len() as u64) } else { at }).ok();
    let (Some(from), Some(to)) = (from.map_or(Some(0), place), to.map_or(Some(items.len()), place)) else {
        return Vec::new();
    };
    items.get(from..to).unwrap_or_default().iter().step_by(step.max(1)).collect()
}

/// All values at a path; a path that cannot be read finds nothing.
pub(crate) fn find<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    match parse(path) {
        Some(steps) => walk(value, &steps),
        None => Vec::new(),
    }
}

/// The fields of a path that consists only of names (`.spec.replicas`).
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
    steps.iter().fold(vec![value], |found, step| found.into_iter().flat_map(|value| take(value, step)).collect())
}

fn take<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    match (step, value) {
        (Step::Field(name), _) => value.get(name).into_iter().collect(),
        (Step::Slice(from, to, step), Value::Array(items)) => slice(items, *from, *to, *step),
        (Step::All, Value::Array(items)) => items.iter().collect(),
        (Step::All, Value::Object(map)) => map.values().collect(),
        (Step::Filter(filter), Value::Array(items)) => items.iter().filter(|item| filter.takes(item)).collect(),
        (Step::Union(steps), _) => steps.iter().flat_map(|step| take(value, step)).collect(),
        _ => Vec::new(),
    }
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

/// The parts of a text between commas outside quotes.
fn parts(text: &str) -> Vec<&str> {
    let (mut quote, mut start, mut out) = (None, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, ',') => {
                out.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(inner) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        return Some(Step::Filter(filter(inner)?));
    }
    if let [_, _, ..] = parts(text).as_slice() {
        return parts(text).into_iter().map(bracket).collect::<Option<_>>().map(Step::Union);
    }
    if text.starts_with(['\'', '"']) {
        return Some(Step::Field(unquote(text).to_owned()));
    }
    Some(slice_of(text).unwrap_or_else(|| Step::Field(text.to_owned())))
}

fn slice_of(text: &str) -> Option<Step> {
    if let Ok(index) = text.parse::<i64>() {
        // The last item ends where the list does.
        return Some(Step::Slice(Some(index), (index != -1).then_some(index.saturating_add(1)), 1));
    }
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse::<i64>().ok().map(Some) };
    let places: Vec<&str> = text.split(':').collect();
    match places.as_slice() {
        [from, to] => Some(Step::Slice(number(from)?, number(to)?, 1)),
        [from, to, step] => {
            let step = number(step)?.map_or(Some(1), |step| usize::try_from(step).ok().filter(|step| *step > 0))?;
            Some(Step::Slice(number(from)?, number(to)?, step))
        }
        _ => None,
    }
}

/// The condition between `?(` and `)`: a path that has to be there, or one comparison.
fn filter(text: &str) -> Option<Filter> {
    const OPERATORS: [char; 4] = ['=', '!', '<', '>'];
    let path = |text: &str| parse(text.trim().strip_prefix('@')?);
    let Some(at) = text.find(OPERATORS) else { return path(text).map(Filter::Exists) };
    let (left, rest) = text.split_at(at);
    let end = rest.find(|c| !OPERATORS.contains(&c))?;
    let (operator, right) = rest.split_at(end);
    Some(Filter::Compare(path(left)?, Operator::read(operator)?, unquote(right).to_owned()))
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

    #[test]
    fn slices_unions_and_comparisons() {
        let value = json!({"l": [{"n": 1, "s": "a"}, {"n": 10, "s": "b"}, {"n": 2, "s": "c", "x": null}], "e": [], "-1:": "field"});
        let texts = |path: &str| -> Vec<String> {
            find(&value, path).into_iter().map(|found| found.as_str().unwrap_or_default().to_owned()).collect()
        };
        for (path, found) in [
            (".l[-1:].s", &["c"][..]),
            (".l[-1].s", &["c"]),
            (".l[-2].s", &["b"]),
            (".l[0:2].s", &["a", "b"]),
            (".l[:2].s", &["a", "b"]),
            (".l[1:].s", &["b", "c"]),
            (".l[::2].s", &["a", "c"]),
            (".l[:-1].s", &["a", "b"]),
            (".l[0,2].s", &["a", "c"]),
            (".l[0]['s','n']", &["a", ""]),
            (".l[?(@.s!=\"a\")].s", &["b", "c"]),
            (".l[?(@.n<3)].s", &["a", "c"]),
            (".l[?(@.n <= 2)].s", &["a", "c"]),
            (".l[?(@.n>2)].s", &["b"]),
            (".l[?(@.n>=10)].s", &["b"]),
            (".l[?(@.x)].s", &["c"]),
            (".l[7].s", &[]),
            (".l[2:9].s", &[]),
            (".l[2:1].s", &[]),
            (".e[-1:]", &[]),
            (".l[::0].s", &[]),
        ] {
            assert_eq!(texts(path), found, "{path}");
        }
        // client-go also parses only one comparison, and treats the rest as its right side.
        assert!(find(&value, ".l[?(@.n<3 && @.s==\"a\")].s").is_empty());
    }
}
