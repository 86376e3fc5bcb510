//! Validation rules of custom resources, between the verbs, which run to their end under the storage's lock, and the
//! helper that judges, which takes its time. A verb that meets rules ends with a question; when it is answered, the verb
//! runs again from the start, on what is stored then. An answer counts only for the question that it was given to.

use serde_json::Value;

use super::{Answer, Context};
use crate::resource::cel::{CelQuestion, Verdict};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::field::{FieldError, FieldErrorKind};

/// How often an object may have changed while its rules were judged; as often as the API server tries a patch.
const ATTEMPTS: usize = 5;

/// What one request has asked about rules.
#[derive(Default)]
pub(crate) struct Asked {
    pending: Option<CelQuestion>,
    answered: Option<(CelQuestion, Verdict)>,
    name: Option<String>,
}

impl Asked {
    /// The generated name of a new object: the same each time that the verb runs.
    pub(crate) fn name(&mut self, make: impl FnOnce() -> String) -> String {
        self.name.get_or_insert_with(make).clone()
    }
}

/// Adds what the rules say of the object to the errors.
///
/// # Errors
/// They have to be asked first: `answered` does.
pub(crate) fn check(
    ctx: &mut Context<'_>,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) -> ApiResult<()> {
    let strategy = ctx.resource.strategy();
    let Some(question) = strategy.validations(&ctx.path.subresource, new, old) else { return Ok(()) };
    if errors.iter().any(|error| blocks(error.kind)) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        let message = format!("Invalid value: \"null\": {why}");
        errors.push(FieldError { field: "<nil>".to_owned(), kind: FieldErrorKind::Invalid, message });
        return Ok(());
    }
    match &ctx.cel.answered {
        Some((asked, verdict)) if *asked == question => {
            errors.extend(verdict.errors.iter().cloned());
            ctx.warnings.extend(verdict.warnings.iter().cloned());
            Ok(())
        }
        _ => {
            ctx.cel.pending = Some(question);
            Err(ApiError::internal("validation rules were not judged"))
        }
    }
}

/// Errors after which rules may meet what no schema allows.
fn blocks(kind: FieldErrorKind) -> bool {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

/// Runs a verb, and again whenever it has asked about rules and was answered.
pub(crate) async fn answered(
    ctx: &mut Context<'_>,
    mut verb: impl FnMut(&mut Context<'_>) -> ApiResult<Answer>,
) -> ApiResult<Answer> {
    let warnings = ctx.warnings.len();
    for _ in 0..ATTEMPTS {
        let outcome = verb(ctx);
        let Some(question) = ctx.cel.pending.take() else { return outcome };
        ctx.warnings.truncate(warnings);
        ctx.managed = None;
        let verdict = ctx.inner.cel.ask(question.clone()).await?;
        ctx.cel.answered = Some((question, verdict));
        // The definition may have changed meanwhile, or gone.
        let path = ctx.path;
        let found = ctx.inner.registry.find(&path.group, &path.version, &path.resource);
        ctx.resource = found.ok_or_else(ApiError::no_resource)?;
    }
    Err(ApiError::modified(&ctx.resource, &ctx.path.name))
}
