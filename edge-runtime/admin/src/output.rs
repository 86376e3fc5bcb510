//! The form in which a verb prints its result: one choice and one printer for all of them.
//!
//! Fields of JSON and YAML keep their names from version to version; new ones may come.

use edge_runtime::cli::verb::{Flag, Given};
use edge_runtime::cli::{CliError, print};
use serde::Serialize;

/// Flag as kubectl spells it.
pub(crate) const OUTPUT: Flag =
    Flag::value("output", "FORM", "json, yaml, wide or name (default is a table)").short('o');
pub(crate) const JSON: Flag = Flag::switch("json", "same as -o json");
/// Values of [`OUTPUT`].
pub(crate) const FORMS: [&str; 4] = ["json", "yaml", "wide", "name"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    /// A table with more columns, where a verb has more.
    Wide,
    /// A line with the name of each object, as other verbs take it.
    Name,
    Json,
    Yaml,
}

impl Form {
    /// What [`OUTPUT`] asks for, else [`JSON`].
    ///
    /// # Errors
    /// An unknown form.
    pub(crate) fn of(given: &Given) -> Result<Self, CliError> {
        match given.one::<String>(OUTPUT.long)?.as_deref() {
            None if given.has(JSON.long) => Ok(Self::Json),
            None => Ok(Self::Table),
            Some("json") => Ok(Self::Json),
            Some("yaml") => Ok(Self::Yaml),
            Some("wide") => Ok(Self::Wide),
            Some("name") => Ok(Self::Name),
            Some(other) => Err(CliError::Usage(format!("-o {other}: the forms are json, yaml, wide and name"))),
        }
    }

    /// Whether programs read it.
    pub(crate) fn is_data(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// Prints a result: `value` as data, else `table` (with more columns if its argument is true) or the lines of `names`.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn print(
        self,
        value: &impl Serialize,
        table: impl FnOnce(bool) -> String,
        names: impl FnOnce() -> Vec<String>,
    ) -> Result<(), CliError> {
        match self.text(value, table, names)?.trim_end() {
            "" => Ok(()),
            text => print(text),
        }
    }

    fn text(
        self,
        value: &impl Serialize,
        table: impl FnOnce(bool) -> String,
        names: impl FnOnce() -> Vec<String>,
    ) -> Result<String, CliError> {
        Ok(match self {
            Self::Json => serde_json::to_string_pretty(value)?,
            Self::Yaml => serde_yaml_ng::to_string(value)?,
            Self::Table | Self::Wide => table(self == Self::Wide),
            Self::Name => names().join("\n"),
        })
    }

    /// One of several documents that follow each other: a line of JSON, or YAML behind `---`.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub(crate) fn next(self, value: &impl Serialize) -> Result<String, CliError> {
        match self {
            Self::Yaml => Ok(format!("---\n{}", serde_yaml_ng::to_string(value)?.trim_end())),
            _ => Ok(serde_json::to_string(value)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use edge_runtime::cli::verb::{Operands, Verb};
    use serde_json::json;

    use super::*;

    const VERB: Verb =
        Verb { name: "ps", about: "x", operands: Operands::None, flags: &[OUTPUT, JSON], run: |_| Ok(()) };

    fn form(words: &[&str]) -> Result<Form, CliError> {
        Form::of(&VERB.parse(lexopt::Parser::from_args(words)).unwrap())
    }

    #[test]
    fn form_is_chosen_by_output_or_json() {
        for (words, wanted) in [
            (&[] as &[&str], Form::Table),
            (&["--json"], Form::Json),
            (&["-o", "json"], Form::Json),
            (&["-oyaml"], Form::Yaml),
            (&["--output=wide"], Form::Wide),
            (&["-o", "name", "--json"], Form::Name),
        ] {
            assert_eq!(form(words).unwrap(), wanted, "{words:?}");
        }
        assert!(
            matches!(form(&["-o", "xml"]), Err(CliError::Usage(why)) if why.contains("-o xml") && why.contains("yaml"))
        );
    }

    #[test]
    fn every_form_of_the_list_is_accepted() {
        for name in FORMS {
            assert_ne!(form(&["-o", name]).unwrap(), Form::Table, "{name}");
        }
    }

    #[test]
    fn each_form_has_its_text() {
        let value = json!({"pods": [{"name": "web"}]});
        let text = |form: Form| {
            form.text(&value, |wide| format!("TABLE {wide}"), || vec!["web".to_owned(), "db".to_owned()]).unwrap()
        };
        assert_eq!(text(Form::Json), "{\n  \"pods\": [\n    {\n      \"name\": \"web\"\n    }\n  ]\n}");
        assert_eq!(text(Form::Yaml), "pods:\n- name: web\n");
        assert_eq!((text(Form::Table), text(Form::Wide)), ("TABLE false".to_owned(), "TABLE true".to_owned()));
        assert_eq!(text(Form::Name), "web\ndb");
        assert_eq!(Form::Json.next(&value).unwrap(), r#"{"pods":[{"name":"web"}]}"#);
        assert_eq!(Form::Yaml.next(&value).unwrap(), "---\npods:\n- name: web");
    }
}
