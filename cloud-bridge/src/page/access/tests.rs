use std::time::Duration;

use http::HeaderValue;
use kube::Client;
use serde_json::json;

use super::*;

/// An API with the tokens `good`, whose user may list nodes, `all`, whose user may list everything, and `other`,
/// whose user may list nothing.
pub(in crate::page) fn api() -> Client {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        let bytes = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
        let Ok(mut review) = serde_json::from_slice::<serde_json::Value>(&bytes) else {
            return Err(std::io::Error::other("a watch or a list, which is not here"));
        };
        let spec = &review["spec"];
        let status = match spec["token"].as_str() {
            Some("broken") => return Err(std::io::Error::other("the API is away")),
            Some(token) => {
                let known = ["good", "all", "other"].contains(&token);
                json!({"authenticated": known, "user": {"username": token}})
            }
            None => {
                let asked = &spec["resourceAttributes"];
                let lists = asked["verb"] == "list" && asked["resource"] == "nodes" && asked["name"] == "";
                // `all` may list more than nodes.
                let allowed = (spec["user"] == "good" && lists && asked["group"].is_null()) || spec["user"] == "all";
                json!({ "allowed": allowed })
            }
        };
        review.as_object_mut().unwrap().insert("status".to_owned(), status);
        let body = http_body_util::Full::new(bytes::Bytes::from(review.to_string()));
        Ok::<_, std::io::Error>(http::Response::new(body))
    });
    Client::new(service, "default")
}

fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
}

pub(in crate::page) fn from() -> Source {
    Source::of([192, 0, 2, 1].into())
}

#[tokio::test]
async fn tokens_are_checked_by_the_api() {
    let access = Access::new(api());
    let with = |token: &str| headers(header::AUTHORIZATION, &format!("Bearer {token}"));
    assert!(matches!(access.check(None, &HeaderMap::new(), from()).await, Err(Denied::Unauthorized)));
    assert!(matches!(access.check(None, &with("wrong"), from()).await, Err(Denied::Unauthorized)));
    assert!(matches!(access.check(None, &with("other"), from()).await, Err(Denied::Forbidden { .. })));
    assert!(matches!(access.check(None, &with("broken"), from()).await, Err(Denied::Api(_))));
    assert_eq!(access.check(None, &with("good"), from()).await.unwrap().name(), "good");
}

#[tokio::test]
async fn certificates_are_of_operators_and_have_an_end() {
    let access = Access::new(api());
    let none = HeaderMap::new();
    let holder = |group: &str, seconds: u64| Holder {
        subject: Subject { user: "robot".into(), groups: vec![group.into()] },
        issued: SystemTime::UNIX_EPOCH,
        expires: clock::now() + Duration::from_secs(seconds),
        authority_key: None,
    };
    assert!(access.check(Some(&holder("sampan:operators", 60)), &none, from()).await.is_ok());
    assert!(access.check(Some(&holder("sampan:operators", 0)), &none, from()).await.is_err());
    let node = holder("system:nodes", 60);
    assert!(matches!(access.check(Some(&node), &none, from()).await, Err(Denied::Unauthorized)));
    let token = headers(header::AUTHORIZATION, "Bearer good");
    assert!(access.check(Some(&node), &token, from()).await.is_ok(), "whoever has a token has it");
    let brief = Who::Operator { subject: holder("sampan:operators", 0).subject, expires: clock::now() };
    assert!(!access.holds(&brief).await);
    let denied = access.may_list(&brief, "devices.kubeedge.io", "devices").await;
    assert!(matches!(denied, Err(Denied::Forbidden { .. })), "operators need the right, too: {denied:?}");
}

#[tokio::test]
async fn the_right_to_list_nodes_covers_nothing_else() {
    let access = Access::new(api());
    let who = |token: &str| Who::User { user: token.into(), token: token.into(), session: None, from: from() };
    assert!(access.may_list(&who("good"), "", "nodes").await.is_ok());
    for (group, resource) in [("devices.kubeedge.io", "devices"), ("metrics.k8s.io", "nodes")] {
        let denied = access.may_list(&who("good"), group, resource).await;
        assert!(matches!(denied, Err(Denied::Forbidden { .. })), "{group} {resource}");
        assert!(access.may_list(&who("all"), group, resource).await.is_ok(), "{group} {resource}");
    }
    assert!(matches!(access.may_list(&who("wrong"), "", "nodes").await, Err(Denied::Unauthorized)));
}

#[tokio::test]
async fn a_cookie_stands_for_a_token_until_it_ends() {
    let access = Access::new(api());
    for bad in ["", "wrong", "two words", "\u{e4}"] {
        assert!(matches!(access.log_in(bad, from()).await, Err(Denied::Unauthorized)), "{bad:?}");
    }
    assert!(matches!(access.log_in("other", from()).await, Err(Denied::Forbidden { .. })));
    let set = access.log_in(" good\n", from()).await.unwrap();
    for part in ["__Host-sampan=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Max-Age=28800"] {
        assert!(set.contains(part), "{part} in {set}");
    }
    assert!(!set.contains("good"), "the token stays here");
    let shown = headers(header::COOKIE, &format!("a=b; {}", set.split(';').next().unwrap()));
    let who = access.check(None, &shown, from()).await.unwrap();
    assert!(access.holds(&who).await);
    assert!(access.log_out(&shown).contains("Max-Age=0"));
    assert!(matches!(access.check(None, &shown, from()).await, Err(Denied::Unauthorized)));
    assert!(!access.holds(&who).await, "also whoever has begun to look");
    access.sessions().open("old".into(), "good".into(), Instant::now() - LIFE);
    let old = headers(header::COOKIE, "__Host-sampan=old");
    assert!(matches!(access.check(None, &old, from()).await, Err(Denied::Unauthorized)), "an expired session");
    access.sessions().open("lost".into(), "wrong".into(), Instant::now());
    let lost = headers(header::COOKIE, "__Host-sampan=lost");
    assert!(access.check(None, &lost, from()).await.is_err());
    assert_eq!(access.sessions().token("lost", Instant::now()), None, "its token is good no more");
}
