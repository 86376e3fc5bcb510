//! A headless Chromium, controlled through its debugging pipe (Chrome DevTools Protocol). Knows no page.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sampan_tests::wait::{patient, until};
use serde_json::{Value, json};

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Error of a navigation if the host gets or loses an interface meanwhile: other suites create them for pods.
const NETWORK_CHANGED: &str = "net::ERR_NETWORK_CHANGED";
const NAVIGATIONS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// A running Chromium; it ends when this is dropped.
pub(crate) struct Browser {
    process: Child,
    to: File,
    from: Receiver<Value>,
    number: u64,
    session: Option<String>,
    /// Events that it has sent so far.
    pub(crate) events: Vec<Value>,
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser; `None`, with a notice, if Chromium is missing.
    pub(crate) fn start() -> Option<Self> {
        if Command::new("chromium").arg("--version").stdout(Stdio::null()).status().is_err() {
            let _ = writeln!(std::io::stderr(), "skipped: there is no chromium");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let [to, from] = ["to", "from"].map(|name| folder.path().join(name));
        let made = Command::new("mkfifo").args([&to, &from]).status().expect("mkfifo starts");
        assert!(made.success());
        // It reads requests at descriptor 3 and answers at 4. It resolves only the name of this host.
        let script = r#"exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
            --disable-background-networking --disable-component-update --disable-sync --ignore-certificate-errors \
            --remote-debugging-pipe --user-data-dir="$3" 3<"$1" 4>"$2""#;
        let process = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([&to, &from, &folder.path().join("profile")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let to = File::options().write(true).open(to).expect("its requests");
        let mut answers = BufReader::new(File::open(from).expect("its answers"));
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                let value = serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message)).unwrap_or_default();
                message.clear();
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let (number, session, events) = (0, None, Vec::new());
        let mut browser = Self { process, to, from, number, session, events, _folder: folder };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.size((1280, 640), false);
        Some(browser)
    }

    /// Sets the size of the window in CSS pixels, which is also the size of screenshots.
    pub(crate) fn size(&mut self, (width, height): (u32, u32), phone: bool) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets the language in which numbers and times are written, and the time zone.
    pub(crate) fn place(&mut self, language: &str, zone: &str) {
        self.call("Emulation.setLocaleOverride", json!({ "locale": language }));
        self.call("Emulation.setTimezoneOverride", json!({ "timezoneId": zone }));
    }

    /// Runs a script in each page that is opened from now on, before the page's own.
    pub(crate) fn run_first(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }));
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let message = self.ask(method, params);
        assert!(message["error"].is_null(), "{method}: {message}");
        message["result"].clone()
    }

    /// The browser's message with `result`, or with `error`.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut request = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            request["sessionId"] = session.clone().into();
        }
        self.to.write_all(format!("{request}\0").as_bytes()).expect("the browser reads");
        loop {
            let message = self.from.recv_timeout(patient(PATIENCE)).unwrap_or_else(|e| panic!("{method}: {e}"));
            if message["id"] == self.number {
                return message;
            }
            self.events.push(message);
        }
    }

    pub(crate) fn go(&mut self, url: &str) {
        navigate(|| self.call("Page.navigate", json!({ "url": url })));
    }

    /// Value of an expression. An error also if the page goes elsewhere meanwhile, as after a login.
    pub(crate) fn value(&mut self, expression: &str) -> Result<Value, String> {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let message = self.ask("Runtime.evaluate", params);
        if !message["error"].is_null() {
            return Err(message["error"].to_string());
        }
        let answer = &message["result"];
        match answer["exceptionDetails"].is_null() {
            true => Ok(answer["result"]["value"].clone()),
            false => Err(answer["exceptionDetails"].to_string()),
        }
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, what: &str, expression: &str) {
        until(Duration::from_secs(30), what, || match self.value(expression) {
            Ok(Value::Bool(true)) => Ok(()),
            other => {
                let shown = self.value("document.body.innerText.slice(0, 400)");
                self.send_again();
                Err(format!("{other:?}; shown: {shown:?}"))
            }
        });
    }

    /// Sends the last request again, a form too, if the browser shows an error of its own in place of the page: a
    /// change of the host's interfaces ends what is on its way (see `NETWORK_CHANGED`).
    fn send_again(&mut self) {
        if self.value("location.protocol").is_ok_and(|scheme| scheme == "chrome-error:") {
            self.call("Page.reload", json!({}));
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    pub(crate) fn key(&mut self, key: &str) {
        let code = [
            ("Enter", 13),
            ("Escape", 27),
            ("PageUp", 33),
            ("PageDown", 34),
            ("End", 35),
            ("Home", 36),
            ("ArrowLeft", 37),
            ("ArrowUp", 38),
            ("ArrowRight", 39),
            ("ArrowDown", 40),
        ];
        let code = code.iter().find(|(name, _)| *name == key).map_or(0, |(_, code)| *code);
        let mut down = json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code});
        if key == "Enter" {
            down["text"] = "\r".into();
        } else if key.len() == 1 {
            down["text"] = key.into();
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "code": key}));
    }

    pub(crate) fn dark(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": value}]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    pub(crate) fn screenshot(&mut self, to: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = STANDARD.decode(shot["data"].as_str().unwrap_or_default()).expect("base64");
        std::fs::write(to, bytes).expect("it can be written");
    }
}

/// Repeats a navigation until the network does not change meanwhile. The test sees other errors.
fn navigate(mut once: impl FnMut() -> Value) {
    for _ in 0..NAVIGATIONS {
        if once()["errorText"] != NETWORK_CHANGED {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{NAVIGATIONS} navigations ended with {NETWORK_CHANGED}");
}

#[test]
fn navigation_is_repeated_only_when_the_network_changed() {
    let count = |answers: &[Value]| {
        let mut answers = answers.iter();
        navigate(|| answers.next().expect("no more than these").clone());
        answers.len()
    };
    let changed = json!({"frameId": "f", "errorText": NETWORK_CHANGED});
    assert_eq!(count(&[changed.clone(), changed.clone(), json!({"frameId": "f"})]), 0);
    assert_eq!(count(&[json!({"errorText": "net::ERR_CONNECTION_REFUSED"}), changed.clone()]), 1);
    assert!(std::panic::catch_unwind(|| navigate(|| changed.clone())).is_err(), "it is bounded");
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its children end with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
