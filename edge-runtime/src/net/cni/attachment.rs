//! One pod's attachment to a CNI network. The request is on disk before the first plugin runs, and stays there until
//! every plugin has released its part: also over restarts, reboots and changed configurations.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smol::lock::Semaphore;

use super::conf::{NetworkList, Plugin, parse};
use super::has_check;
use super::invoke::{Environment, invoke};
use super::result::{self, CniResult};
use super::stdin::config;
use crate::net::namespaces::is_pinned;
use crate::sys::files::{replace, unless_missing};
use crate::sys::from_json::from_json;

/// How many attachments are worked on at once: each is a chain of processes, some of which wait for one lock.
const PARALLEL: usize = 2;

/// Where plugins are, and how many run at once.
#[derive(Debug)]
pub struct Plugins {
    bin_dirs: Vec<PathBuf>,
    turns: Semaphore,
}

/// Stored state of an attachment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// The configuration as it was then, in the form of a `.conflist`.
    pub network: Value,
    pub container_id: String,
    pub netns: PathBuf,
    /// `CNI_ARGS`.
    pub args: String,
    /// Values for `runtimeConfig`, by capability.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// Result of ADD, once it succeeded.
    #[serde(default)]
    pub result: Option<Value>,
}

impl Plugins {
    pub fn new(bin_dirs: Vec<PathBuf>) -> Self {
        Self { bin_dirs, turns: Semaphore::new(PARALLEL) }
    }

    /// Attaches a pod and keeps that in `file`. What an earlier attempt left there is taken back first.
    ///
    /// # Errors
    /// The failing plugin's words; what was done is taken back as far as possible.
    pub async fn attach(&self, file: &Path, mut attachment: Attachment) -> Result<Vec<IpAddr>, String> {
        let _turn = self.turns.acquire().await;
        self.take_back(file).await?;
        let network = list(&attachment.network)?;
        save(file, &attachment)?;
        let added = match self.add(&network, &attachment).await {
            Ok(result) if result.ips.is_empty() => Err("the CNI plugins gave the pod no address".to_owned()),
            added => added,
        };
        match added {
            Ok(result) => {
                attachment.result = Some(result.raw);
                save(file, &attachment)?;
                Ok(result.ips)
            }
            Err(error) => {
                if let Err(left) = self.take_back(file).await {
                    log::warn!("{}: {left}; it is tried again", file.display());
                }
                Err(error)
            }
        }
    }

    /// Undoes the attachment that `file` describes; no error if the file is missing.
    ///
    /// # Errors
    /// The failing plugin's words; the file stays, and this may be tried again.
    pub async fn detach(&self, file: &Path) -> Result<(), String> {
        let _turn = self.turns.acquire().await;
        self.take_back(file).await
    }

    /// Has the plugins look whether all is as they left it.
    ///
    /// # Errors
    /// The failing plugin's words.
    pub async fn check(&self, file: &Path) -> Result<(), String> {
        let _turn = self.turns.acquire().await;
        let Some(attachment) = load(file)? else { return Ok(()) };
        let network = list(&attachment.network)?;
        if !network.checks() {
            return Ok(());
        }
        for plugin in &network.plugins {
            self.run(&network, plugin, "CHECK", &attachment, attachment.result.as_ref()).await?;
        }
        Ok(())
    }

    async fn add(&self, network: &NetworkList, attachment: &Attachment) -> Result<CniResult, String> {
        let mut last: Option<CniResult> = None;
        for plugin in &network.plugins {
            let previous = last.as_ref().map(|result| &result.raw);
            let printed = self.run(network, plugin, "ADD", attachment, previous).await?;
            let parsed = result::parse(&printed).map_err(|error| described(network, plugin, "ADD", &error.to_string()));
            last = Some(parsed?);
        }
        last.ok_or_else(|| "the network has no plugins".to_owned())
    }

    async fn take_back(&self, file: &Path) -> Result<(), String> {
        let Some(attachment) = load(file)? else { return Ok(()) };
        let network = list(&attachment.network)?;
        let previous = attachment.result.as_ref().filter(|_| has_check(&network.version));
        for plugin in network.plugins.iter().rev() {
            self.run(&network, plugin, "DEL", &attachment, previous).await?;
        }
        let gone = unless_missing(fs::remove_file(file));
        gone.map(drop).map_err(|error| format!("delete {}: {error}", file.display()))
    }

    async fn run(
        &self,
        network: &NetworkList,
        plugin: &Plugin,
        command: &str,
        attachment: &Attachment,
        previous: Option<&Value>,
    ) -> Result<Vec<u8>, String> {
        // After a reboot the namespace does not exist. Plugins then release their other resources.
        let netns = if is_pinned(&attachment.netns) { attachment.netns.display().to_string() } else { String::new() };
        let env = Environment {
            bin_dirs: &self.bin_dirs,
            container_id: &attachment.container_id,
            netns: &netns,
            args: &attachment.args,
        };
        let stdin = config(network, plugin, &attachment.arguments, previous).to_string();
        let done = invoke(&env, &plugin.kind, command, stdin.as_bytes()).await;
        done.map_err(|error| described(network, plugin, command, &error))
    }
}

/// Formats an error in the words of libcni, which other runtimes use.
fn described(network: &NetworkList, plugin: &Plugin, command: &str, error: &str) -> String {
    let verb = match command {
        "ADD" => "add",
        "DEL" => "delete",
        _ => "check",
    };
    format!("plugin type={:?} name={:?} failed ({verb}): {error}", plugin.kind, network.name)
}

fn list(network: &Value) -> Result<NetworkList, String> {
    parse(network.to_string().as_bytes()).map_err(|error| error.to_string())
}

/// What `file` tells of, if it is there.
fn load(file: &Path) -> Result<Option<Attachment>, String> {
    let read = unless_missing(fs::read(file)).map_err(|error| format!("read {}: {error}", file.display()))?;
    let parsed = read.map(|bytes| from_json(&bytes)).transpose();
    parsed.map_err(|error| format!("{}: {error}", file.display()))
}

/// Saves the attachment durably.
fn save(file: &Path, attachment: &Attachment) -> Result<(), String> {
    let saved = serde_json::to_vec(attachment).map_err(io::Error::from).and_then(|text| replace(file, &text, true));
    saved.map_err(|error| format!("keep {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
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
}
