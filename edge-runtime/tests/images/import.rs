//! Archives that skopeo makes, and broken ones.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::node::Node;
use crate::registry::{busybox, busybox_source, tools};
use crate::wire::{Served, layer};

fn skopeo(target: &str, more: &[&str]) {
    let output = Command::new("skopeo")
        .args(["--insecure-policy", "copy", "--quiet"])
        .args(more)
        .arg(busybox_source())
        .arg(target)
        .output()
        .unwrap();
    assert!(output.status.success(), "skopeo: {}", String::from_utf8_lossy(&output.stderr));
}

fn has_busybox(node: &Node, name: &str) {
    let images = node.images();
    assert_eq!(images.len(), 1);
    assert!(images[0]["references"].to_string().contains(name), "{}", images[0]["references"]);
    assert_eq!(fs::read(node.layer(0).join("bin/busybox")).unwrap(), fs::read("/bin/busybox").unwrap());
    assert!(node.listing("incoming").is_empty());
}

#[test]
fn every_kind_of_archive_is_taken_in() {
    if !tools() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name).display().to_string();
    skopeo(&format!("oci:{}:busybox:1", at("layout")), &[]);
    skopeo(&format!("oci:{}:busybox:1", at("zstd")), &["--dest-compress-format", "zstd", "--dest-compress"]);
    skopeo(&format!("oci-archive:{}:busybox:1", at("oci.tar")), &[]);
    skopeo(&format!("docker-archive:{}:busybox:1", at("docker.tar")), &[]);
    assert!(Command::new("gzip").args(["-k", &at("docker.tar")]).status().unwrap().success());
    for name in ["layout", "zstd", "oci.tar", "docker.tar", "docker.tar.gz"] {
        let node = Node::new();
        let said = node.run("import", &[&at(name)]).expect().stdout;
        assert!(said.starts_with("docker.io/library/busybox:1 sha256:"), "{said}");
        has_busybox(&node, "docker.io/library/busybox:1");
        assert!(node.run("images", &["--verify"]).expect().stdout.contains("whole"));
    }
    let node = Node::new();
    let bytes = fs::read(at("docker.tar.gz")).unwrap();
    node.run_with_input("import", &["-", "--reference", "reg.example:5000/mine"], &bytes).expect();
    has_busybox(&node, "reg.example:5000/mine:latest");
    // The same image under another name is not stored twice.
    node.run("import", &[&at("docker.tar")]).expect();
    has_busybox(&node, "reg.example:5000/mine:latest");
    has_busybox(&node, "docker.io/library/busybox:1");
    node.run("images", &["--remove", "busybox:1"]).expect();
    assert!(node.images().is_empty() && node.listing("layers").is_empty());
}

#[test]
fn the_script_makes_the_same_image_each_time() {
    if !tools() {
        return;
    }
    let node = Node::new();
    node.run("import", &[&busybox().display().to_string()]).expect();
    has_busybox(&node, "docker.io/library/busybox:latest");
    let root = node.layer(0);
    assert_eq!(fs::read_link(root.join("sbin")).unwrap(), Path::new("bin"));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(root.join("tmp")).unwrap().permissions().mode() & 0o7777, 0o1777);
    let again = Node::new();
    again.run("import", &[&busybox().display().to_string()]).expect();
    assert_eq!(node.images()[0]["id"], again.images()[0]["id"]);
}

/// Writes an OCI layout to a folder, from the parts that a registry serves.
fn layout(dir: &Path, served: &Served, name: &str) {
    fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    for (path, bytes) in &served.content {
        if let Some((_, hex)) = path.split_once("sha256:") {
            fs::write(dir.join("blobs/sha256").join(hex), bytes).unwrap();
        }
    }
    let annotations = format!(r#"{{"org.opencontainers.image.ref.name":"{name}"}}"#);
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"digest":"{}","size":1,"annotations":{annotations}}}]}}"#,
        served.manifest
    );
    fs::write(dir.join("index.json"), index).unwrap();
}

fn refused(dir: &Path, parts: &[&str]) {
    let node = Node::new();
    node.run("import", &[&dir.display().to_string()]).expect_error(parts);
    assert!(node.images().is_empty() && node.listing("layers").is_empty());
    assert!(node.listing("incoming").is_empty());
}

#[test]
fn archives_that_lie_or_are_cut_leave_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let served = Served::new(&[layer("file", b"content")]);
    let blob = &served.layers[0][7..];
    let dir = temp.path();
    layout(dir, &served, "app:v1");
    Node::new().run("import", &[&dir.display().to_string()]).expect();
    let path = dir.join("blobs/sha256").join(blob);
    let good = fs::read(&path).unwrap();
    fs::write(&path, &good[..good.len() - 512]).unwrap();
    refused(dir, &[blob, "announced as"]);
    fs::remove_file(&path).unwrap();
    refused(dir, &[blob, "No such file"]);
    fs::write(&path, good).unwrap();
    let manifest = dir.join("blobs/sha256").join(&served.manifest[7..]);
    let good = fs::read(&manifest).unwrap();
    fs::write(&manifest, [&good[..], b" "].concat()).unwrap();
    refused(dir, &[&served.manifest[7..], "announced as"]);
    fs::write(&manifest, good).unwrap();
    layout(dir, &served, "v1");
    refused(dir, &["no full name", "--reference"]);
    layout(dir, &served, "App:v1");
    refused(dir, &["couldn't parse image name", "App:v1"]);
    let climbing = Served::new(&[layer("../escape", b"x")]);
    layout(dir, &climbing, "app:v1");
    refused(dir, &["app:v1", "../escape", "climbs"]);
    fs::write(dir.join("index.json"), "{").unwrap();
    refused(dir, &["index.json"]);
    fs::remove_file(dir.join("index.json")).unwrap();
    refused(dir, &["neither index.json"]);
}

#[test]
fn faulty_image_of_an_archive_does_not_block_others() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let served = Served::new(&[layer("file", b"content")]);
    layout(dir, &served, "app:v1");
    let index = fs::read_to_string(dir.join("index.json")).unwrap();
    let nameless = format!(r#"{{"digest":"{}","size":1}},"#, served.manifest);
    fs::write(dir.join("index.json"), index.replace("[{", &format!("[{nameless}{{"))).unwrap();
    let node = Node::new();
    node.run("import", &[&dir.display().to_string()]).expect();
    assert!(node.images()[0]["references"].to_string().contains("library/app:v1"));
}

#[test]
fn a_cut_archive_is_refused_wherever_it_is_cut() {
    if !tools() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let whole = fs::read(busybox()).unwrap();
    for cut in [10, 600, 5000, whole.len() / 2, whole.len() - 11_000] {
        let path = temp.path().join("cut.tar");
        fs::write(&path, &whole[..cut]).unwrap();
        refused(&path, &["cut.tar"]);
    }
}
