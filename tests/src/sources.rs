//! Checks the sources of the programs for code in which a message of any peer could cause a panic. Reads the sources as
//! text, without test code.

use std::path::{Path, PathBuf};

/// Folders of the programs; the crates within them count, too.
const PROGRAMS: [&str; 3] = ["cloud-bridge", "edge-protocol", "edge-runtime"];

/// A line of product code and its place.
struct Line {
    file: PathBuf,
    number: usize,
    text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.number, self.text.trim())
    }
}

/// All lines of product code, without comments.
fn lines() -> Vec<Line> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut lines = Vec::new();
    for (file, text) in PROGRAMS.iter().flat_map(|one| sampan_floors::sources::product_code(&root.join(one))) {
        let file = file.strip_prefix(root).unwrap_or(&file).to_owned();
        let code = text.lines().enumerate().filter(|(_, text)| !text.trim_start().starts_with("//"));
        lines.extend(code.map(|(at, text)| Line { file: file.clone(), number: at + 1, text: text.to_owned() }));
    }
    lines
}

/// Whether a line changes JSON through an index by key, which panics if the value is of another type: `value["a"] = x`,
/// `value["a"].take()`, `value["a"].as_object_mut()`, `&mut value["a"]`.
fn changes_by_key(line: &str) -> bool {
    let by_name = |place: &str| place.contains("[\"") && !place.starts_with("let ");
    let assigned = line.split_once("] = ").is_some_and(|(place, _)| by_name(place.trim_start()));
    let taken = ["\"].take()", "\"].as_object_mut()", "\"].as_array_mut()", "\"].pointer_mut("].iter();
    let borrowed = line.split("&mut ").skip(1).any(|rest| {
        let place: &str = rest.split([' ', ',', ')', ';']).next().unwrap_or_default();
        place.contains("[\"")
    });
    assigned || borrowed || taken.clone().any(|way| line.contains(way))
}

/// Whether a line adds a time to the clock that is not constant and not bounded by `min`. (The sum of an `Instant` and
/// a `Duration` panics when it overflows, so a number of a peer could end the program.)
fn adds_to_the_clock(line: &str) -> bool {
    let unbounded = |rest: &str| rest.starts_with(|first: char| first.is_ascii_lowercase()) && !rest.contains(".min(");
    line.split("Instant::now() + ").skip(1).any(unbounded)
}

/// Same for a number that is converted to a time in that line.
fn adds_a_number_to_the_clock(line: &str) -> bool {
    let made = |rest: &str| {
        rest.split_once('(').is_some_and(|(_, number)| number.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    line.split("Instant::now() + Duration::from_").skip(1).any(|rest| made(rest) && !rest.contains(".min("))
}

/// Whether a line converts a number to a duration in a way that panics for negative and huge ones.
fn makes_an_unchecked_duration(line: &str) -> bool {
    line.contains("Duration::from_secs_f64(") || line.contains("Duration::from_secs_f32(")
}

fn none(below: &str, what: &str, forbidden: impl Fn(&str) -> bool) {
    let lines = lines();
    let found = lines.iter().filter(|line| line.file.starts_with(below) && forbidden(&line.text));
    let found: Vec<String> = found.map(ToString::to_string).collect();
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn the_rules_know_what_they_look_for() {
    for bad in [
        r#"    value["a"] = x;"#,
        r#"pod["spec"][field] = node.into();"#,
        r#"    Some(x) => one["seconds"] = x,"#,
        r#"merged["m"].take();"#,
        r#"if let Some(list) = status["list"].as_array_mut() {"#,
        r#"keep(&mut summary["node"], &[]);"#,
    ] {
        assert!(changes_by_key(bad), "{bad}");
    }
    for good in
        [r#"let a = value["a"] == 1;"#, r#"if value["a"] == b {"#, r#"let [a, b] = ["x", "y"];"#, "buf[at] = 1;"]
    {
        assert!(!changes_by_key(good), "{good}");
    }
    assert!(adds_to_the_clock("end: Instant::now() + options.timeout,"));
    assert!(!adds_to_the_clock("Some(Instant::now() + CALM)"));
    assert!(!adds_to_the_clock("end: Instant::now() + options.timeout.min(LONGEST),"));
    assert!(adds_a_number_to_the_clock("until: Instant::now() + Duration::from_secs(order.seconds.max(1)),"));
    assert!(!adds_a_number_to_the_clock("let until = Instant::now() + Duration::from_millis(left).min(LONGEST);"));
    assert!(!adds_a_number_to_the_clock("let until = Instant::now() + Duration::from_secs(10);"));
    assert!(lines().len() > 20_000, "the sources are read");
}

#[test]
fn json_is_changed_by_ways_that_cannot_panic() {
    none("", "use sampan_json::SetField, or get_mut", changes_by_key);
}

#[test]
fn outside_numbers_are_not_added_to_the_clock() {
    // The times of a device are its own configuration and constants.
    none("cloud-bridge", "use checked_add", adds_to_the_clock);
    none("", "use checked_add, or min", adds_a_number_to_the_clock);
    none("", "use try_from_secs_f64", makes_an_unchecked_duration);
}
