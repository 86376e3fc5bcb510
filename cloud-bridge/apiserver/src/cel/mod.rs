//! Has validation rules judged by the helper process (`sampan_cel`), which is started with the first question: without
//! rules there is no process. A rule may take all the time and memory that the helper has, and no more; other requests
//! go on meanwhile.

mod process;
mod turns;

use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::resource::cel::{CelQuestion, Verdict};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::field::{FieldError, FieldErrorKind};
use process::{Fate, Process};
use sampan_cel::question::{Answer, Finding, Question, Reason};
use turns::Turns;

/// Questions that may wait.
const WAITING: usize = 1_000;
/// How long a question waits for its turn before the client is asked to come again.
const PATIENCE: Duration = Duration::from_secs(40);
/// A helper that nobody has asked for so long is ended.
const IDLE: Duration = Duration::from_secs(300);
/// After a definition's rule has used up the helper, its rules rest for so many times as long as that took: others get
/// most of the helper's time.
const REST: u32 = 5;

struct Asked {
    question: CelQuestion,
    answer: oneshot::Sender<ApiResult<Verdict>>,
}

/// Whom to ask.
pub(crate) struct Cel {
    command: Option<Vec<OsString>>,
    queue: OnceLock<mpsc::Sender<Asked>>,
    /// Process id of the helper, for tests.
    helper: Arc<Mutex<Option<u32>>>,
}

impl Cel {
    /// `command` is the helper; without one nothing with rules is taken.
    pub(crate) fn new(command: Option<Vec<OsString>>) -> Self {
        Self { command, queue: OnceLock::new(), helper: Arc::default() }
    }

    /// The helper's process id, while there is one.
    pub(crate) fn helper(&self) -> Option<u32> {
        *self.helper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges.
    ///
    /// # Errors
    /// Nobody can judge now: the client should try again.
    pub(crate) async fn ask(&self, question: CelQuestion) -> ApiResult<Verdict> {
        let Some(command) = &self.command else {
            return Err(ApiError::internal("this server was started without a helper for validation rules"));
        };
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(WAITING);
            tokio::spawn(judge(command.clone(), receiver, Arc::downgrade(&self.helper)));
            sender
        });
        let (answer, judged) = oneshot::channel();
        queue.try_send(Asked { question, answer }).map_err(|_| ApiError::busy())?;
        match timeout(PATIENCE, judged).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Err(ApiError::unavailable("the helper for validation rules has ended; try again")),
            Err(_) => Err(ApiError::busy()),
        }
    }
}

/// Answers questions, one after another, until nobody can ask any more.
async fn judge(command: Vec<OsString>, mut queue: mpsc::Receiver<Asked>, known: Weak<Mutex<Option<u32>>>) {
    let mut judge = Judge { command, process: None, known };
    let mut turns = Turns::default();
    loop {
        if turns.is_empty() {
            let asked = if judge.process.is_some() {
                match timeout(IDLE, queue.recv()).await {
                    Ok(asked) => asked,
                    Err(_) => {
                        judge.end().await;
                        continue;
                    }
                }
            } else {
                queue.recv().await
            };
            let Some(asked) = asked else { return };
            turns.add(asked.question.definition().to_owned(), asked);
        }
        while let Ok(asked) = queue.try_recv() {
            turns.add(asked.question.definition().to_owned(), asked);
        }
        let Some((definition, asked)) = turns.next() else { continue };
        if asked.answer.is_closed() {
            continue;
        }
        let about_object = matches!(asked.question, CelQuestion::Object { .. });
        if let Some(left) = turns.resting(&definition).filter(|_| about_object) {
            let why = format!(
                "a validation rule of {definition} has used up the time or memory that rules may take: rules of this definition are run again in {} s",
                left.as_secs() + 1
            );
            let _ = asked.answer.send(Err(ApiError::unavailable(why)));
            continue;
        }
        let started = Instant::now();
        let (verdict, used_up) = judge.judge(asked.question).await;
        // Whoever has just been refused a definition mends it at once.
        if used_up && about_object {
            turns.rest(definition, started.elapsed() * REST);
        }
        // Who asked may be gone.
        let _ = asked.answer.send(verdict);
    }
}

struct Judge {
    command: Vec<OsString>,
    process: Option<Process>,
    known: Weak<Mutex<Option<u32>>>,
}

impl Judge {
    /// The verdict, and whether a rule has used up the helper.
    async fn judge(&mut self, question: CelQuestion) -> (ApiResult<Verdict>, bool) {
        // Somebody else may end the helper, too: that is no rule's fault, and the next one answers.
        for _ in 0..2 {
            match self.put(&question).await {
                Ok(answer) => return (Ok(verdict(answer)), false),
                Err(Fate::Rule(how, note)) => return (Ok(blamed(&question, &how, &note)), true),
                Err(Fate::Slow(how)) => return (Err(ApiError::unavailable(how)), false),
                Err(Fate::Other(how)) => log::warn!("the helper for validation rules {how}; starting another"),
            }
        }
        (Err(ApiError::unavailable("the helper for validation rules ended again and again; try again later")), false)
    }

    async fn put(&mut self, question: &CelQuestion) -> Result<Answer, Fate> {
        match question {
            CelQuestion::Definition { schemas, .. } => self.send(&Question::Compile { schemas: schemas.clone() }).await,
            CelQuestion::Object { schema, new, old } => {
                let validate = Question::Validate { name: schema.name.clone(), new: new.clone(), old: old.clone() };
                match self.send(&validate).await? {
                    Answer::Unknown => {
                        let learn = Question::Learn { name: schema.name.clone(), schema: schema.value.clone() };
                        self.send(&learn).await?;
                        self.send(&validate).await
                    }
                    answer => Ok(answer),
                }
            }
        }
    }

    async fn send(&mut self, question: &Question) -> Result<Answer, Fate> {
        let process = match &mut self.process {
            Some(process) => process,
            none => {
                let process =
                    Process::start(&self.command).map_err(|e| Fate::Other(format!("cannot be started: {e}")))?;
                if let Some(known) = self.known.upgrade() {
                    *known.lock().unwrap_or_else(PoisonError::into_inner) = Some(process.id());
                }
                none.insert(process)
            }
        };
        let answer = process.ask(question).await;
        if answer.is_err() {
            self.end().await;
        }
        answer
    }

    async fn end(&mut self) {
        if let Some(process) = self.process.take() {
            process.end().await;
        }
        if let Some(known) = self.known.upgrade() {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

fn verdict(answer: Answer) -> Verdict {
    match answer {
        Answer::Judged { findings, warnings } => {
            Verdict { errors: findings.into_iter().map(field_error).collect(), warnings }
        }
        other => {
            let error = invalid("<nil>".to_owned(), format!("\"object\": the helper for rules answered {other:?}"));
            Verdict { errors: vec![error], warnings: Vec::new() }
        }
    }
}

fn field_error(finding: Finding) -> FieldError {
    let kind = match finding.reason {
        Reason::Invalid => FieldErrorKind::Invalid,
        Reason::Forbidden => FieldErrorKind::Forbidden,
        Reason::Required => FieldErrorKind::Required,
        Reason::Duplicate => FieldErrorKind::Duplicate,
        Reason::NotSupported => FieldErrorKind::NotSupported,
    };
    FieldError { field: finding.field, kind, message: finding.text }
}

fn invalid(field: String, shown: String) -> FieldError {
    FieldError { field, kind: FieldErrorKind::Invalid, message: format!("Invalid value: {shown}") }
}

/// The verdict on a rule that the helper did not survive.
fn blamed(question: &CelQuestion, how: &str, note: &str) -> Verdict {
    let (place, rule) = note.split_once('\n').unwrap_or_default();
    let error = match question {
        CelQuestion::Definition { .. } => {
            let field = if place.is_empty() { "spec.versions" } else { place };
            invalid(field.to_owned(), format!("{rule:?}: compilation failed: the rule {how}"))
        }
        CelQuestion::Object { schema, .. } => invalid(
            "<nil>".to_owned(),
            format!(
                "\"object\": no further validation rules will be run: the rule {rule:?} of {} ({place}) {how}; make it cheaper, or bound lists, maps and strings by maxItems, maxProperties and maxLength",
                schema.definition
            ),
        ),
    };
    Verdict { errors: vec![error], warnings: Vec::new() }
}
