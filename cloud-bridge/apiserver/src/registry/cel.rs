//! Connects the verbs with the helper that evaluates validation rules of custom resources. A verb runs without a pause
//! under the storage's lock; the helper takes time. So a verb that meets rules ends with a question. When the helper
//! has answered, the verb runs again from the start, on the state stored by then. An answer is valid only for exactly
//! its question.

use std::collections::HashSet;

use serde_json::Value;

use super::context::Context;
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::strategy::Strategy;
use apimachinery::field::{FieldError, FieldErrorKind};
use apimachinery::json::items;
use apimachinery::meta;

/// Adds the errors that the rules find in the object. Unlike in Kubernetes, a write that only removes finalizers from
/// an object under deletion is not checked: if the rules cannot be evaluated, such objects and their namespaces would
/// stay forever.
///
/// # Errors
/// The rules have not been evaluated yet: `attempts::answered` does that.
pub(crate) fn check(
    ctx: &mut Context<'_>,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) -> ApiResult<()> {
    let strategy = ctx.resource.strategy();
    if old.is_some_and(|old| only_lets_go(strategy, new, old)) {
        return Ok(());
    }
    let Some(question) = strategy.validations(&ctx.path.subresource, new, old) else { return Ok(()) };
    if errors.iter().any(|error| blocks(error.kind)) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.push(FieldError::invalid("<nil>", &Value::Null, why));
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

/// Whether the write of an object that is being deleted only removes finalizers.
fn only_lets_go(strategy: &dyn Strategy, new: &Value, old: &Value) -> bool {
    let (kept, had) = (items(&new["metadata"], "finalizers"), items(&old["metadata"], "finalizers"));
    let known: HashSet<&str> = had.iter().filter_map(Value::as_str).collect();
    let knows = |one: &Value| one.as_str().is_some_and(|one| known.contains(one));
    if !meta::deleting(old) || kept.len() >= had.len() || !kept.iter().all(knows) {
        return false;
    }
    // The old object may be older than its schema, so it is compared as if it were written now.
    let rest = |object: &Value| {
        let mut object = strategy.decode(object.clone()).ok()?.value;
        strategy.default(&mut object);
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut)?;
        for field in ["finalizers", "resourceVersion", "managedFields", "generation"] {
            metadata.remove(field);
        }
        Some(object)
    };
    let (new, old) = (rest(new), rest(old));
    new.is_some() && new == old
}

/// Errors after which values may violate the schema, so that rules cannot be evaluated.
fn blocks(kind: FieldErrorKind) -> bool {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}
