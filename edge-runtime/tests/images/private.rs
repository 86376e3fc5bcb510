//! Content that was pulled with a login is only for pods with that login: knowing its digests is not enough.

use serde_json::{Value, json};

use crate::node::{Done, Node};
use crate::wire::{Answer, Request, Served, Server, layer, sha256};

/// `user:secret`.
const LOGIN: &str = "Basic dXNlcjpzZWNyZXQ=";

/// Serves `private` under `/v2/app/` with the login, and `thief` under `/v2/thief/` without one.
fn server(private: &Served, thief: Served) -> Server {
    let private = private.clone();
    Server::start(move |request| {
        let logged_in = request.headers.get("authorization").is_some_and(|login| login == LOGIN);
        match request.path.starts_with("/v2/app/") {
            true if logged_in => private.answer(request),
            true => Answer::status(401, "www-authenticate: Basic realm=\"test\""),
            false => thief.answer_as("thief", request),
        }
    })
}

/// Pulls like the daemon, for pods with this Secret, or without one.
fn pull(node: &Node, server: &Server, image: &str, secret: Option<&str>) -> Done {
    let document = |password: &str| {
        format!(r#"{{"auths":{{"{}":{{"username":"user","password":"{password}"}}}}}}"#, server.address)
    };
    let secrets: Vec<Value> = secret.iter().map(|s| json!({"key": "secret:n/s:1", "document": document(s)})).collect();
    let request = json!({
        "secrets": secrets,
        "registries": [{"host": server.address.to_string(), "plain-http": true}],
    });
    let mut done =
        node.run_with_input("pull", &["--helper", "--", &server.image(image)], request.to_string().as_bytes());
    done.stderr.push_str(&done.stdout);
    done
}

fn asked(server: &Server, path: &str) -> usize {
    server.seen().iter().filter(|request: &&Request| request.path == path).count()
}

#[test]
fn digests_open_no_private_image() {
    let private = Served::new(&[layer("key", b"secret content")]);
    let own = layer("other", b"of the thief");
    // The manifest of the private image, with nothing behind it.
    let mut by_config = Served::new(&[]);
    by_config.content = [("manifests/v1".into(), private.content["manifests/v1"].clone())].into();
    // A configuration of the thief that names the private layer, and a blob with other content.
    let mut by_layer = Served::new(&[layer("key", b"secret content")]);
    by_layer.content.retain(|path, _| !path.contains(&by_layer.layers[0]));
    let descriptor = json!({"digest": sha256(&own), "size": own.len()});
    let mut manifest: Value = serde_json::from_slice(&by_layer.content["manifests/v1"]).unwrap();
    manifest.as_object_mut().unwrap().insert("layers".into(), json!([descriptor]));
    by_layer.content.insert("manifests/v1".into(), manifest.to_string().into_bytes());
    by_layer.content.insert(format!("blobs/{}", sha256(&own)), own);
    for (thief, why) in [(by_config, "not found"), (by_layer, "announced as")] {
        let server = server(&private, thief);
        let node = Node::new();
        pull(&node, &server, "app:v1", None).expect_error(&["pull access denied"]);
        pull(&node, &server, "app:v1", Some("secret")).expect();
        let before = node.images();
        pull(&node, &server, "thief:v1", None).expect_error(&[why]);
        // A second attempt finds no more than the first.
        pull(&node, &server, "thief:v1", Some("wrong")).expect_error(&[why]);
        assert_eq!(node.images(), before);
        assert!(node.images()[0].get("access").is_some(), "{before:?}");
        pull(&node, &server, "app:v1", Some("secret")).expect();
        let blob = format!("/v2/app/blobs/{}", private.layers[0]);
        assert_eq!(asked(&server, &blob), 1, "who has the login fetches nothing twice");
    }
}

#[test]
fn who_has_the_content_may_use_what_is_here() {
    let private = Served::new(&[layer("key", b"shared content")]);
    let server = server(&private, private.clone());
    let node = Node::new();
    pull(&node, &server, "app:v1", Some("secret")).expect();
    pull(&node, &server, "thief:v1", None).expect();
    let images = node.images();
    assert_eq!(images.len(), 1);
    let access = &images[0]["access"];
    let (app, open) = (format!("{}/app", server.address), format!("{}/thief", server.address));
    assert_eq!((access[&open].as_array().unwrap().len(), access[&app].as_array().unwrap().len()), (0, 2), "{access}");
    assert_eq!(asked(&server, &format!("/v2/thief/blobs/{}", private.layers[0])), 1, "it was shown");
    assert_eq!(node.listing("layers").len(), 3, "folder, counts, record");
    assert!(node.listing("incoming").is_empty());
}

#[test]
fn check_detects_another_image_in_the_registry() {
    let served = Served::new(&[layer("file", b"content")]);
    let newer = Served::new(&[layer("file", b"newer")]);
    let switch = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let switched = switch.clone();
    let server = Server::start(move |request| {
        let now = if switched.load(std::sync::atomic::Ordering::Relaxed) { &newer } else { &served };
        let mut answer = now.answer(request);
        if request.path.contains("manifests/") {
            answer.headers.push(format!("docker-content-digest: {}", now.manifest));
        }
        answer
    });
    let node = Node::new();
    let image = server.image("app:v1");
    let request = json!({"registries": [{"host": server.address.to_string(), "plain-http": true}]}).to_string();
    let look = || {
        let done = node.run_with_input("pull", &["--helper", "--check", "--", &image], request.as_bytes()).expect();
        done.stdout.trim().to_owned()
    };
    assert_eq!(look(), "\"stale\"", "nothing is here");
    node.plain_http(&server.address.to_string());
    node.pull(&image).expect();
    let before = (server.seen().len(), node.written());
    assert_eq!(look(), format!("{{\"image\":{}}}", node.images()[0]["id"]));
    assert_eq!(server.seen().len(), before.0 + 1, "one question");
    assert_eq!(node.written(), before.1, "nothing is written where nothing is new");
    switch.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(look(), "\"stale\"");
    assert!(server.seen().iter().skip(before.0).all(|request| request.method == "HEAD"));
}
