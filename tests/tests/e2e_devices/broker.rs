//! mosquitto, its broker and its clients, as Debian has them.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sampan_tests::ports::free_address;
use sampan_tests::process::Process;
use sampan_tests::wait::{patient, until};
use serde_json::Value;

/// What it writes down: also who subscribes to what.
const LOGS: &str = "log_type error\nlog_type warning\nlog_type notice\nlog_type subscribe\n";

/// A broker at one address, which can be stopped and started again.
pub(crate) struct Broker {
    address: SocketAddr,
    folder: PathBuf,
    process: Option<Process>,
}

impl Broker {
    pub(crate) fn start(folder: &Path) -> Self {
        let mut broker = Self { address: free_address(), folder: folder.to_owned(), process: None };
        broker.begin();
        broker
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn begin(&mut self) {
        let (config, log) = (self.folder.join("mosquitto.conf"), self.folder.join("mosquitto.log"));
        let text = format!("listener {} {}\nallow_anonymous true\n{LOGS}", self.address.port(), self.address.ip());
        std::fs::write(&config, text).expect("the configuration can be written");
        self.process = Some(Process::start(Command::new(program("mosquitto")).arg("-c").arg(config), &log));
        until(Duration::from_secs(10), "the broker listens", || {
            std::net::TcpStream::connect(self.address).map(drop).map_err(|error| error.to_string())
        });
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    fn client(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.args(["-h", &self.address.ip().to_string(), "-p", &self.address.port().to_string(), "-q", "1"]);
        command
    }

    pub(crate) fn publish(&self, topic: &str, text: &str) {
        let done = self.client("mosquitto_pub").args(["-t", topic, "-m", text]).status().expect("mosquitto_pub starts");
        assert!(done.success(), "{topic}");
    }

    /// Subscribes to everything below the topic.
    pub(crate) fn listen(&self, topic: &str) -> Listener {
        let client = self.client("mosquitto_sub");
        // It would keep its lines back for a pipe.
        let mut command = Command::new("stdbuf");
        command.arg("-oL").arg(client.get_program()).args(client.get_args());
        // What it says itself: that of the subscription tells that everything after it is heard.
        command.args(["-t", topic, "-F", "%t %p", "-d"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("stdbuf (coreutils) starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let subscribed = lines.find(|line| line.starts_with("Subscribed"));
        assert!(subscribed.is_some(), "mosquitto_sub has subscribed to {topic}");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in lines {
                let message =
                    line.split_once(' ').and_then(|(topic, text)| Some((topic, serde_json::from_str(text).ok()?)));
                if let Some((topic, text)) = message
                    && sender.send((topic.to_owned(), text)).is_err()
                {
                    break;
                }
            }
        });
        Listener { child, messages }
    }
}

/// A program of Debian's packages, where `./scripts/test` has put them, or on the path.
fn program(name: &str) -> PathBuf {
    std::env::var_os("SAMPAN_MOSQUITTO").map_or_else(|| PathBuf::from(name), |folder| Path::new(&folder).join(name))
}

pub(crate) struct Listener {
    child: Child,
    messages: Receiver<(String, Value)>,
}

impl Listener {
    /// The next message on a topic that ends so, those before it left out.
    pub(crate) fn next(&self, end: &str) -> Value {
        self.next_that(end, |_| true)
    }

    pub(crate) fn next_that(&self, end: &str, accept: impl Fn(&Value) -> bool) -> Value {
        let limit = patient(Duration::from_secs(10));
        loop {
            match self.messages.recv_timeout(limit) {
                Ok((topic, text)) if topic.ends_with(end) && accept(&text) => return text,
                Ok(_) => {}
                Err(_) => panic!("nothing on {end} within {limit:?}"),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
