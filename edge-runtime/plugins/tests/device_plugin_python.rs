//! A device plugin in Python, with the gRPC that such plugins use.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod python;
mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use sampan_plugins_control::{Edits, FromHelper, ToHelper};
use support::*;
use tokio::task::spawn_blocking;

const RESOURCE: &str = "example.com/python";

/// Ends with the test, by its id.
struct Python {
    child: Child,
    input: ChildStdin,
    output: Option<BufReader<ChildStdout>>,
}

impl Python {
    async fn start(root: &Path) -> Self {
        let mut command = std::process::Command::new("python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/device_plugin.py")).arg(root);
        command.env("PYTHONPATH", python::packages()).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut python = Self { child, input, output: Some(BufReader::new(output)) };
        python.ready().await;
        python
    }

    async fn ready(&mut self) {
        let mut output = self.output.take().unwrap();
        let (line, output) = spawn_blocking(move || {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            (line, output)
        })
        .await
        .unwrap();
        assert_eq!(line, "ready\n");
        self.output = Some(output);
    }

    async fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.ready().await;
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn device_plugin_in_python_is_served() {
    run(async {
        let mut node = Node::start().await;
        let mut python = Python::start(&node.root()).await;
        assert_eq!(node.news().await, devices(RESOURCE, &[("one", true), ("two", true)]));
        let allocated = node.allocate(1, RESOURCE, &["one", "two"], 1).await;
        let FromHelper::Allocated { id: 1, ids, pre_start: true, edits } = allocated else { panic!("{allocated:?}") };
        assert_eq!(ids, ["two"]);
        let edits: Edits = serde_json::from_value(edits).unwrap();
        assert_eq!((edits.env[0].name.as_str(), edits.env[0].value.as_str()), ("DEVICE", "two"));
        assert_eq!((edits.mounts[0].container.as_str(), edits.mounts[0].host.as_str()), ("/inside", "/outside"));
        assert!(edits.mounts[0].read_only);
        let device = &edits.devices[0];
        assert_eq!([&device.container, &device.host, &device.permissions], ["/dev/inside", "/dev/null", "rw"]);
        assert_eq!(edits.annotations[0].name, "example.com/note");
        node.say(&ToHelper::PreStart { id: 2, resource: RESOURCE.into(), ids }).await;
        assert_eq!(node.news().await, FromHelper::Prepared { id: 2 });
        python.say("devices three").await;
        assert_eq!(node.news().await, devices(RESOURCE, &[("three", true)]));
        // A plugin may reset its device first.
        python.say("slow 11").await;
        let allocated = node.allocate(3, RESOURCE, &["three"], 1).await;
        assert!(matches!(&allocated, FromHelper::Allocated { id: 3, .. }), "{allocated:?}");
        // A stream that fails is asked for again.
        python.say("fail").await;
        assert_eq!(node.news().await, gone(RESOURCE));
        assert_eq!(node.news().await, devices(RESOURCE, &[("three", true)]));
        python.say("restart").await;
        let mut line = node.news().await;
        while line != devices(RESOURCE, &[("three", true)]) {
            assert_eq!(line, gone(RESOURCE));
            line = node.news().await;
        }
        drop(python);
        assert_eq!(node.news().await, gone(RESOURCE));
        node.end().await;
    });
}
