//! A user namespace, with the other namespaces that are to belong to it. Made by a helper process: the daemon has a
//! second thread, and the kernel wants one.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::sys::program;

/// How many ids a pod has (K8s pkg/kubelet/userns, `userNsLength`).
pub const IDS: u32 = 65_536;

/// The process that holds them until they are pinned.
pub(super) struct Holder(Child);

impl Holder {
    /// Ids 0 to [`IDS`] inside are those from `first` on outside.
    pub(super) fn start(first: u32, kinds: impl Iterator<Item = &'static str>) -> io::Result<Self> {
        let mut helper = program::itself("userns");
        helper.args(kinds).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = Self(helper.spawn()?);
        holder.ready()?;
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", holder.0.id()), format!("0 {first} {IDS}\n"))?;
        }
        Ok(holder)
    }

    fn ready(&mut self) -> io::Result<()> {
        let mut word = [0];
        if self.0.stdout.as_mut().map_or(Ok(0), |out| out.read(&mut word))? == 1 {
            return Ok(());
        }
        let mut why = String::new();
        if let Some(said) = &mut self.0.stderr {
            said.read_to_string(&mut why)?;
        }
        Err(io::Error::other(why.trim_start_matches("edge-runtime: ").trim_end().to_owned()))
    }

    pub(super) fn path(&self, kind: &str) -> PathBuf {
        format!("/proc/{}/ns/{kind}", self.0.id()).into()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
