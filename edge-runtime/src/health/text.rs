//! The text format of Prometheus, version 0.0.4: families and their samples, one after the other. Numbers are whole, or
//! nanoseconds shown as seconds. Pure.

/// Metrics text under construction.
#[derive(Default)]
pub struct Text {
    out: String,
    name: &'static str,
}

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Whole(u64),
    /// Nanoseconds, or billionths of anything else.
    Nanos(u64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

/// `rlim_t` of 32-bit systems.
impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl Text {
    /// Begins a family: the name of its samples, `gauge` or `counter`, and what it tells.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"] {
            self.out.push_str(part);
        }
    }

    /// A sample of the family that was begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: Number) {
        self.out.push_str(self.name);
        let mut before = '{';
        for (name, value) in labels {
            self.out.push(before);
            self.out.push_str(name);
            self.out.push_str("=\"");
            value.chars().for_each(|one| self.escaped(one));
            self.out.push('"');
            before = ',';
        }
        self.out.push_str(if labels.is_empty() { " " } else { "} " });
        self.number(value);
        self.out.push('\n');
    }

    /// A family of one sample.
    pub fn one(&mut self, name: &'static str, kind: &str, help: &str, value: impl Into<Number>) {
        self.family(name, kind, help);
        self.sample(&[], value.into());
    }

    fn escaped(&mut self, one: char) {
        match one {
            '\\' | '"' => self.out.extend(['\\', one]),
            '\n' => self.out.push_str("\\n"),
            other => self.out.push(other),
        }
    }

    /// Handwritten: the formatting code of the standard library would cost the daemon space for each type.
    fn number(&mut self, value: Number) {
        match value {
            Number::Whole(value) => self.digits(value, 1),
            Number::Nanos(value) => {
                self.digits(value / 1_000_000_000, 1);
                if value % 1_000_000_000 > 0 {
                    self.out.push('.');
                    self.digits(value % 1_000_000_000, 9);
                }
            }
        }
    }

    fn digits(&mut self, mut value: u64, least: usize) {
        let mut digits = [b'0'; 20];
        let mut at = digits.len();
        while value > 0 || digits.len() - at < least {
            at -= 1;
            digits[at] = b'0' + u8::try_from(value % 10).unwrap_or_default();
            value /= 10;
        }
        self.out.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
    }

    pub fn finish(self) -> String {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_reads_it() {
        let mut text = Text::default();
        text.one("a_total", "counter", "So many.", 0_u64);
        text.one("b", "gauge", "Whether.", true);
        text.family("c_seconds", "gauge", "How long.");
        text.sample(&[("pod", "a\"b\\c\nd"), ("node", "n")], Number::Nanos(1_000_000_001));
        text.sample(&[("pod", "é")], Number::Nanos(2_000_000_000));
        text.sample(&[], Number::Whole(u64::MAX));
        let wanted = "# HELP a_total So many.\n# TYPE a_total counter\na_total 0\n\
                      # HELP b Whether.\n# TYPE b gauge\nb 1\n\
                      # HELP c_seconds How long.\n# TYPE c_seconds gauge\n\
                      c_seconds{pod=\"a\\\"b\\\\c\\nd\",node=\"n\"} 1.000000001\nc_seconds{pod=\"é\"} 2\n\
                      c_seconds 18446744073709551615\n";
        assert_eq!(text.finish(), wanted);
    }
}
