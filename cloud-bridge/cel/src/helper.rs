//! The process that judges rules. It bounds itself before it reads anything: whatever a rule does, it is this process
//! that ends, and whoever asked says so.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;

use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};

use crate::environment::Environment;
pub use crate::environment::NOTE;
use crate::frame::{self, ANSWER_MAX, QUESTION_MAX};
use crate::question::{Answer, Question};
use crate::schema::Node;
use crate::validate::validate;

/// Processor time, in seconds, that a question about an object may take, and one about a schema.
const OBJECT_SECONDS: u64 = 2;
const SCHEMA_SECONDS: u64 = 10;
/// Memory that the helper may have.
const MEMORY: u64 = 384 << 20;
/// Descriptors: pipes and the note.
const FILES: u64 = 16;
/// Schemas kept compiled.
const SCHEMAS: usize = 64;

/// How much processor time a question may take, in seconds.
pub fn seconds(question: &Question) -> u64 {
    match question {
        Question::Validate { .. } => OBJECT_SECONDS,
        Question::Compile { .. } | Question::Learn { .. } => SCHEMA_SECONDS,
    }
}

/// Answers questions on stdin until it ends. Stderr is a file that says which rule is under way.
///
/// # Errors
/// The process cannot bound itself, or its socket fails.
pub fn run() -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    for (resource, limit) in [
        (Resource::RLIMIT_AS, MEMORY),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, FILES),
        (Resource::RLIMIT_FSIZE, 1 << 20),
    ] {
        setrlimit(resource, limit, limit)?;
    }
    nix::sys::prctl::set_name(c"bridge-rules")?;
    // When memory runs short, this process goes first. Where that is not to be had, the limits are enough.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let mut note = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    // What the process says at its end stands behind the note.
    note.seek(SeekFrom::Start(NOTE as u64))?;
    let note = Some(note);
    let mut helper = Helper::new(note);
    let (mut questions, mut answers) = (io::stdin().lock(), io::stdout().lock());
    loop {
        // Reading a question costs time, too.
        allow_seconds(SCHEMA_SECONDS)?;
        helper.environment.note("", &serde_json::Value::Null);
        let Some(question) = frame::read(&mut questions, QUESTION_MAX)? else { return Ok(()) };
        allow_seconds(seconds(&question))?;
        let answer = helper.answer(question);
        frame::write(&mut answers, &answer, ANSWER_MAX)?;
    }
}

/// Lets the process run for so much longer; then the kernel ends it.
fn allow_seconds(seconds: u64) -> io::Result<()> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let used = u64::try_from(usage.user_time().tv_sec() + usage.system_time().tv_sec()).unwrap_or(0);
    // The limit counts whole seconds: what was begun is given away.
    Ok(setrlimit(Resource::RLIMIT_CPU, used + seconds + 1, nix::sys::resource::RLIM_INFINITY)?)
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
    let mut room = ANSWER_MAX as usize / 4;
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
    findings.retain(|finding| fits(finding.field.len() + finding.text.len()));
    warnings.retain(|warning| fits(warning.len()));
    Answer::Judged { findings, warnings }
}

fn shorten(text: &mut String) {
    const MOST: usize = 16 << 10;
    if text.len() > MOST {
        *text = text.chars().take(MOST / 4).collect::<String>() + "...";
    }
}
