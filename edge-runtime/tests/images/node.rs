//! A node's root folder and the real binary working on it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) struct Node {
    temp: tempfile::TempDir,
}

/// Result of a verb.
pub(crate) struct Done {
    pub(crate) ok: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self { temp: tempfile::Builder::new().prefix("image-node-").tempdir().unwrap() }
    }

    pub(crate) fn root(&self) -> &Path {
        self.temp.path()
    }

    pub(crate) fn config(&self, text: &str) {
        let dir = self.root().join("etc/edge-runtime");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("config.yaml"), text).unwrap();
    }

    /// Plain http to a registry on loopback.
    pub(crate) fn plain_http(&self, registry: &str) {
        self.config(&format!("registry:\n- host: \"{registry}\"\n  plain-http: true\n"));
    }

    pub(crate) fn command(&self, verb: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_edge-runtime"));
        // It belongs to another package, so cargo does not build it for this test.
        let admin = program.with_file_name("edge-admin");
        assert!(verb != "images" || admin.exists(), "no {}: cargo build -p sampan-admin makes it", admin.display());
        let mut command = Command::new(program);
        command.arg(verb).arg("--root").arg(self.root());
        command
    }

    pub(crate) fn run(&self, verb: &str, args: &[&str]) -> Done {
        done(self.command(verb).args(args).output().unwrap())
    }

    /// Same as [`Node::run`], with this limit of descriptors.
    pub(crate) fn limited(&self, verb: &str, args: &[&str], descriptors: u32) -> Done {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""));
        let plain = self.command(verb);
        command.arg(plain.get_program()).args(plain.get_args()).args(args);
        done(command.output().unwrap())
    }

    pub(crate) fn run_with_input(&self, verb: &str, args: &[&str], input: &[u8]) -> Done {
        let mut command = self.command(verb);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A verb that refuses early closes its input.
        let _ = child.stdin.take().unwrap().write_all(input);
        done(child.wait_with_output().unwrap())
    }

    pub(crate) fn pull(&self, image: &str) -> Done {
        self.run("pull", &[image])
    }

    pub(crate) fn images(&self) -> Vec<Value> {
        serde_json::from_str(&self.run("images", &["--json"]).expect().stdout).unwrap()
    }

    pub(crate) fn state(&self, path: &str) -> PathBuf {
        self.root().join("var/lib/edge-runtime").join(path)
    }

    /// Times at which records and store were written last.
    pub(crate) fn written(&self) -> Vec<std::time::SystemTime> {
        let time = |path: PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).unwrap();
        let mut records = self.listing("layers");
        records.retain(|name| name.ends_with(".image"));
        records.iter().map(|name| time(self.state("layers").join(name))).chain([time(self.state("store.db"))]).collect()
    }

    /// Names in a folder of the state, without the helpers' lock.
    pub(crate) fn listing(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.state(path)).into_iter().flatten();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "lock");
        names.sort();
        names
    }

    /// The folder of layer `n` of the first image.
    pub(crate) fn layer(&self, n: usize) -> PathBuf {
        let images = self.images();
        let id = images[0]["layers"][n].as_str().unwrap().trim_start_matches("sha256:").to_owned();
        self.state("layers").join(id)
    }
}

impl Done {
    /// Asserts success; prints all output on failure.
    #[track_caller]
    pub(crate) fn expect(self) -> Self {
        assert!(self.ok, "failed: {}{}", self.stdout, self.stderr);
        self
    }

    /// Asserts a failure whose text contains all of these.
    #[track_caller]
    pub(crate) fn expect_error(self, parts: &[&str]) -> Self {
        assert!(!self.ok, "did not fail: {}", self.stdout);
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in: {}", self.stderr);
        }
        self
    }
}

fn done(output: Output) -> Done {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Done { ok: output.status.success(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
