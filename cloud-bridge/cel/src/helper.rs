//! The process that evaluates rules. It sets its limits before it reads anything: whatever a rule does, only this
//! process ends, and its parent reports that.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;

use crate::environment::Environment;
pub use crate::environment::NOTE;
use crate::frame::{self, ANSWER_MAX, QUESTION_MAX};
use crate::question::{Answer, Question};
use crate::schema::Node;
use crate::validate::validate;

/// Maximum CPU time in seconds for a question about an object, and for one about a schema.
pub const OBJECT_SECONDS: u64 = 2;
pub const SCHEMA_SECONDS: u64 = 10;
/// Memory that the helper may have.
const MEMORY: u64 = 384 << 20;
/// Descriptors: pipes and the note.
const FILES: u64 = 16;
/// Content of the note while a question is read, before the first rule runs.
const UNDER_WAY: &str = "the question";
/// Schemas kept compiled.
const SCHEMAS: usize = 64;

/// Maximum CPU time of a question, in seconds.
fn seconds(question: &Question) -> u64 {
    match question {
        Question::Validate { .. } => OBJECT_SECONDS,
        Question::Compile { .. } | Question::Learn { .. } => SCHEMA_SECONDS,
    }
}

/// Answers questions from stdin until it ends. Stderr is a file with the name of the current rule.
///
/// # Errors
/// The process cannot set its limits, or its socket fails.
pub fn run() -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    for (resource, limit) in [
        (Resource::RLIMIT_AS, MEMORY),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, FILES),
        (Resource::RLIMIT_FSIZE, 1 << 20),
    ] {
        // The parent process may have set a lower limit.
        let (_, hard) = getrlimit(resource)?;
        let limit = limit.min(hard);
        setrlimit(resource, limit, limit)?;
    }
    nix::sys::prctl::set_name(c"bridge-rules")?;
    // When memory runs short, the kernel kills this process first. If this cannot be set, the limits are enough.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let mut note = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    // Messages of the process at its end are written behind the note.
    note.seek(SeekFrom::Start(NOTE as u64))?;
    let note = Some(note);
    let mut helper = Helper::new(note);
    let (mut questions, mut answers) = (io::stdin().lock(), io::stdout().lock());
    helper.environment.note("", &serde_json::Value::Null);
    loop {
        // Reading a question costs time, too.
        allow_seconds(SCHEMA_SECONDS)?;
        let Some(question) = frame::read(&mut questions, QUESTION_MAX)? else { return Ok(()) };
        // From here on the process may end because of the question: parsed, it is many times as large.
        helper.environment.note(UNDER_WAY, &serde_json::Value::Null);
        let question: Question = serde_json::from_slice(&question)?;
        allow_seconds(seconds(&question))?;
        let answer = helper.answer(question);
        // Before the answer: ending the process after its answer must not look like an interruption.
        helper.environment.note("", &serde_json::Value::Null);
        frame::write(&mut answers, &answer, ANSWER_MAX)?;
    }
}

/// Lets the process run for so much longer; then the kernel ends it.
fn allow_seconds(seconds: u64) -> io::Result<()> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let used = u64::try_from((usage.user_time() + usage.system_time()).num_seconds()).unwrap_or(0);
    let (_, hard) = getrlimit(Resource::RLIMIT_CPU)?;
    // The limit counts whole seconds, so the started one is added.
    Ok(setrlimit(Resource::RLIMIT_CPU, (used + seconds + 1).min(hard), hard)?)
}

/// What answers.
pub(crate) struct Helper {
    environment: Environment,
    schemas: HashMap<String, Option<Node>>,
    order: VecDeque<String>,
}

impl Helper {
    pub(crate) fn new(note: Option<File>) -> Self {
        Self { environment: Environment::new(note), schemas: HashMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn answer(&mut self, question: Question) -> Answer {
        match question {
            Question::Compile { schemas } => {
                let mut findings = Vec::new();
                for (path, schema) in &schemas {
                    let Some(node) = Node::of(schema, path, &self.environment) else { continue };
                    for place in node.all() {
                        for (index, rule) in place.rules.iter().enumerate() {
                            findings.extend(rule.findings(&place.path, index, place.uncorrelatable.as_deref()));
                        }
                    }
                }
                bounded(findings, Vec::new())
            }
            Question::Learn { name, schema } => {
                let node = Node::of(&schema, "openAPIV3Schema", &self.environment);
                if self.schemas.insert(name.clone(), node).is_none() {
                    self.order.push_back(name);
                }
                while self.order.len() > SCHEMAS {
                    if let Some(oldest) = self.order.pop_front() {
                        self.schemas.remove(&oldest);
                    }
                }
                Answer::Learned
            }
            Question::Validate { name, new, old } => match self.schemas.get(&name) {
                None => Answer::Unknown,
                Some(None) => bounded(Vec::new(), Vec::new()),
                Some(Some(node)) => {
                    let verdict = validate(node, &self.environment, &new, old.as_ref());
                    bounded(verdict.findings, verdict.warnings)
                }
            },
        }
    }
}

/// An answer that is not too large: texts are the rules' own.
fn bounded(mut findings: Vec<crate::question::Finding>, mut warnings: Vec<String>) -> Answer {
    let mut room = ANSWER_MAX as usize / 2;
    let mut fits = |length: usize| {
        let fits = length <= room;
        room = room.saturating_sub(length);
        fits
    };
    for finding in &mut findings {
        shorten(&mut finding.text);
        shorten(&mut finding.field);
    }
    warnings.iter_mut().for_each(shorten);
    findings.retain(|finding| fits(encoded(&finding.field) + encoded(&finding.text)));
    warnings.retain(|warning| fits(encoded(warning)));
    Answer::Judged { findings, warnings }
}

/// Maximum length of a text in JSON, including quotes and separators.
fn encoded(text: &str) -> usize {
    const AROUND: usize = 64;
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        byte if byte < b' ' => 6,
        _ => 1,
    };
    AROUND + text.bytes().map(escaped).sum::<usize>()
}

fn shorten(text: &mut String) {
    const MOST: usize = 16 << 10;
    if text.len() > MOST {
        *text = text.chars().take(MOST / 4).collect::<String>() + "...";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::{Finding, Reason};

    #[test]
    fn an_answer_fits_whatever_its_texts_are() {
        let text = "\u{1}".repeat(16 << 10);
        let finding = Finding { field: text.clone(), reason: Reason::Invalid, text: text.clone() };
        for (findings, warnings) in [(100, 100), (0, 1_000), (3, 0)] {
            let answer = bounded(vec![finding.clone(); findings], vec![text.clone(); warnings]);
            let Answer::Judged { findings: left, .. } = &answer else { panic!("{answer:?}") };
            assert!(findings == 0 || !left.is_empty());
            frame::encode(&answer, ANSWER_MAX).unwrap();
        }
        let many = bounded(Vec::new(), vec![String::new(); 1_000_000]);
        frame::encode(&many, ANSWER_MAX).unwrap();
    }
}
