//! Tests of the reviewer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use futures::FutureExt;
use http::header::AUTHORIZATION;
use serde_json::json;

use super::*;

/// An API that knows the token `good`, whose user may do everything to node `a`; and the number of questions.
fn api() -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            let bytes = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
            let mut review: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let status = match review["spec"]["token"].as_str() {
                Some(token) => json!({"authenticated": token == "good", "user": {"username": "robot"}}),
                None => json!({"allowed": review["spec"]["resourceAttributes"]["name"] == "a"}),
            };
            review.as_object_mut().unwrap().insert("status".to_owned(), status);
            let body = http_body_util::Full::new(bytes::Bytes::from(review.to_string()));
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test]
async fn what_the_api_said_is_remembered_for_a_while() {
    let (client, asked) = api();
    let (reviewer, asked) = (Reviewer::new(client), || asked.load(Ordering::Relaxed));
    let get = |token: &str| {
        let request = http::Request::get("/stats/summary").header(AUTHORIZATION, format!("Bearer {token}"));
        request.body(()).unwrap().into_parts().0
    };
    for _ in 0..3 {
        reviewer.check("a", None, &get("good"), from(1)).await.unwrap();
        assert!(matches!(reviewer.check("a", None, &get("bad"), from(1)).await, Err(Denied::Unauthorized)));
        assert!(matches!(reviewer.check("b", None, &get("good"), from(1)).await, Err(Denied::Forbidden { .. })));
    }
    assert_eq!(asked(), 4, "two tokens, two nodes");
    let ended = Holder {
        subject: Subject { user: "robot".to_owned(), groups: Vec::new() },
        issued: SystemTime::UNIX_EPOCH,
        expires: SystemTime::now() - Duration::from_secs(1),
        authority_key: None,
    };
    assert!(matches!(reviewer.check("a", Some(&ended), &get("good"), from(1)).await, Err(Denied::Unauthorized)));
    let good = Holder { expires: SystemTime::now() + Duration::from_secs(60), ..ended };
    reviewer.check("a", Some(&good), &get("bad"), from(1)).await.unwrap();
    assert_eq!(asked(), 4, "of the same user, however he came");
}

#[tokio::test]
async fn strangers_keep_no_familiar_token_waiting() {
    let (client, _) = api();
    let reviewer = Reviewer::new(client);
    assert!(reviewer.of_token("good", from(1)).await.is_ok());
    reviewer.tokens.put(hash("good"), None, Instant::now(), Duration::ZERO);
    let strangers = futures::future::join_all((0..8).map(|_| reviewer.strangers.take(from(2)))).await;
    let mut guesses: Vec<_> = (0..20).map(|at| Box::pin(guess(&reviewer, at, from(2)))).collect();
    assert!(guesses.iter_mut().all(|guess| guess.now_or_never().is_none()));
    let wait = Duration::from_secs(10);
    assert!(tokio::time::timeout(wait, reviewer.of_token("good", from(2))).await.unwrap().is_ok());
    let mut newcomer = Box::pin(reviewer.of_token("new", from(1)));
    assert!(newcomer.as_mut().now_or_never().is_none());
    drop(strangers);
    // The pending guesses keep their places, because they are not polled.
    let answered = tokio::time::timeout(wait, newcomer).await.unwrap();
    assert!(matches!(answered, Err(Denied::Unauthorized)), "all but one of another address wait longer");
    assert!(futures::future::join_all(guesses).await.iter().all(|good| !good));
}

async fn guess(reviewer: &Reviewer, at: usize, from: Source) -> bool {
    reviewer.of_token(&format!("guess {at}"), from).await.is_ok()
}

fn from(last: u8) -> Source {
    Source::of([192, 0, 2, last].into())
}

#[tokio::test]
async fn controller_needs_a_right_to_the_node_and_one_to_the_driver() {
    let (reviewer, asked) = {
        let (client, asked) = api();
        (Reviewer::new(client), asked)
    };
    let robot = || Subject { user: "robot".to_owned(), groups: Vec::new() };
    reviewer.check_controller(robot(), "a", "a").await.unwrap();
    for (node, driver, denied) in [("a", "b", "csidrivers"), ("b", "a", "nodes")] {
        match reviewer.check_controller(robot(), node, driver).await {
            Err(Denied::Forbidden { resource, .. }) => assert_eq!(resource, denied),
            other => panic!("{node} {driver}: {other:?}"),
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4, "two nodes, two drivers");
}
