//! Patterns of schemas: compiled and matched within limits. An engine without backtracking needs size of the program ×
//! length of the text in steps, which is too much for patterns and texts of any size.

use std::collections::HashMap;

use regex_lite::{Regex, RegexBuilder};

/// Size classes of programs, in bytes; larger ones are not compiled.
const SIZES: [usize; 11] =
    [1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20];

/// How many bytes all programs of one object may have.
const PROGRAMS_MAX: usize = 8 << 20;

/// How many bytes of programs are compiled for one definition.
pub(super) const DEFINITION_MAX: usize = 64 << 20;

/// Limit for one object in bytes of program × bytes of text. In the worst case, every state of the program is active at
/// every letter: seventy million steps, about a second. Usual patterns need a small part of it.
const WORK_MAX: u64 = 1 << 32;

/// A pattern as a program.
pub(super) struct Pattern {
    regex: Regex,
    /// Upper bound in bytes.
    pub(super) size: usize,
}

/// Compiles a pattern.
///
/// # Errors
/// The text is not a regular expression, or the compiled form is too large.
pub(super) fn compile(pattern: &str) -> Result<Pattern, String> {
    let mut why = String::new();
    for size in SIZES {
        match RegexBuilder::new(pattern).size_limit(size).build() {
            Ok(regex) => return Ok(Pattern { regex, size }),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// The patterns of one object's schema, and the rest of its limits.
pub(super) struct Patterns<'s> {
    /// `None` for one that cannot be compiled.
    made: HashMap<&'s str, Option<Pattern>>,
    programs: usize,
    work: u64,
    /// Whether a text was too long for its pattern.
    pub(super) spent: bool,
}

impl Default for Patterns<'_> {
    fn default() -> Self {
        Self { made: HashMap::new(), programs: PROGRAMS_MAX, work: WORK_MAX, spent: false }
    }
}

impl<'s> Patterns<'s> {
    /// Whether a text matches. A pattern that cannot be compiled, which only an old definition has, matches everything.
    /// After the limit is used up, texts do not match, and `spent` is set.
    pub(super) fn matches(&mut self, pattern: &'s str, text: &str) -> bool {
        if self.spent {
            return false;
        }
        if !self.made.contains_key(pattern) {
            let made = compile(pattern).ok();
            let size = made.as_ref().map_or(0, |made| made.size);
            let Some(left) = self.programs.checked_sub(size) else {
                self.spent = true;
                return false;
            };
            self.programs = left;
            self.made.insert(pattern, made);
        }
        let Some(Some(made)) = self.made.get(pattern) else { return true };
        let work = (made.size as u64).saturating_mul(text.len() as u64);
        match self.work.checked_sub(work) {
            Some(left) => {
                self.work = left;
                made.regex.is_match(text)
            }
            None => {
                self.spent = true;
                false
            }
        }
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
    fn many_large_patterns_end_the_room() {
        let all: Vec<String> = (0..200).map(|n| format!("(x{n}|[a-z]{{1,60}}){{1,60}}")).collect();
        let mut patterns = Patterns::default();
        for pattern in &all {
            patterns.matches(pattern, "");
        }
        assert!(patterns.spent && patterns.made.values().flatten().map(|one| one.size).sum::<usize>() <= PROGRAMS_MAX);
    }
}
