//! Pulls from registries that lie, stall and cut.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::deep;
use crate::node::Node;
use crate::wire::{Answer, Request, Served, Server, layer, sha256};

fn node_for(server: &Server) -> Node {
    let node = Node::new();
    node.plain_http(&server.address.to_string());
    node
}

fn nothing_is_visible(node: &Node) {
    assert!(node.images().is_empty());
    assert!(node.listing("layers").is_empty(), "{:?}", node.listing("layers"));
}

#[test]
fn a_wrong_blob_is_never_unpacked() {
    let served = Served::new(&[layer("file", b"content")]);
    let blob = served.layers[0].clone();
    let path = format!("/v2/app/blobs/{blob}");
    let server = Server::start(move |request| {
        let mut answer = served.answer(request);
        if request.path == path {
            answer.body[600] ^= 1;
        }
        answer
    });
    let node = node_for(&server);
    let image = server.image("app:v1");
    node.pull(&image).expect_error(&[&image, &blob, "announced as"]);
    nothing_is_visible(&node);
    assert!(node.listing("incoming").is_empty());
}

#[test]
fn wrong_manifests_and_configurations_are_refused() {
    let served = Served::new(&[layer("file", b"content")]);
    let other = Served::new(&[layer("file", b"other")]);
    let manifest = served.manifest.clone();
    let server = Server::start(move |request| {
        // The content does not match the tag and the digest.
        if request.path.contains("manifests") {
            Answer::ok(other.content["manifests/v1"].clone())
        } else {
            served.answer(request)
        }
    });
    let node = node_for(&server);
    node.pull(&server.image(&format!("app@{manifest}"))).expect_error(&[&manifest, "announced as"]);
    // The tag's manifest names a configuration that this registry does not have.
    node.pull(&server.image("app:v1")).expect_error(&["not found"]);
    nothing_is_visible(&node);
}

#[test]
fn hostile_layers_leave_nothing_behind() {
    for (name, expect) in [("../escape", "climbs"), ("a/../../escape", "climbs")] {
        let served = Served::new(&[layer("good", b"first"), layer(name, b"x")]);
        let server = Server::start(move |request| served.answer(request));
        let node = node_for(&server);
        let image = server.image("app:v1");
        node.pull(&image).expect_error(&[&image, name, expect]);
        assert!(node.images().is_empty());
        assert_eq!(node.listing("layers").len(), 2, "the good layer and its counts");
        let left = node.listing("incoming");
        assert!(left.len() == 1 && left[0].starts_with("want-"), "a note about the good layer: {left:?}");
        node.run("collect", &["shortest"]).expect();
        nothing_is_visible(&node);
        assert!(node.listing("incoming").is_empty(), "{:?}", node.listing("incoming"));
    }
}

/// Nested folders, deeper than descriptors and paths reach: each entry continues at a link to the last one. None of
/// them may block the next pull or import.
#[test]
fn bottomless_layers_block_nothing() {
    let hard = Served::new(&[deep::by_links(40, 100)]);
    let long = Served::new(&[deep::by_name(2040)]);
    let fair = Served::new(&[layer("file", b"content")]);
    let answers = move |request: &Request| match request.path.strip_prefix("/v2/") {
        Some(path) if path.starts_with("hard/") => hard.answer_as("hard", request),
        Some(path) if path.starts_with("long/") => long.answer_as("long", request),
        _ => fair.answer(request),
    };
    let server = Server::start(answers);
    let node = node_for(&server);
    for name in ["hard:v1", "long:v1", "hard:v1"] {
        node.limited("pull", &[&server.image(name)], 1024).expect_error(&[name.split(':').next().unwrap()]);
        nothing_is_visible(&node);
        assert!(node.listing("incoming").is_empty(), "{:?}", node.listing("incoming"));
    }
    // As a killed helper left it.
    deep::make(&node.state("incoming/layer-00"), 1500);
    node.limited("pull", &[&server.image("app:v1")], 1024).expect();
    assert!(node.listing("incoming").is_empty(), "{:?}", node.listing("incoming"));
    assert_eq!(node.images().len(), 1);
}

/// Nine layers of 8 GiB, the maximum of one layer: none of them is requested.
#[test]
fn an_image_that_claims_more_than_the_limit_is_not_fetched() {
    let layers: Vec<_> = (0..9).map(|n| layer("file", &[n])).collect();
    let honest = format!("\"size\":{}}}", layers[0].len());
    let served = Served::new(&layers);
    let blobs = served.layers.clone();
    let server = Server::start(move |request| {
        let mut answer = served.answer(request);
        if request.path.contains("manifests") {
            let text = String::from_utf8(answer.body).unwrap();
            answer.body = text.replace(&honest, &format!("\"size\":{}}}", 8_u64 << 30)).into_bytes();
        }
        answer
    });
    let node = node_for(&server);
    let image = server.image("app:v1");
    node.pull(&image).expect_error(&["size of", &image, &(64_u64 << 30).to_string()]);
    assert!(!server.seen().iter().any(|request| blobs.iter().any(|blob| request.path.contains(blob))));
    nothing_is_visible(&node);
}

#[test]
fn a_blob_of_another_length_is_refused() {
    let served = Served::new(&[layer("file", b"content")]);
    let blob = served.layers[0].clone();
    let path = format!("/v2/app/blobs/{blob}");
    let server = Server::start(move |request| {
        let mut answer = served.answer(request);
        if request.path == path {
            answer.body.extend([0; 4096]);
        }
        answer
    });
    let node = node_for(&server);
    node.pull(&server.image("app:v1")).expect_error(&[&blob, "more than the limit"]);
    nothing_is_visible(&node);
}

#[test]
fn a_pull_that_was_killed_goes_on_in_the_next_run() {
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let served = Served::new(&[layer("file", &content)]);
    let path = format!("/v2/app/blobs/{}", served.layers[0]);
    let stalls = Arc::new(AtomicBool::new(true));
    let stalling = stalls.clone();
    let server = Server::start(move |request| {
        let mut answer = served.answer(request);
        if request.path == path {
            if stalling.load(Ordering::Relaxed) {
                // Half of the body, then the connection ends.
                answer.announce = Some(answer.body.len());
                answer.body.truncate(200_000);
            } else if let Some(start) = start_of_range(request) {
                let total = answer.body.len();
                answer = Answer {
                    status: 206,
                    headers: vec![format!("content-range: bytes {start}-{}/{total}", total - 1)],
                    body: answer.body.split_off(start),
                    announce: None,
                };
            }
        }
        answer
    });
    let node = node_for(&server);
    let image = server.image("app:v1");
    let mut child = node.command("pull").arg(&image).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let has_half = |name: &String| {
        let kept = std::fs::metadata(node.state("incoming").join(name)).is_ok_and(|file| file.len() == 200_000);
        name.starts_with("blob-") && kept
    };
    while !node.listing("incoming").iter().any(has_half) {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_visible(&node);
    stalls.store(false, Ordering::Relaxed);
    node.pull(&image).expect();
    assert_eq!(std::fs::read(node.layer(0).join("file")).unwrap(), content);
    let last = server.seen().into_iter().rev().find(|request| request.path.contains("blobs")).unwrap();
    assert_eq!(start_of_range(&last), Some(200_000), "the second run asked for the rest");
}

fn start_of_range(request: &Request) -> Option<usize> {
    request.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

#[test]
fn a_spoiled_partial_download_is_fetched_from_its_beginning() {
    let served = Served::new(&[layer("file", b"content")]);
    let blob = served.layers[0].clone();
    // Answers a range with the whole, as registries without ranges do.
    let server = Server::start(move |request| served.answer(request));
    let node = node_for(&server);
    std::fs::create_dir_all(node.state("incoming")).unwrap();
    std::fs::write(node.state("incoming").join(format!("blob-{}", &blob[7..])), [9; 700]).unwrap();
    node.pull(&server.image("app:v1")).expect();
    assert_eq!(std::fs::read_to_string(node.layer(0).join("file")).unwrap(), "content");
}

#[test]
fn bearer_tokens_are_fetched_with_the_login() {
    let served = Served::new(&[layer("file", b"content")]);
    let realm = Server::start(|request| {
        let wanted = "/token?scope=repository%3Aapp%3Apull&service=test";
        // user:secret
        if request.path == wanted && request.headers.get("authorization").is_some_and(|a| a == "Basic dXNlcjpzZWNyZXQ=")
        {
            Answer::ok(r#"{"token":"t0ken"}"#)
        } else {
            Answer::status(401, "")
        }
    });
    let challenge = format!(
        r#"www-authenticate: Bearer realm="http://{}/token",service="test",scope="repository:app:pull""#,
        realm.address
    );
    let server = Server::start(move |request| {
        let known = request.headers.get("authorization").is_some_and(|a| a == "Bearer t0ken");
        if known { served.answer(request) } else { Answer::status(401, &challenge) }
    });
    let node = node_for(&server);
    let image = server.image("app:v1");
    node.pull(&image).expect_error(&["pull access denied"]);
    let auth = format!(r#"{{"auths":{{"{}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#, server.address);
    node.run_with_input("pull", &[&image, "--auth", "-"], auth.as_bytes()).expect();
    let tokens = realm.seen().len();
    assert_eq!(tokens, 2, "one token serves the whole pull");
}

#[test]
fn an_index_leads_to_the_build_of_this_machine() {
    let mut served = Served::new(&[layer("file", b"ours")]);
    let foreign = Served::new(&[layer("file", b"foreign")]);
    served.content.extend(foreign.content.into_iter().filter(|(path, _)| path != "manifests/v1"));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let index = |builds: &[(&str, &str)]| {
        let list: Vec<String> = builds
            .iter()
            .map(|(digest, arch)| {
                format!(r#"{{"digest":"{digest}","size":1,"platform":{{"os":"linux","architecture":"{arch}"}}}}"#)
            })
            .collect();
        format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, list.join(","))
    };
    let both = index(&[(&foreign.manifest, "s390x"), (&served.manifest, arch)]);
    served.content.insert("manifests/both".into(), both.clone().into_bytes());
    served.content.insert("manifests/foreign".into(), index(&[(&foreign.manifest, "s390x")]).into_bytes());
    let server = Server::start(move |request| served.answer(request));
    let node = node_for(&server);
    node.pull(&server.image("app:foreign")).expect_error(&["has no build for linux/", "linux/s390x"]);
    node.pull(&server.image("app:both")).expect();
    assert_eq!(std::fs::read_to_string(node.layer(0).join("file")).unwrap(), "ours");
    let names = node.images()[0]["references"].to_string();
    assert!(names.contains(&sha256(both.as_bytes())), "the digest of the index is the image's: {names}");
}
