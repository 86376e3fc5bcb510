//! Pulls from a real registry.

use std::fs;
use std::time::Instant;

use crate::node::Node;
use crate::registry::{Registry, busybox_source, tools};
use crate::wire::cutting_proxy;

fn is_busybox(node: &Node) {
    let binary = node.layer(0).join("bin/busybox");
    assert_eq!(fs::read(binary).unwrap(), fs::read("/bin/busybox").unwrap());
    assert_eq!(fs::read_link(node.layer(0).join("bin/sh")).unwrap().to_str(), Some("busybox"));
    assert!(node.listing("incoming").is_empty(), "{:?}", node.listing("incoming"));
}

#[test]
fn gzip_and_zstd_docker_and_oci_come_out_the_same() {
    if !tools() {
        return;
    }
    let registry = Registry::start();
    for (tag, more) in [
        ("docker", &["--format", "v2s2"][..]),
        ("oci", &["--format", "oci"]),
        ("zstd", &["--format", "oci", "--dest-compress-format", "zstd"]),
    ] {
        let image = registry.image(&format!("team/busybox:{tag}"));
        registry.push(&busybox_source(), &format!("team/busybox:{tag}"), more);
        let node = Node::new();
        node.plain_http(&registry.address);
        node.pull(&image).expect();
        is_busybox(&node);
        let known = &node.images()[0];
        let names: Vec<&str> = known["references"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        assert!(names.contains(&image.as_str()) && names.iter().any(|n| n.contains("@sha256:")), "{names:?}");
        // A pull by digest, whose content is already here.
        let by_digest = names.iter().find(|n| n.contains('@')).unwrap();
        node.pull(by_digest).expect();
        assert_eq!(node.images().len(), 1);
    }
}

#[test]
fn present_layers_are_not_fetched_again() {
    if !tools() {
        return;
    }
    let registry = Registry::start();
    registry.push(&busybox_source(), "busybox:1", &[]);
    registry.push(&busybox_source(), "busybox:2", &[]);
    let node = Node::new();
    node.plain_http(&registry.address);
    node.pull(&registry.image("busybox:1")).expect();
    // Without its blobs the registry can only tell digests.
    fs::remove_dir_all(registry.data().join("docker/registry/v2/repositories/busybox/_layers")).unwrap();
    let start = Instant::now();
    node.pull(&registry.image("busybox:1")).expect();
    eprintln!("a pull of what is here took {:?}", start.elapsed());
    node.pull(&registry.image("busybox:2")).expect();
    let images = node.images();
    assert_eq!(images.len(), 1);
    assert_eq!(images[0]["references"].as_array().unwrap().len(), 3, "two tags and a digest: {images:?}");
}

#[test]
fn a_damaged_layer_is_pulled_again() {
    if !tools() {
        return;
    }
    let registry = Registry::start();
    registry.push(&busybox_source(), "busybox:1", &[]);
    let node = Node::new();
    node.plain_http(&registry.address);
    node.pull(&registry.image("busybox:1")).expect();
    fs::write(node.layer(0).join("bin/busybox"), "").unwrap();
    let said = node.run("images", &["--verify"]).expect().stdout;
    assert!(said.contains("pulled again"), "{said}");
    assert!(node.images().is_empty());
    node.pull(&registry.image("busybox:1")).expect();
    is_busybox(&node);
    // The sign of a power cut: the counts beside the layer are gone.
    let counts = node.layer(0).with_extension("layer");
    fs::write(counts, "").unwrap();
    node.pull(&registry.image("busybox:1")).expect();
    assert!(node.run("images", &["--verify"]).expect().stdout.contains("whole"));
}

#[test]
fn a_cut_connection_goes_on_where_it_was() {
    if !tools() {
        return;
    }
    let registry = Registry::start();
    registry.push(&busybox_source(), "busybox:1", &[]);
    // The compressed layer has about a megabyte.
    let proxy = cutting_proxy(registry.address.clone(), 500_000);
    let node = Node::new();
    node.plain_http(&proxy.to_string());
    let done = node.pull(&format!("{proxy}/busybox:1")).expect();
    assert!(done.stderr.contains("trying again"), "the proxy did not cut: {}", done.stderr);
    is_busybox(&node);
}

#[test]
fn logins_come_from_a_file_a_secret_or_the_configuration() {
    if !tools() {
        return;
    }
    let registry = Registry::with_login();
    registry.push(&busybox_source(), "private/busybox:1", &[]);
    let image = registry.image("private/busybox:1");
    let node = Node::new();
    node.plain_http(&registry.address);
    node.pull(&image).expect_error(&["pull access denied", "imagePullSecrets", &image]);
    let auth = |password: &str| {
        format!(r#"{{"auths":{{"{}":{{"username":"user","password":"{password}"}}}}}}"#, registry.address)
    };
    let wrong = node.run_with_input("pull", &[&image, "--auth", "-"], auth("wrong").as_bytes());
    wrong.expect_error(&["pull access denied"]);
    node.run_with_input("pull", &[&image, "--auth", "-"], auth("secret").as_bytes()).expect();
    is_busybox(&node);

    let node = Node::new();
    let file = node.root().join("auth.json");
    fs::write(&file, auth("secret")).unwrap();
    node.config(&format!(
        "registry:\n- host: \"{}\"\n  plain-http: true\n  auth-file: \"{}\"\n",
        registry.address,
        file.display()
    ));
    node.pull(&image).expect();

    // With the daemon's arguments.
    let node = Node::new();
    let request = serde_json::json!({
        "auth": format!("[{},{}]", auth("wrong"), auth("secret")),
        "registries": [{"host": registry.address, "plain-http": true}],
    });
    let done = node.run_with_input("pull", &["--helper", "--", &image], request.to_string().as_bytes()).expect();
    let answer: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(answer["image"], node.images()[0]["id"]);
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[test]
fn tls_trusts_the_named_ca_and_no_other() {
    if !tools() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (temp.path().join("cert.pem"), temp.path().join("key.pem"));
    fs::write(&cert, pem("CERTIFICATE", certified.cert.der())).unwrap();
    fs::write(&key, pem("PRIVATE KEY", &certified.signing_key.serialize_der())).unwrap();
    let registry = Registry::with_tls(&cert, &key);
    registry.push(&busybox_source(), "busybox:1", &[]);
    let image = registry.image("busybox:1");
    let node = Node::new();
    node.pull(&image).expect_error(&["cannot be reached", &image, "certificate"]);
    node.config(&format!("registry:\n- host: \"{}\"\n  insecure: true\n", registry.address));
    node.pull(&image).expect();
    let node = Node::new();
    node.config(&format!("registry:\n- host: \"{}\"\n  ca: \"{}\"\n", registry.address, cert.display()));
    node.pull(&image).expect();
    is_busybox(&node);
}

#[test]
fn a_registry_on_loopback_needs_no_table() {
    if !tools() {
        return;
    }
    let registry = Registry::start();
    registry.push(&busybox_source(), "busybox:1", &[]);
    let port = registry.address.rsplit(':').next().unwrap();
    for host in ["127.0.0.1", "localhost"] {
        let node = Node::new();
        node.pull(&format!("{host}:{port}/busybox:1")).expect();
        is_busybox(&node);
    }
    let registry = Registry::with_login();
    registry.push(&busybox_source(), "busybox:1", &[]);
    Node::new().pull(&registry.image("busybox:1")).expect_error(&["refused", "needs a login"]);
}

#[test]
fn a_dead_mirror_costs_nothing_but_a_warning() {
    if !tools() {
        return;
    }
    let registry = Registry::start();
    registry.push(&busybox_source(), "library/busybox:1", &[]);
    let node = Node::new();
    node.config(&format!(
        "registry:\n- host: docker.io\n  mirrors: [\"http://127.0.0.1:1\", \"http://{}\"]\n",
        registry.address
    ));
    let done = node.pull("busybox:1").expect();
    assert!(done.stderr.contains("asking the next place"), "{}", done.stderr);
    assert_eq!(node.images()[0]["references"][0], "docker.io/library/busybox:1");
}

#[test]
fn errors_name_the_image_and_the_reason() {
    if !tools() {
        return;
    }
    let registry = Registry::start();
    let node = Node::new();
    node.plain_http(&registry.address);
    let image = registry.image("busybox:none");
    node.pull(&image).expect_error(&[&image, "not found"]);
    node.pull("Busybox").expect_error(&["couldn't parse image name", "must be lowercase"]);
    let reason = |image: &str, registries: serde_json::Value| {
        let request = serde_json::json!({ "registries": registries }).to_string();
        let done = node.run_with_input("pull", &["--helper", "--", image], request.as_bytes());
        assert!(!done.ok);
        let answer: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        answer["error"]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(&image, serde_json::json!([{"host": registry.address, "plain-http": true}])), "ErrImagePull");
    assert_eq!(reason("127.0.0.1:1/app", serde_json::json!([])), "RegistryUnavailable");
    assert_eq!(reason("a//b", serde_json::json!([])), "InvalidImageName");
    node.config("registry:\n- host: a\n  plain_http: true\n");
    node.pull("a").expect_error(&["config.yaml", "plain_http"]);
}
