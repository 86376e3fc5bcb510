//! Limits of waiting questions, with a helper that never answers.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::*;
use crate::resource::cel::RuledSchema;

fn question(definition: &str, bytes: usize) -> CelQuestion {
    let schema = RuledSchema { name: String::new(), definition: definition.to_owned(), value: Value::Null };
    let validate: Question = Question::Validate { name: String::new(), new: "a".repeat(bytes).into(), old: None };
    CelQuestion::new(About::Object(Arc::new(schema)), &validate)
}

/// Until the condition holds; the test's own deadline is the harness'.
async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_waits_is_bounded_in_bytes_and_given_up_with_its_request() {
    let cel = Arc::new(Cel::new(Some(vec!["sleep".into(), "600".into()])));
    let ask = |bytes: usize| {
        let cel = Arc::clone(&cel);
        tokio::spawn(async move { cel.ask("u", &question("as.x.io", bytes)).await })
    };
    let large = 15 << 20;
    let mut asking: Vec<_> = (0..4).map(|_| ask(large)).collect();
    until(|| cel.helper().is_some() && cel.room.available_permits() < large).await;
    assert_eq!(ask(large).await.unwrap().unwrap_err().code, 429);
    assert_eq!(ask(17 << 20).await.unwrap().unwrap_err().code, 413);
    // Many small ones are bounded, too.
    let left = cel.room.available_permits();
    asking.extend((0..left / LEAST).map(|_| ask(1)));
    until(|| cel.room.available_permits() < LEAST).await;
    assert_eq!(ask(1).await.unwrap().unwrap_err().code, 429);
    // Clients disconnect: their questions count until they are dropped before the next evaluation.
    let first = asking.remove(0);
    for one in asking {
        one.abort();
        assert!(one.await.unwrap_err().is_cancelled());
    }
    assert!(cel.room.available_permits() < LEAST);
    let mut killed = None;
    while !first.is_finished() {
        if let Some(id) = cel.helper().filter(|id| killed != Some(*id)) {
            kill(Pid::from_raw(id.try_into().unwrap()), Signal::SIGKILL).unwrap();
            killed = Some(id);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(first.await.unwrap().unwrap_err().code, 503);
    until(|| cel.room.available_permits() == WAITING).await;
}
