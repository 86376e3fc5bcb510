//! Evaluates validation rules in the helper process (`sampan_cel`), which starts with the first evaluation: without
//! rules the process does not run. A rule may use all time and memory of the helper, and no more; other requests
//! continue meanwhile.

mod process;
mod turns;

use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::resource::cel::{About, CelQuestion, Verdict};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::field::{FieldError, FieldErrorKind};
use apimachinery::panics;
use apimachinery::turns::Turns;
use process::{Fate, Process};
use sampan_cel::frame::{self, QUESTION_MAX};
use sampan_cel::helper::{OBJECT_SECONDS, SCHEMA_SECONDS};
use sampan_cel::question::{Answer, Finding, Question, Reason};
use turns::{Resting, Turn};

/// Bytes of the questions that wait or are being judged, all together.
const WAITING: usize = 64 << 20;
/// Minimum cost of a question: a thousand small ones may wait.
const LEAST: usize = 64 << 10;
/// How long a question waits for its turn before the client is asked to come again.
const PATIENCE: Duration = Duration::from_secs(40);
/// An idle helper is stopped after this time.
const IDLE: Duration = Duration::from_secs(300);
/// After a rule has used up the helper, the rules of its definition pause for that user, for this multiple of the time
/// it took: other users get most of the helper's time.
const REST: u32 = 5;

struct Asked {
    turn: Turn,
    about: About,
    frame: Arc<[u8]>,
    answer: oneshot::Sender<ApiResult<Verdict>>,
    /// Its part of `WAITING`: it ends with the question, not with the request, which a client may leave.
    room: OwnedSemaphorePermit,
}

/// Client of the helper.
pub(crate) struct Cel {
    command: Option<Vec<OsString>>,
    /// Bounded by `room`.
    queue: OnceLock<mpsc::UnboundedSender<Asked>>,
    room: Arc<Semaphore>,
    /// Process id of the helper, for tests.
    helper: Arc<Mutex<Option<u32>>>,
}

impl Cel {
    /// `command` is the helper; without one, definitions with rules are refused.
    pub(crate) fn new(command: Option<Vec<OsString>>) -> Self {
        Self { command, queue: OnceLock::new(), room: Arc::new(Semaphore::new(WAITING)), helper: Arc::default() }
    }

    /// The helper's process id, while there is one.
    pub(crate) fn helper(&self) -> Option<u32> {
        *self.helper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges what this user writes.
    ///
    /// # Errors
    /// The rules cannot be evaluated now and the client should retry, or the question is too large.
    pub(crate) async fn ask(&self, user: &str, question: &CelQuestion) -> ApiResult<Verdict> {
        let Some(command) = &self.command else {
            return Err(ApiError::internal("this server was started without a helper for validation rules"));
        };
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(judge(command.clone(), receiver, Arc::downgrade(&self.helper)));
            sender
        });
        let frame = question.frame().ok_or_else(|| ApiError::too_large(QUESTION_MAX as usize))?;
        let bytes = u32::try_from(frame.len().max(LEAST)).map_err(|_| ApiError::too_large(WAITING))?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes).map_err(|_| ApiError::busy())?;
        let turn = Turn::of(question.definition(), user);
        let (answer, judged) = oneshot::channel();
        let asked = Asked { turn, about: question.about().clone(), frame, answer, room };
        queue.send(asked).map_err(|_| ApiError::busy())?;
        match timeout(PATIENCE, judged).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Err(ApiError::unavailable("the helper for validation rules has ended; try again")),
            Err(_) => Err(ApiError::busy()),
        }
    }
}

/// Answers questions, one after another, until the last sender is dropped.
async fn judge(command: Vec<OsString>, mut queue: mpsc::UnboundedReceiver<Asked>, known: Weak<Mutex<Option<u32>>>) {
    let mut judge = Judge { command, process: None, known };
    let (mut turns, mut resting) = (Turns::<Turn, Asked>::default(), Resting::default());
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
            turns.add(asked.turn.clone(), asked);
        }
        while let Ok(asked) = queue.try_recv() {
            turns.add(asked.turn.clone(), asked);
        }
        // The client may have disconnected.
        turns.retain(|asked| !asked.answer.is_closed());
        let Some((turn, asked)) = turns.take() else { continue };
        let about_object = matches!(asked.about, About::Object(_));
        if let Some(left) = resting.left(&turn).filter(|_| about_object) {
            let _ = asked.answer.send(Err(rests(&turn, left)));
            continue;
        }
        let started = Instant::now();
        let work = format!("validation rules of {}", turn.definition);
        let judged = panics::isolate(work, judge.judge(&asked)).await;
        let (verdict, used_up) = match judged {
            Some(judged) => judged,
            None => {
                // The state of the helper is unknown.
                judge.end().await;
                (Err(ApiError::internal("the validation rules could not be judged")), false)
            }
        };
        // A user whose definition is refused corrects it and retries at once.
        if used_up && about_object {
            resting.rest(turn, started.elapsed() * REST);
        }
        let Asked { answer, room, .. } = asked;
        drop(room);
        let _ = answer.send(verdict);
    }
}

fn rests(turn: &Turn, left: Duration) -> ApiError {
    let Turn { definition, user } = turn;
    ApiError::unavailable(format!(
        "a validation rule of {definition} has used up the time or memory that rules may take: for {user} rules of this definition are run again in {} s",
        left.as_secs() + 1
    ))
}

struct Judge {
    command: Vec<OsString>,
    process: Option<Running>,
    known: Weak<Mutex<Option<u32>>>,
}

struct Running {
    process: Process,
    /// It has judged something before.
    used: bool,
}

impl Judge {
    /// The verdict, and whether a rule has used up the helper.
    async fn judge(&mut self, asked: &Asked) -> (ApiResult<Verdict>, bool) {
        let about_object = matches!(asked.about, About::Object(_));
        // Another process may also kill the helper: no rule is at fault, and the next helper answers.
        for last in [false, true] {
            let used = self.process.as_ref().is_some_and(|running| running.used);
            match self.put(asked).await {
                Ok(answer) => {
                    if let Some(running) = &mut self.process {
                        running.used = true;
                    }
                    return (Ok(verdict(answer)), false);
                }
                // Earlier questions may have filled the memory; a new helper has all of it.
                Err(Fate::Memory(..)) if used && !last => log::warn!("a new helper is asked the same"),
                Err(Fate::Rule(how, note) | Fate::Memory(how, note)) => {
                    return (Ok(blamed(&asked.about, &how, &note)), true);
                }
                // Most likely the kernel, which was out of memory: starting another helper at once would make that
                // worse.
                Err(Fate::Killed) if about_object => {
                    let why = "the helper for validation rules was killed while it judged the object; try again later";
                    log::warn!("{why}");
                    return (Err(ApiError::unavailable(why)), true);
                }
                Err(Fate::Slow(how)) => return (Err(ApiError::unavailable(how)), false),
                Err(Fate::TooLarge) => return (Err(ApiError::too_large(QUESTION_MAX as usize)), false),
                Err(Fate::Killed) => log::warn!("the helper for validation rules was killed; starting another"),
                Err(Fate::Other(how)) => log::warn!("the helper for validation rules {how}; starting another"),
            }
        }
        (Err(ApiError::unavailable("the helper for validation rules ended again and again; try again later")), false)
    }

    async fn put(&mut self, asked: &Asked) -> Result<Answer, Fate> {
        let About::Object(schema) = &asked.about else { return self.send(&asked.frame, SCHEMA_SECONDS).await };
        match self.send(&asked.frame, OBJECT_SECONDS).await? {
            Answer::Unknown => {
                let learn = Question::Learn { name: schema.name.clone(), schema: &schema.value };
                let learn = frame::encode(&learn, QUESTION_MAX).map_err(|_| Fate::TooLarge)?;
                self.send(&learn, SCHEMA_SECONDS).await?;
                self.send(&asked.frame, OBJECT_SECONDS).await
            }
            answer => Ok(answer),
        }
    }

    async fn send(&mut self, question: &[u8], seconds: u64) -> Result<Answer, Fate> {
        let running = match &mut self.process {
            Some(running) => running,
            none => {
                let process =
                    Process::start(&self.command).map_err(|e| Fate::Other(format!("cannot be started: {e}")))?;
                if let Some(known) = self.known.upgrade() {
                    *known.lock().unwrap_or_else(PoisonError::into_inner) = Some(process.id());
                }
                none.insert(Running { process, used: false })
            }
        };
        let answer = running.process.ask(question, seconds).await;
        if answer.is_err() {
            self.end().await;
        }
        answer
    }

    async fn end(&mut self) {
        if let Some(running) = self.process.take() {
            running.process.end().await;
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
fn blamed(about: &About, how: &str, note: &str) -> Verdict {
    let (place, rule) = note.split_once('\n').unwrap_or_default();
    let error = match about {
        About::Definition(_) => {
            let field = if rule.is_empty() { "spec.versions" } else { place };
            invalid(field.to_owned(), format!("{rule:?}: compilation failed: the rule {how}"))
        }
        About::Object(schema) => invalid(
            "<nil>".to_owned(),
            format!(
                "\"object\": no further validation rules will be run: the rule {rule:?} of {} ({place}) {how}; make it cheaper, or bound lists, maps and strings by maxItems, maxProperties and maxLength",
                schema.definition
            ),
        ),
    };
    Verdict { errors: vec![error], warnings: Vec::new() }
}

#[cfg(test)]
mod tests;
