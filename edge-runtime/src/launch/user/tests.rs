//! What `user` promises, case by case.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::*;

fn root() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    fs::write(
        dir.path().join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\nbroken\nweb:x:33:34::/:/bin/false\n7:x:700:701::/:/\nminus:x:4294967295:0::/:/\n",
    )
    .unwrap();
    fs::write(dir.path().join("etc/group"), "root:x:0:root\ngame:x:60:web,other\nadm:x:4:\n").unwrap();
    dir
}

fn run(pod: Value, container: Value, image: &str, root: &Path) -> Result<User, UserError> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"securityContext": pod, "containers": [{"name": "c", "securityContext": container}]},
    }))
    .unwrap();
    resolve(&pod, &pod.spec.as_ref().unwrap().containers[0], image, root)
}

fn user(uid: u32, gid: u32, groups: &[u32]) -> User {
    User { uid, gid, groups: groups.to_vec() }
}

#[test]
fn the_images_user_in_all_its_forms() {
    let dir = root();
    let got = |image: &str| run(json!({}), json!({}), image, dir.path()).map_err(|e| e.to_string());
    assert_eq!(got(""), Ok(user(0, 0, &[])));
    assert_eq!(got("web"), Ok(user(33, 34, &[60])));
    assert_eq!(got("33"), Ok(user(33, 34, &[60])));
    assert_eq!(got("web:adm"), Ok(user(33, 4, &[60])));
    assert_eq!(got("1000:2000"), Ok(user(1000, 2000, &[])));
    assert_eq!(got("1000"), Ok(user(1000, 0, &[])));
    assert_eq!(got("7"), Ok(user(7, 0, &[])), "a number is no name");
    assert_eq!(got("web:4"), Ok(user(33, 4, &[60])));
    assert_eq!(got("minus"), Err("unable to find user minus: no matching entries in passwd file".into()));
    assert_eq!(got("4294967295"), Err("user of the image 4294967295 is out of range".into()));
    assert_eq!(got("web:-1"), Err("group of the image -1 is out of range".into()));
    assert_eq!(got("nobody"), Err("unable to find user nobody: no matching entries in passwd file".into()));
    assert_eq!(got("web:nogroup"), Err("unable to find group nogroup: no matching entries in group file".into()));
}

#[test]
fn security_contexts_come_first() {
    let dir = root();
    let got = |pod: Value, own: Value| run(pod, own, "web:adm", dir.path()).unwrap();
    assert_eq!(got(json!({"runAsUser": 5}), json!({})), user(5, 0, &[]));
    assert_eq!(got(json!({"runAsUser": 5}), json!({"runAsUser": 33})), user(33, 34, &[60]));
    assert_eq!(got(json!({"runAsGroup": 9}), json!({})), user(33, 9, &[60]));
    let groups = json!({"supplementalGroups": [8, 7, 8], "fsGroup": 6});
    assert_eq!(got(groups, json!({})), user(33, 4, &[6, 7, 8, 60]));
    let strict = json!({"supplementalGroups": [8], "supplementalGroupsPolicy": "Strict"});
    assert_eq!(got(strict, json!({})), user(33, 4, &[8]));
    assert!(matches!(
        run(json!({"runAsUser": -1}), json!({}), "", dir.path()),
        Err(UserError::OutOfRange { name: "runAsUser", value: -1 })
    ));
}

#[test]
fn non_root_is_checked_in_the_kubelets_words() {
    let dir = root();
    let refused = |own: Value, image: &str| {
        run(json!({"runAsNonRoot": true}), own, image, dir.path()).map_err(|e| e.to_string()).unwrap_err()
    };
    let place = "(pod: \"p_n(u)\", container: c)";
    assert_eq!(refused(json!({}), ""), format!("container has runAsNonRoot and image will run as root {place}"));
    assert_eq!(refused(json!({}), "0:5"), format!("container has runAsNonRoot and image will run as root {place}"));
    assert_eq!(
        refused(json!({}), "web"),
        format!(
            "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root {place}"
        )
    );
    assert!(
        refused(json!({}), "4294967295")
            .contains("image has an invalid user id (4294967295). (Must be 1-(2147483647))")
    );
    assert_eq!(refused(json!({"runAsUser": 0}), "33"), format!("container's runAsUser breaks non-root policy {place}"));
    assert!(run(json!({"runAsNonRoot": true}), json!({}), "33", dir.path()).is_ok());
    assert!(run(json!({"runAsNonRoot": true}), json!({"runAsNonRoot": false}), "", dir.path()).is_ok());
}

/// Files of a hostile image that make root of a number.
#[test]
fn a_number_stays_the_number_that_the_policy_saw() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    fs::write(dir.path().join("etc/passwd"), "1000:x:0:0::/:/bin/sh\n+1000:x:0:0::/:/\n").unwrap();
    fs::write(dir.path().join("etc/group"), "1000:x:0:\n2000:x:0:1000\n").unwrap();
    let got = |image: &str| run(json!({"runAsNonRoot": true}), json!({}), image, dir.path());
    assert_eq!(got("1000").unwrap(), user(1000, 0, &[]));
    assert_eq!(got("+1000").unwrap().uid, 1000);
    assert_eq!(got("1000:1000").unwrap(), user(1000, 1000, &[]));
    assert_eq!(run(json!({}), json!({}), "1000:2000", dir.path()).unwrap(), user(1000, 2000, &[]));
    for root in ["0", "00", "-0", "+0:1000"] {
        assert!(matches!(got(root), Err(UserError::ImageRunsAsRoot { .. })), "{root}");
    }
}

#[test]
fn links_do_not_leave_the_image() {
    let dir = root();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("passwd"), "web:x:1:1::/:/\n").unwrap();
    fs::remove_file(dir.path().join("etc/passwd")).unwrap();
    symlink(outside.path().join("passwd"), dir.path().join("etc/passwd")).unwrap();
    assert!(matches!(run(json!({}), json!({}), "web", dir.path()), Err(UserError::UnknownUser(_))));
    fs::remove_file(dir.path().join("etc/passwd")).unwrap();
    symlink("/etc/real", dir.path().join("etc/passwd")).unwrap();
    fs::write(dir.path().join("etc/real"), "web:x:2:3::/:/\n").unwrap();
    assert_eq!(run(json!({}), json!({}), "web", dir.path()).unwrap(), user(2, 3, &[60]));
}

#[test]
fn an_image_without_files_runs_as_root() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(json!({}), json!({}), "", dir.path()).unwrap(), user(0, 0, &[]));
    fs::create_dir_all(dir.path().join("etc/passwd")).unwrap();
    assert!(matches!(run(json!({}), json!({}), "", dir.path()), Err(UserError::Read { .. })));
}
