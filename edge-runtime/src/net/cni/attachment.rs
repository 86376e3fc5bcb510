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
mod tests;
