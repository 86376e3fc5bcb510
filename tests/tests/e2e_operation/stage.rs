//! A simulated machine for one run of doctor, with its own mounts, network and process ids, which are removed
//! afterwards. Owns how it is created; the tests own the faults.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sampan_tests::process::binary;
use serde_json::Value;

use super::examine;

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    /// Script that a shell runs there before doctor.
    script: String,
    /// Command that starts doctor.
    wrapper: String,
    root: PathBuf,
    files: usize,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        std::fs::create_dir(&root).expect("a folder");
        // Some checks run as another user than root.
        let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("it is ours");
        let mut script = "set -e\nmount --make-rprivate /\nip link set lo up\n".to_owned();
        // A user without access to the programs' folder starts them here.
        let (bin, here) = (binary(""), folder.path().join("bin"));
        std::fs::create_dir(&here).expect("a folder");
        let _ = writeln!(script, "mount --bind {} {}", bin.display(), here.display());
        Self { folder, script, wrapper: String::new(), root, files: 0 }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Uses the node of the machine, instead of one in a folder.
    pub(crate) fn of_the_machine(mut self) -> Self {
        self.root = "/".into();
        self.run("mount -t tmpfs run /run")
    }

    pub(crate) fn run(mut self, line: &str) -> Self {
        self.script.push_str(line);
        self.script.push('\n');
        self
    }

    /// Starts doctor with this command.
    pub(crate) fn by(mut self, wrapper: &str) -> Self {
        wrapper.clone_into(&mut self.wrapper);
        self
    }

    /// Writes the node's configuration.
    pub(crate) fn configure(self, text: &str) -> Self {
        let folder = self.root.join("etc/edge-runtime");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("config.yaml"), text).expect("written");
        self
    }

    /// Adds a program for this run.
    pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        let runs = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(&path, runs).expect("it is ours");
        path
    }

    /// Replaces the text of a file of the kernel or of the host, if the file exists.
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files += 1;
        let file = self.folder.path().join(format!("file-{}", self.files));
        std::fs::write(&file, text).expect("written");
        let _ = writeln!(self.script, "[ ! -e {path} ] || mount --bind {} {path}", file.display());
        self
    }

    /// Replaces a folder of the kernel or of the host by one with only these files.
    pub(crate) fn folder(mut self, path: &str, files: &[(&str, &str)]) -> Self {
        let _ = writeln!(self.script, "mount -t tmpfs stage {path}");
        for (name, text) in files {
            let _ = writeln!(self.script, "mkdir -p \"$(dirname \"{path}/{name}\")\"");
            let _ = writeln!(self.script, "printf '%s\\n' '{text}' > \"{path}/{name}\"");
        }
        self
    }

    /// Makes a folder of the host writable; the changes are lost after the run.
    pub(crate) fn layer(mut self, path: &str) -> Self {
        self.files += 1;
        let layer = self.folder.path().join(format!("layer-{}", self.files));
        std::fs::create_dir(&layer).expect("a folder");
        let at = layer.display();
        let _ = writeln!(self.script, "mount -t tmpfs layer {at}; mkdir {at}/upper {at}/work");
        let _ = writeln!(
            self.script,
            "mount -t overlay layer -o lowerdir={path},upperdir={at}/upper,workdir={at}/work {path}"
        );
        self
    }

    /// The findings of doctor, and its exit code.
    pub(crate) fn examined(&self) -> (Vec<Value>, i32) {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        let doctor =
            format!("{}/bin/edge-runtime doctor -o json --root {}", self.folder.path().display(), self.root.display());
        command.args(["bash", "-c", &format!("{{\n{}}} >&2\nexec {} {doctor}", self.script, self.wrapper)]);
        examine(&mut command)
    }
}
