//! Patterns of schemas: compiled and matched within limits. An engine without backtracking needs size of the program ×
//! length of the text in steps, which is too much for patterns and texts of any size.

use std::collections::HashMap;

use apimachinery::field::FieldError;
use regex_lite::{Regex, RegexBuilder};

/// Size classes of programs, in bytes; larger ones are not compiled.
const SIZES: [usize; 11] =
    [1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19, LARGEST];
const LARGEST: usize = 1 << 20;

/// Maximum length of a pattern, in bytes: the parser needs some 60 times as much memory.
const TEXT_MAX: usize = 1 << 16;

/// Maximum size of all programs of one object or definition, in bytes. Definitions are compiled on the bridge's thread.
const PROGRAMS_MAX: usize = 8 << 20;

/// Limit for one object in bytes of program × bytes of text. In the worst case, every state of the program is active at
/// every letter: seventy million steps, about a second. Usual patterns need a small part of it.
const WORK_MAX: u64 = 1 << 32;

/// The same limit for what is matched on the bridge's thread: some 60 ms.
pub(super) const THREAD_WORK: u64 = 1 << 28;

/// A pattern as a program.
struct Pattern {
    regex: Regex,
    /// Upper bound in bytes.
    size: usize,
}

/// Compiles a pattern.
///
/// # Errors
/// The text is not a regular expression, or it or the compiled form is too large.
fn compile(pattern: &str) -> Result<Pattern, String> {
    if pattern.len() > TEXT_MAX {
        return Err(format!("it has more than {TEXT_MAX} bytes"));
    }
    let mut why = String::new();
    for size in SIZES.into_iter().filter(|size| *size >= pattern.len()) {
        match RegexBuilder::new(pattern).size_limit(size).build() {
            Ok(regex) => return Ok(Pattern { regex, size }),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// The patterns of the schema of one object or definition, and the rest of its limits.
pub(super) struct Patterns<'s> {
    /// Programs, or the reason why a pattern cannot be compiled.
    made: HashMap<&'s str, Result<Pattern, String>>,
    programs: usize,
    work: u64,
    /// Whether a text was too long for its pattern.
    pub(super) spent: bool,
}

impl Default for Patterns<'_> {
    fn default() -> Self {
        Self::within(WORK_MAX)
    }
}

impl<'s> Patterns<'s> {
    /// Limits bytes of program × bytes of text to `work`.
    pub(super) fn within(work: u64) -> Self {
        Self { made: HashMap::new(), programs: PROGRAMS_MAX, work, spent: false }
    }

    /// The pattern, compiled once; `None` after the limit is used up. A pattern that is refused takes as much time as
    /// the largest.
    fn program(&mut self, pattern: &'s str) -> Option<&Result<Pattern, String>> {
        if self.programs > 0 && !self.made.contains_key(pattern) {
            let made = compile(pattern);
            let left = self.programs.checked_sub(made.as_ref().map_or(LARGEST, |made| made.size));
            self.programs = left.unwrap_or_default();
            if left.is_some() {
                self.made.insert(pattern, made);
            }
        }
        self.made.get(pattern)
    }

    /// The error of a definition's pattern at this field.
    pub(super) fn check(&mut self, pattern: &'s str, at: &str) -> Option<FieldError> {
        match self.program(pattern) {
            Some(Ok(_)) => None,
            Some(Err(why)) => {
                let why = format!("must be a valid regular expression, but isn't: {why}");
                Some(FieldError::invalid(at, &pattern.into(), &why))
            }
            None => Some(FieldError::forbidden(at, "all patterns of the definition together are too large")),
        }
    }

    /// Whether a text matches. A pattern that cannot be compiled, which only an old definition has, matches everything.
    /// After the limit is used up, texts do not match, and `spent` is set.
    pub(super) fn matches(&mut self, pattern: &'s str, text: &str) -> bool {
        if self.spent {
            return false;
        }
        let work = match self.program(pattern) {
            Some(Err(_)) => return true,
            Some(Ok(made)) => (made.size as u64).saturating_mul(text.len() as u64),
            None => u64::MAX,
        };
        if let (Some(left), Some(Ok(made))) = (self.work.checked_sub(work), self.made.get(pattern)) {
            self.work = left;
            return made.regex.is_match(text);
        }
        self.spent = true;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_is_no_pattern_is_told() {
        for wrong in ["(", "[a", "a{2,1}", "*", r"\p{Lu}", "(?<=a)b", r"(a)\1"] {
            assert!(compile(wrong).is_err(), "{wrong}");
        }
        assert!(compile(r"((a{100}){100}){100}").is_err(), "its program is too large");
        assert!(compile(&"(?:)".repeat(TEXT_MAX / 4 + 1)).is_err_and(|why| why.contains("has more than")));
        for right in ["", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", r"^(\d+|\w+)\s?$", "^ä.*$"] {
            assert!(compile(right).is_ok(), "{right}");
        }
    }

    #[test]
    fn patterns_of_the_field_judge_usual_texts() {
        let counted = r"^([a-z0-9]{1,63}\.){1,8}[a-z]{2,63}$";
        let mut patterns = Patterns::default();
        assert!(patterns.matches(counted, "cert-manager.example.org".replace('-', "").as_str()));
        assert!(!patterns.matches(counted, "x"));
        for _ in 0..1000 {
            patterns.matches("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "some-name-of-a-thing");
        }
        assert!(!patterns.spent);
    }

    #[test]
    fn long_texts_end_the_work() {
        let started = Instant::now();
        let text = "a".repeat(3_000_000);
        let mut patterns = Patterns::default();
        assert!(!patterns.matches("^(([a-z0-9]{1,60}-?){1,60})$", &text));
        assert!(patterns.spent);
        assert!(!patterns.matches("a", "a"), "nothing is judged after that");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }

    #[test]
    fn refused_patterns_of_a_definition_end_its_room() {
        let all: Vec<String> = (0..1000).map(|n| format!("x{n}((a{{100}}){{100}}){{100}}")).collect();
        let mut patterns = Patterns::default();
        let errors: Vec<FieldError> = all.iter().filter_map(|pattern| patterns.check(pattern, "p")).collect();
        let compiled = errors.iter().filter(|error| error.message.contains("must be a valid")).count();
        assert_eq!((errors.len(), compiled), (1000, PROGRAMS_MAX / LARGEST));
    }

    #[test]
    fn many_large_patterns_end_the_room() {
        let all: Vec<String> = (0..200).map(|n| format!("(x{n}|[a-z]{{1,60}}){{1,60}}")).collect();
        let mut patterns = Patterns::default();
        for pattern in &all {
            patterns.matches(pattern, "");
        }
        assert!(patterns.spent && patterns.made.values().flatten().map(|one| one.size).sum::<usize>() <= PROGRAMS_MAX);
    }
}
