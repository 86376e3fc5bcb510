//! What a verb of the command line is: name, operands and flags, in one table for parsing, help and completion. Knows no
//! verb.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::{Arg, ValueExt};

use super::error::CliError;
use crate::paths::Paths;

/// One verb.
pub struct Verb {
    pub name: &'static str,
    /// In one line; nothing for a helper, which only the daemon starts.
    pub about: &'static str,
    pub operands: Operands,
    pub flags: &'static [Flag],
    pub run: fn(Given) -> Result<(), CliError>,
}

/// A verb without its code: parsing and help need no more. A table of these, made at compile time, does not link what the
/// verbs do.
#[derive(Clone, Copy)]
pub struct Shown {
    pub name: &'static str,
    pub about: &'static str,
    pub operands: Operands,
    flags: &'static [Flag],
}

/// What stands beside the flags, in the words of a synopsis.
#[derive(Clone, Copy)]
pub enum Operands {
    None,
    One(&'static str),
    /// One, then a command whose flags are its own.
    Command(&'static str),
    /// Some words, which the verb itself understands.
    Words(&'static str),
    /// Whatever comes, as it comes: a helper's.
    Raw,
}

/// A flag, with the name of its value if it takes one.
pub struct Flag {
    pub long: &'static str,
    pub short: Option<char>,
    pub value: Option<&'static str>,
    /// Nothing if only the daemon gives it.
    pub about: &'static str,
}

/// Flag of every verb.
pub const ROOT: Flag = Flag::value("root", "DIR", "root of state, sockets and logs (default /)");
pub const NAMESPACE: Flag = Flag::value("namespace", "NAMESPACE", "namespace of the pod").short('n');
pub const CONTAINER: Flag = Flag::value("container", "NAME", "container of the pod").short('c');

impl Flag {
    pub const fn switch(long: &'static str, about: &'static str) -> Self {
        Self { long, short: None, value: None, about }
    }

    pub const fn value(long: &'static str, value: &'static str, about: &'static str) -> Self {
        Self { long, short: None, value: Some(value), about }
    }

    pub const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }
}

impl Verb {
    pub const fn helper(
        name: &'static str,
        operands: Operands,
        flags: &'static [Flag],
        run: fn(Given) -> Result<(), CliError>,
    ) -> Self {
        Self { name, about: "", operands, flags, run }
    }

    pub const fn shown(&self) -> Shown {
        Shown { name: self.name, about: self.about, operands: self.operands, flags: self.flags }
    }

    /// Started by the daemon, and not shown to people.
    pub fn is_helper(&self) -> bool {
        self.about.is_empty()
    }

    /// # Errors
    /// Same as [`Shown::parse`].
    pub fn parse(&self, parser: lexopt::Parser) -> Result<Given, CliError> {
        self.shown().parse(parser)
    }
}

impl Shown {
    fn all_flags(self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.flags.iter().chain([&ROOT])
    }

    /// # Errors
    /// An unknown flag, one without its value, an operand too many or too few.
    pub fn parse(self, parser: lexopt::Parser) -> Result<Given, CliError> {
        let given = self.read(parser).map_err(|error| CliError::Usage(error.to_string()))?;
        let missing = match (self.operands, given.operands.len()) {
            (Operands::One(name) | Operands::Command(name), 0) => format!("{name} is missing"),
            (Operands::Command(_), 1) => "a command is missing: -- COMMAND".to_owned(),
            _ => return Ok(given),
        };
        Err(CliError::Usage(format!("{}: {missing}", self.name)))
    }

    fn read(self, mut parser: lexopt::Parser) -> Result<Given, lexopt::Error> {
        let mut given = Given { flags: Vec::new(), operands: Vec::new() };
        if matches!(self.operands, Operands::Raw) {
            given.operands.extend(parser.raw_args()?);
            return Ok(given);
        }
        while let Some(arg) = parser.next()? {
            let flag = match &arg {
                Arg::Long(name) => self.all_flags().find(|flag| flag.long == *name),
                Arg::Short(name) => self.all_flags().find(|flag| flag.short == Some(*name)),
                Arg::Value(_) => None,
            };
            match (flag, arg, self.operands) {
                (Some(flag), ..) => {
                    let value = if flag.value.is_some() { parser.value()? } else { OsString::new() };
                    given.flags.push((flag.long, value));
                }
                (None, Arg::Value(word), Operands::Command(_)) if !given.operands.is_empty() => {
                    given.operands.push(word);
                    given.operands.extend(parser.raw_args()?);
                }
                (None, Arg::Value(word), Operands::Words(_)) => given.operands.push(word),
                (None, Arg::Value(word), Operands::One(_) | Operands::Command(_)) if given.operands.is_empty() => {
                    given.operands.push(word);
                }
                (None, other, _) => return Err(other.unexpected()),
            }
        }
        Ok(given)
    }

    /// Started by the daemon, and not shown to people.
    pub fn is_helper(&self) -> bool {
        self.about.is_empty()
    }

    /// Those that people give.
    pub fn shown_flags(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.all_flags().filter(|flag| !flag.about.is_empty())
    }

    /// `edge-runtime logs [FLAG]... POD`, without the program.
    pub fn synopsis(&self) -> String {
        let operands = match self.operands {
            Operands::None => String::new(),
            Operands::One(name) | Operands::Words(name) => format!(" {name}"),
            Operands::Command(name) => format!(" {name} -- COMMAND [ARGUMENT]..."),
            Operands::Raw => " ...".to_owned(),
        };
        format!("{} [FLAG]...{operands}", self.name)
    }
}

/// What was given to a verb.
pub struct Given {
    flags: Vec<(&'static str, OsString)>,
    pub operands: Vec<OsString>,
}

impl Given {
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|(name, _)| *name == flag)
    }

    /// All values of a flag, in their order.
    pub fn values(&self, flag: &str) -> impl Iterator<Item = &OsString> {
        self.flags.iter().filter(move |(name, _)| *name == flag).map(|(_, value)| value)
    }

    /// The last one counts.
    pub fn path(&self, flag: &str) -> Option<PathBuf> {
        self.values(flag).last().map(PathBuf::from)
    }

    /// All values of a flag as `T`.
    ///
    /// # Errors
    /// A value does not parse.
    pub fn all<T: FromStr>(&self, flag: &str) -> Result<Vec<T>, CliError>
    where
        T::Err: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let parse = |value: &OsString| {
            value.parse().map_err(|error: lexopt::Error| CliError::Usage(format!("--{flag}: {error}")))
        };
        self.values(flag).map(parse).collect()
    }

    /// # Errors
    /// It does not parse as `T`.
    pub fn one<T: FromStr>(&self, flag: &str) -> Result<Option<T>, CliError>
    where
        T::Err: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Ok(self.all(flag)?.pop())
    }

    /// The first operand, as text.
    ///
    /// # Errors
    /// It is not UTF-8, or not there.
    pub fn operand(&self) -> Result<String, CliError> {
        let word = self.operands.first().cloned().unwrap_or_default();
        word.into_string().map_err(|word| CliError::Usage(format!("{}: not UTF-8", word.display())))
    }

    /// Below `--root`, made absolute.
    ///
    /// # Errors
    /// The current folder cannot be read.
    pub fn paths(&self) -> Result<Paths, CliError> {
        let root = self.path(ROOT.long).unwrap_or_else(|| PathBuf::from("/"));
        let root =
            std::path::absolute(&root).map_err(|error| CliError::Failed(format!("{}: {error}", root.display())))?;
        Ok(Paths::new(&root))
    }
}

#[cfg(test)]
mod tests;
