use http::Request;
use http_body_util::Full;

use super::*;
use crate::bridge::Settings;
use crate::bridge::clients::Clients;
use crate::page::access::tests::{api, from};
use crate::page::board::{Phase, PodSeen};

fn served() -> Served {
    let bridge = Bridge::start(Clients::impersonating(api()), "c".to_owned(), Settings::default());
    Served::new(Live::new(false), bridge, api(), "Water <&> works".to_owned())
}

/// Code, headers and body.
async fn ask(served: &Served, request: http::request::Builder, body: &str) -> (u16, HeaderMap, String) {
    let (parts, body) = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap().into_parts();
    let answer = match served.known(None, &parts, body, from()).await {
        Ok(who) => served.answer(&who, parts.uri.path_and_query().unwrap().as_str(), false).await,
        Err(answer) => answer,
    };
    let (parts, mut body) = assets::guarded(answer).into_parts();
    let is_stream = parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    let bytes = match is_stream {
        true => body.frame().await.unwrap().unwrap().into_data().unwrap(),
        false => body.collect().await.unwrap().to_bytes(),
    };
    (parts.status.as_u16(), parts.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

fn with(token: &str, path: &str) -> http::request::Builder {
    Request::get(path).header(header::AUTHORIZATION, format!("Bearer {token}"))
}

#[tokio::test]
async fn whoever_may_not_look_sees_a_form_and_no_data() {
    let served = served();
    for path in ["/api/nodes", "/api/nodes/a", "/api/pods", "/api/stream", "/api", "/x"] {
        assert_eq!(ask(&served, Request::get(path), "").await.0, 401, "{path}");
        assert_eq!(ask(&served, with("wrong", path), "").await.0, 401, "{path}");
        assert_eq!(ask(&served, with("other", path), "").await.0, 403, "{path}");
        assert_eq!(ask(&served, with("broken", path), "").await.0, 502, "{path}");
    }
    let (code, _, text) = ask(&served, Request::get("/"), "").await;
    assert!(code == 401 && text.contains("name=\"token\"") && !text.contains("page.js"), "{text}");
    let (code, headers, text) = ask(&served, Request::get("/page.css"), "").await;
    assert!(code == 200 && !text.is_empty() && headers.contains_key(header::CONTENT_SECURITY_POLICY));
}

#[tokio::test]
async fn a_token_shows_the_page_and_its_data() {
    let served = served();
    let text = ask(&served, with("good", "/"), "").await.2;
    assert!(text.contains("/page.js") && text.contains("Water &lt;&amp;> works"), "{text}");
    assert!(text.contains(env!("CARGO_PKG_VERSION")) && !text.contains("<!--"), "{text}");
    let (code, headers, text) = ask(&served, with("good", "/api/nodes"), "").await;
    assert!(code == 200 && headers[header::CONTENT_TYPE] == JSON && text.contains("\"rows\":[]"), "{text}");
    let (code, headers, text) = ask(&served, with("good", "/api/stream"), "").await;
    assert!(code == 200 && headers[header::CONTENT_TYPE] == "text/event-stream" && text.starts_with("event: all\n"));
    assert_eq!(ask(&served, with("good", "/api/nodes/..%2f"), "").await.0, 404);
    assert_eq!(ask(&served, with("good", "/x"), "").await.0, 404);
    for method in [Method::PUT, Method::DELETE, Method::POST] {
        assert_eq!(ask(&served, with("good", "/api/nodes").method(method.clone()), "").await.0, 405, "{method}");
    }
}

/// A node with this name comes.
fn shown(served: &Served, name: &str) {
    let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    served.live.board().node(&node, SystemTime::now());
}

#[tokio::test]
async fn nodes_are_listed_by_name_behind_a_name() {
    let served = served();
    ["b", "c", "a"].iter().for_each(|name| shown(&served, name));
    for (query, wanted) in [("", vec!["a", "b", "c"]), ("?after=a", vec!["b", "c"]), ("?x=1&after=c", vec![])] {
        let (code, _, text) = ask(&served, with("good", &format!("/api/nodes{query}")), "").await;
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        let names: Vec<&str> = all["rows"].as_array().unwrap().iter().filter_map(|row| row[0].as_str()).collect();
        assert_eq!((code, names), (200, wanted), "{query}");
        assert!(all.get("more").is_none(), "{text}");
    }
}

#[tokio::test]
async fn pods_of_shown_nodes_are_searched() {
    let served = served();
    shown(&served, "a");
    for (name, node) in [("web", "a"), ("db", "a"), ("web-2", "other")] {
        let (namespace, phase, terminating, ready) = ("ns", Phase::Running, false, false);
        let pod = PodSeen { namespace, name, node, phase, terminating, ready, restarts: 0, created: 0, reason: "" };
        served.live.board().pod(pod, SystemTime::now());
    }
    for (query, wanted) in
        [("", vec!["db", "web"]), ("?filter=we+node%3Da", vec!["web"]), ("?after=notready/ns/db", vec!["web"])]
    {
        let (code, _, text) = ask(&served, with("good", &format!("/api/pods{query}")), "").await;
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        let names: Vec<&str> = all["pods"].as_array().unwrap().iter().filter_map(|row| row[1].as_str()).collect();
        assert_eq!((code, names), (200, wanted), "{query}");
    }
    let long = "x".repeat(2000);
    for bad in [format!("?filter={long}"), "?after=nonsense".to_owned()] {
        assert_eq!(ask(&served, with("good", &format!("/api/pods{bad}")), "").await.0, 400, "{bad}");
    }
}

#[tokio::test]
async fn requests_of_one_user_do_not_keep_others_waiting() {
    let served = served();
    let mut held: Vec<_> = (0..8).map(|_| served.asking.take("good").unwrap()).collect();
    for path in ["/api/pods", "/api/nodes/a"] {
        let (code, _, text) = ask(&served, with("good", path), "").await;
        assert!(code == 429 && text.contains("try again"), "{path}: {text}");
    }
    assert_eq!(ask(&served, with("all", "/api/pods"), "").await.0, 200);
    held.pop();
    assert_eq!(ask(&served, with("good", "/api/pods"), "").await.0, 200);
    assert!(served.asking.take("good").is_some(), "its place is free again");
}

#[tokio::test]
async fn rows_of_a_large_site_come_in_parts() {
    let served = served();
    (0..9000).for_each(|number| shown(&served, &format!("n{number}")));
    let who = Who::User { user: "good".to_owned(), token: "good".to_owned(), session: None, from: from() };
    let mut body = served.answer(&who, "/api/stream", false).await.into_body();
    let mut parts: Vec<String> = Vec::new();
    while parts.last().is_none_or(|part| part.starts_with("event: part\n")) {
        let bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
        parts.push(String::from_utf8(bytes.to_vec()).unwrap());
    }
    assert!(parts.len() > 1 && parts.iter().all(|part| part.len() < 300 << 10), "{}", parts.len());
    assert!(parts.last().unwrap().starts_with("event: all\n"));
    assert_eq!(parts.iter().map(|part| part.matches("\"n").count()).sum::<usize>(), 9000);
}

#[tokio::test]
async fn cpu_and_memory_need_a_right_of_their_own() {
    let served = served();
    for path in ["/api/usage/a", "/api/usage/a,b", "/api/nodes/a/usage"] {
        assert_eq!(ask(&served, Request::get(path), "").await.0, 401, "{path}");
        assert_eq!(ask(&served, with("good", path), "").await.0, 403, "{path}");
    }
    let (code, _, text) = ask(&served, with("all", "/api/usage/a,b"), "").await;
    assert_eq!((code, &*text), (200, "{}"), "this API measures nothing");
    let (code, _, text) = ask(&served, with("all", "/api/nodes/a/usage"), "").await;
    assert_eq!((code, &*text), (200, r#"{"node":null,"pods":[]}"#), "the API is not asked about an unknown node");
    let many = vec!["a"; 65].join(",");
    for bad in ["", ",", "a,..%2f", many.as_str()] {
        assert_eq!(ask(&served, with("all", &format!("/api/usage/{bad}")), "").await.0, 404, "{bad}");
    }
}

#[tokio::test]
async fn values_of_devices_need_a_right_of_their_own() {
    let served = served();
    let (code, _, text) = ask(&served, with("good", "/api/devices"), "").await;
    assert!(code == 403 && text.contains("resource=devices"), "{text}");
    assert_eq!(ask(&served, with("all", "/api/devices"), "").await.0, 502, "it is read: this API has no lists");
    assert_eq!(ask(&served, Request::get("/api/devices"), "").await.0, 401);
}

#[tokio::test]
async fn a_form_with_a_token_gets_a_cookie() {
    let served = served();
    let (code, headers, text) = ask(&served, Request::post("/login"), "token=wrong").await;
    assert!(code == 401 && !headers.contains_key(header::SET_COOKIE) && text.contains("does not know"), "{text}");
    assert_eq!(ask(&served, Request::post("/login"), "token=other").await.0, 403);
    assert_eq!(ask(&served, Request::post("/login"), &"x".repeat(20_000)).await.0, 413);
    let (code, headers, _) = ask(&served, Request::post("/login"), "a=b&token=+good%0A").await;
    assert_eq!((code, &headers[header::LOCATION]), (303, &HeaderValue::from_static("/")));
    let cookie = headers[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let get = |path: &str| Request::get(path).header(header::COOKIE, &cookie);
    assert_eq!(ask(&served, get("/api/nodes"), "").await.0, 200);
    let another = get("/api/nodes").header("sec-fetch-site", "cross-site");
    assert_eq!(ask(&served, another, "").await.0, 403, "another site has the browser ask");
    let posted = Request::post("/logout").header(header::COOKIE, &cookie);
    assert_eq!(ask(&served, posted, "").await.0, 303);
    assert_eq!(ask(&served, get("/api/nodes"), "").await.0, 401);
}

#[tokio::test]
async fn of_one_user_there_are_so_many_streams() {
    let served = served();
    let who = || Who::User { user: "good".to_owned(), token: "good".to_owned(), session: None, from: from() };
    let mut held = Vec::new();
    let refused = loop {
        let answer = served.answer(&who(), "/api/stream", false).await;
        match answer.status() {
            StatusCode::OK => held.push(answer),
            code => break code,
        }
    };
    assert_eq!((refused, held.len()), (StatusCode::TOO_MANY_REQUESTS, 8));
    held.pop();
    assert_eq!(served.answer(&who(), "/api/stream", false).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn who_takes_it_packed_gets_it_packed() {
    let served = served();
    let who = Who::User { user: "good".to_owned(), token: "good".to_owned(), session: None, from: from() };
    let answer = served.answer(&who, "/api/stream", true).await;
    assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip");
    let first = answer.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    let mut begin = [0; 10];
    std::io::Read::read_exact(&mut flate2::read::GzDecoder::new(&*first), &mut begin).unwrap();
    assert_eq!(&begin, b"event: all");
    let short = served.answer(&who, "/api/nodes", true).await;
    assert!(!short.headers().contains_key(header::CONTENT_ENCODING), "a packet holds it anyway");
}
