//! Standard error that is not read: a full disk, a reader that is gone, one that hangs. Neither program ends or stops.

use std::fs::File;
use std::io::{Write, pipe};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sampan_tests::ports::free_address;
use sampan_tests::process::binary;
use sampan_tests::{Kubectl, can_run, until};

/// Ended when dropped.
struct Program(Child);

impl Program {
    fn start(command: &mut Command, stderr: Stdio) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().expect("starts"))
    }

    /// SIGTERM, and it ends of itself, well.
    fn stop(&mut self, what: &str) {
        assert_eq!(self.0.try_wait().expect("its state"), None, "{what}: it runs");
        let sent = Command::new("kill").arg(self.0.id().to_string()).status().expect("kill starts");
        assert!(sent.success());
        until(Duration::from_secs(15), what, || match self.0.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_that_nobody_takes_stops_no_program() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (reader, closed) = pipe().expect("a pipe");
    drop(reader);
    // Held and never read; 64 KiB fill it (pipe(7)).
    let (_held, mut hung) = pipe().expect("a pipe");
    hung.write_all(&vec![b'x'; 64 * 1024]).expect("room for the first");
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    both("full", folder.path(), &full);
    both("closed", folder.path(), &File::from(OwnedFd::from(closed)));
    both("hung", folder.path(), &File::from(OwnedFd::from(hung)));
}

fn both(case: &str, folder: &Path, stderr: &File) {
    let root = folder.join(case);
    std::fs::create_dir_all(root.join("run")).expect("a folder");
    let stderr = || Stdio::from(stderr.try_clone().expect("a copy"));

    let state = root.join("bridge");
    let mut command = Command::new(binary("cloud-bridge"));
    command.args(["--log-level", "trace", "standalone", "--state"]).arg(&state);
    command.args(["--listen", &free_address().to_string(), "--api-listen", &free_address().to_string()]);
    let mut bridge = Program::start(&mut command, stderr());
    let kubectl = Kubectl::new(&state.join("kubeconfig"), "default");
    until(Duration::from_secs(20), "the API answers", || kubectl.run(&["get", "namespaces"]));

    let mut command = Command::new(binary("edge-runtime"));
    command.env("EDGE_RUNTIME_LOG", "trace").args(["run", "--root"]).arg(&root);
    let mut node = Program::start(&mut command, stderr());
    let store = root.join("var/lib/edge-runtime/store.db");
    until(Duration::from_secs(20), "the node is up", || {
        store.exists().then_some(()).ok_or_else(|| "no store yet".to_owned())
    });
    kubectl.run(&["get", "namespaces"]).expect("the API answers still");
    node.stop(&format!("{case}: the node ends"));
    let reset = Command::new(binary("edge-runtime")).args(["reset", "--all", "--root"]).arg(&root).output();
    assert!(reset.is_ok_and(|output| output.status.success()), "{case}: nothing of the node is left");
    bridge.stop(&format!("{case}: the bridge ends"));
}
