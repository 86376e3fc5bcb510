//! `edge-runtime usage`: how much disk pods hold, as a helper of the daemon: questions as JSON on standard input,
//! answers on standard output.

use std::io::Read;
use std::process::ExitCode;

use super::CliError;
use super::verb::{Given, Operands, Verb};
use crate::eviction::walk::{Answers, Question, usage_of};
use crate::image::limits::{Limits, confine_process};

const LONGEST: u64 = 4 << 20;

pub(super) const VERB: Verb = Verb { name: "usage", about: "", operands: Operands::None, flags: &[], run };

fn run(given: Given) -> Result<ExitCode, CliError> {
    let paths = given.paths()?;
    // What containers wrote decides how much this remembers.
    confine_process(&Limits::default());
    let mut text = Vec::new();
    std::io::stdin().take(LONGEST).read_to_end(&mut text).map_err(CliError::failed)?;
    let questions: Vec<Question> = serde_json::from_slice(&text).map_err(CliError::failed)?;
    let answers: Answers = questions.iter().map(|one| (one.uid.clone(), usage_of(&paths, one))).collect();
    super::version::print(&serde_json::to_string(&answers).map_err(CliError::failed)?)
}
