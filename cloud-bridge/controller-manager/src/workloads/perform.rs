//! Executes a plan with a client of the API, and returns the results. No decisions.

use std::convert::identity;
use std::time::Duration;

use apimachinery::aside::CONTROLLERS;
use apimachinery::pace::is_large;
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde_json::Value;

use super::plan::{Action, Check, Deletion, Failure, Order, Outcome, Plan, Told, Write};
use crate::events::Recorder;
use crate::events::event::Event;
use crate::podautoscaler;

/// An API that does not answer is given up after this, and asked again later.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum length of a kept message in bytes: admission may name every container of a pod.
const MESSAGE: usize = 1024;
/// Maximum number of concurrent requests.
const AT_ONCE: usize = 32;

fn failure(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let namespace_ends = { causes }.any(|cause| cause.reason == "NamespaceTerminating");
            Failure {
                code: status.code,
                message: status.message[..status.message.floor_char_boundary(MESSAGE)].to_owned(),
                namespace_ends,
                already_exists: status.reason == "AlreadyExists",
                creates: None,
            }
        }
        other => unanswered(other.to_string()),
    }
}

/// Executes a plan. Each executed action is returned with its result; the first failure ends the plan.
pub(crate) async fn perform<'a>(
    client: &Client,
    events: &mut Recorder,
    plan: &'a Plan,
) -> (Vec<(&'a Action, Outcome)>, Result<(), Failure>) {
    plan.told.iter().for_each(|told| events.record(event_of(told.clone())));
    let mut done = Vec::new();
    let mut rest = plan.actions.as_slice();
    let mut size = if plan.order == Order::AllAtOnce { AT_ONCE } else { 1 };
    let mut checked = Vec::new();
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(size.min(rest.len()));
        // Each is asked once: one object that lives has many dependents.
        for check in batch.iter().filter_map(|action| action.check.as_ref()) {
            if checked.contains(&check) {
                continue;
            }
            if let Err(failure) = ask(client, check).await {
                return (done, Err(failure));
            }
            checked.push(check);
        }
        let results = join_all(batch.iter().map(|action| write(client, action))).await;
        let mut failed = None;
        for (action, result) in batch.iter().zip(results) {
            if let Some(told) = action.news(&result) {
                events.record(event_of(told));
            }
            match result {
                Ok(outcome) => done.push((action, outcome)),
                Err(failure) => drop(failed.get_or_insert(failure.of(action))),
            }
        }
        if let Some(failure) = failed {
            return (done, Err(failure));
        }
        rest = after;
        if plan.order == Order::SlowStart {
            size = (size * 2).min(AT_ONCE);
        }
    }
    for told in &plan.done {
        events.record(event_of(told.clone()));
    }
    (done, Ok(()))
}

fn event_of(told: Told) -> Event {
    Event {
        about: told.about,
        kind: if told.warning { "Warning" } else { "Normal" },
        reason: told.reason,
        message: told.message,
        component: told.component,
        action: None,
    }
}

/// Asks the API itself whether an object is as a write needs it.
async fn ask(client: &Client, check: &Check) -> Result<(), Failure> {
    let request = Request::new(check.kind.url(&check.key.namespace)).get(&check.key.name, &GetParams::default());
    match send(client, request.map_err(|error| unanswered(error.to_string()))?, identity).await {
        Ok(object) => check.judge(Some(&object)),
        Err(failure) if failure.code == 404 => check.judge(None),
        Err(failure) => Err(failure),
    }
}

/// How many pods a controller wants, by its `scale`.
pub(crate) async fn scale(client: &Client, namespace: &str, owner: &OwnerReference) -> Result<i64, String> {
    let read = podautoscaler::scale(client, namespace, &owner.api_version, &owner.kind, &owner.name);
    let late = || format!("the API did not answer within {} s", PATIENCE.as_secs());
    let scale = tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(late()))?;
    match scale["metadata"]["uid"].as_str() {
        Some(uid) if uid != owner.uid => Err(format!("{} {} is another one by now", owner.kind, owner.name)),
        _ => Ok(scale["spec"]["replicas"].as_i64().unwrap_or_default()),
    }
}

fn unanswered(message: String) -> Failure {
    Failure { message, ..Failure::default() }
}

/// Sends a request; `read` converts the object in the answer.
async fn send<T: Send + 'static>(
    client: &Client,
    request: http::Request<Vec<u8>>,
    read: impl FnOnce(Value) -> T + Send + 'static,
) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, client.request_text(request)).await {
        Ok(Ok(answer)) => parsed(answer, read).await,
        Ok(Err(error)) => Err(failure(&error)),
        Err(_) => Err(unanswered(format!("the API did not answer within {} s", PATIENCE.as_secs()))),
    }
}

/// Reads an answer: a large one beside the thread.
async fn parsed<T: Send + 'static>(
    answer: String,
    read: impl FnOnce(Value) -> T + Send + 'static,
) -> Result<T, Failure> {
    let large = is_large(answer.len());
    let work = move || serde_json::from_str(&answer).map(read).map_err(|error| unanswered(error.to_string()));
    if !large {
        return work();
    }
    CONTROLLERS.result(work).await.unwrap_or_else(|error| Err(unanswered(error.to_string())))
}

async fn write(client: &Client, action: &Action) -> Result<Outcome, Failure> {
    let (kind, template, deletes) = (action.kind, action.is_read(), action.removes().is_some());
    let read = move |object: Value| {
        // If the object was deleted at once, the answer is a Status.
        let gone = deletes && object["kind"] == "Status";
        if gone { Outcome::Removed } else { Outcome::is(kind, template, object) }
    };
    match send(client, request(action).map_err(unanswered)?, read).await {
        Err(failure) if failure.code == 404 && deletes => Ok(Outcome::Gone),
        done => done,
    }
}

fn request(action: &Action) -> Result<http::Request<Vec<u8>>, String> {
    let request = Request::new(action.kind.url(&action.key.namespace));
    let name = &action.key.name;
    let params = PatchParams::default();
    let built = match &action.write {
        Write::Read => request.get(name, &GetParams::default()),
        Write::Create(object) => {
            let body = object.bytes().map_err(|error| error.to_string())?;
            request.create(&PostParams::default(), body)
        }
        Write::Delete { uid, version, how } => {
            let params = match how {
                Deletion::Background => DeleteParams::background(),
                Deletion::Foreground => DeleteParams::foreground(),
                Deletion::Now => DeleteParams::default().grace_period(0),
            };
            let same = Preconditions { uid: Some(uid.clone()), resource_version: version.clone() };
            request.delete(name, &params.preconditions(same))
        }
        Write::Merge { subresource: None, patch } => request.patch(name, &params, &Patch::Merge(patch)),
        Write::Merge { subresource: Some(part), patch } => {
            request.patch_subresource(part, name, &params, &Patch::Merge(patch))
        }
        Write::Strategic { subresource: None, patch } => request.patch(name, &params, &Patch::Strategic(patch)),
        Write::Strategic { subresource: Some(part), patch } => {
            request.patch_subresource(part, name, &params, &Patch::Strategic(patch))
        }
    };
    built.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use apimachinery::pace::LARGE;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn large_answer_is_read_beside_the_thread() {
        let here = std::thread::current().id();
        for (size, aside) in [(1, false), (LARGE, true)] {
            let answer = json!({"data": "x".repeat(size)}).to_string();
            let read = move |_: Value| std::thread::current().id() != here;
            assert_eq!(parsed(answer, read).await.unwrap(), aside, "{size}");
        }
    }
}
