//! Lines of a policy, with a bound. Pure.

use crate::net::policy::bounds::TEXT_OF_A_POLICY;

pub(super) const TOO_LARGE: &str = "it is larger than a node takes";

/// Lines of a policy, as they grow.
#[derive(Default)]
pub(super) struct Text {
    pub(super) lines: Vec<Line>,
    pub(super) size: usize,
}

pub(super) struct Line {
    pub(super) before: String,
    /// Specification of the set that is asked between the two.
    pub(super) set: Option<String>,
    pub(super) after: String,
}

impl Text {
    pub(super) fn line(&mut self, before: String, set: Option<String>, after: String) -> Result<(), &'static str> {
        // Memory of a line beside its text.
        self.size += before.len() + after.len() + set.as_ref().map_or(0, String::len) + 40;
        if self.size > TEXT_OF_A_POLICY {
            return Err(TOO_LARGE);
        }
        self.lines.push(Line { before, set, after });
        Ok(())
    }
}

pub(super) fn joined<'a, T: ToString + 'a>(all: impl IntoIterator<Item = &'a T>) -> String {
    let mut text = String::new();
    for one in all {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&one.to_string());
    }
    text
}
