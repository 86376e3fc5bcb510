//! Attachments, by plugins that record their calls.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// Two plugins that log their input; the second fails while a file `fail` exists.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Self {
        let lab = Self(tempfile::tempdir().unwrap());
        let script = r#"#!/bin/sh
here=$(dirname "$0"); name=$(basename "$0")
input=$(cat); case $input in *prevResult*) prev=1;; *) prev=0;; esac
echo "$name $CNI_COMMAND netns=$CNI_NETNS prev=$prev" >>"$here/log"
if [ "$name" = two ] && [ -e "$here/fail-$CNI_COMMAND" ]; then echo '{"code":7,"msg":"it will not"}'; exit 1; fi
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24"}]}'
"#;
        for name in ["one", "two"] {
            let path = lab.0.path().join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        lab
    }

    fn plugins(&self) -> Plugins {
        Plugins::new(vec![self.0.path().to_path_buf()])
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("cni.json")
    }

    fn attachment() -> Attachment {
        let network = serde_json::json!({"cniVersion": "1.0.0", "name": "net",
                "plugins": [{"type": "one"}, {"type": "two"}]});
        Attachment {
            network,
            container_id: "id".into(),
            netns: "/nowhere".into(),
            args: String::new(),
            arguments: Map::new(),
            result: None,
        }
    }

    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        let _ = fs::remove_file(self.0.path().join("log"));
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn plugins_are_added_in_order_and_taken_back_in_reverse() {
    let lab = Lab::new();
    let ips = smol::block_on(lab.plugins().attach(&lab.file(), Lab::attachment())).unwrap();
    assert_eq!(ips, ["10.1.0.5".parse::<IpAddr>().unwrap()]);
    assert_eq!(lab.log(), ["one ADD netns= prev=0", "two ADD netns= prev=1"]);
    smol::block_on(lab.plugins().check(&lab.file())).unwrap();
    assert_eq!(lab.log(), ["one CHECK netns= prev=1", "two CHECK netns= prev=1"]);
    smol::block_on(lab.plugins().detach(&lab.file())).unwrap();
    assert_eq!(lab.log(), ["two DEL netns= prev=1", "one DEL netns= prev=1"]);
    smol::block_on(lab.plugins().detach(&lab.file())).unwrap();
    assert!(lab.log().is_empty() && !lab.file().exists());
}

#[test]
fn a_failed_add_is_taken_back_at_once() {
    let lab = Lab::new();
    fs::write(lab.0.path().join("fail-ADD"), "").unwrap();
    let error = smol::block_on(lab.plugins().attach(&lab.file(), Lab::attachment())).unwrap_err();
    assert_eq!(error, "plugin type=\"two\" name=\"net\" failed (add): it will not");
    let log = lab.log();
    assert_eq!(log[2..], ["two DEL netns= prev=0", "one DEL netns= prev=0"]);
    assert!(!lab.file().exists());
}

#[test]
fn a_failed_delete_is_remembered_until_it_succeeds() {
    let lab = Lab::new();
    smol::block_on(lab.plugins().attach(&lab.file(), Lab::attachment())).unwrap();
    let fail = lab.0.path().join("fail-DEL");
    fs::write(&fail, "").unwrap();
    let error = smol::block_on(lab.plugins().detach(&lab.file())).unwrap_err();
    assert_eq!(error, "plugin type=\"two\" name=\"net\" failed (delete): it will not");
    assert!(lab.file().exists());
    fs::remove_file(&fail).unwrap();
    // The next attempt of the same pod begins with the remains of the last one.
    let _ = lab.log();
    smol::block_on(lab.plugins().attach(&lab.file(), Lab::attachment())).unwrap();
    let log = lab.log();
    assert_eq!(log[..2], ["two DEL netns= prev=1", "one DEL netns= prev=1"]);
    smol::block_on(lab.plugins().detach(&lab.file())).unwrap();
    assert!(!lab.file().exists());
}
