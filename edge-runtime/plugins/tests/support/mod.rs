//! A helper on a thread of its own, the daemon at its socket, and device plugins that are served by the test.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part; a test that cannot go on fails")]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use sampan_grpc::{Call, Client, Code, Status, serve};
use sampan_plugins_control::{Device, FromHelper, Settings, ToHelper, VERSION};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

/// Timeout for an expected event, on a slow machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const MOMENT: Duration = Duration::from_millis(10);

pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { timeout(PATIENCE * 4, work).await.expect("the test hangs") })
}

/// The daemon's side.
pub(crate) struct Node {
    pub(crate) folder: TempDir,
    pub(crate) settings: Settings,
    socket: PathBuf,
    control: BufReader<UnixStream>,
    /// Lines that came while another one was waited for.
    passed: VecDeque<FromHelper>,
    helper: Option<JoinHandle<()>>,
}

fn line(line: &ToHelper) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).unwrap();
    text.push(b'\n');
    text
}

async fn connect(socket: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return stream,
            Err(_) => sleep(MOMENT).await,
        }
    }
}

fn start_helper(socket: &Path) -> JoinHandle<()> {
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(sampan_plugins::run::run(&socket)).unwrap();
    })
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::with(tempfile::tempdir().unwrap(), true).await
    }

    /// Whether its sockets are awaited.
    pub(crate) async fn with(folder: TempDir, serves: bool) -> Self {
        let settings = Settings {
            root: folder.path().join("kubelet"),
            device_plugins: true,
            pod_resources: true,
            csi: false,
            csi_controllers: BTreeMap::new(),
            cdi_folders: vec![folder.path().join("etc-cdi"), folder.path().join("run-cdi")],
            taken: vec!["example.com/taken".into()],
        };
        let socket = folder.path().join("plugins.sock");
        let helper = start_helper(&socket);
        let control = BufReader::new(connect(&socket).await);
        let mut node = Self { folder, settings, socket, control, passed: VecDeque::new(), helper: Some(helper) };
        node.greet().await;
        if serves {
            for name in ["device-plugins", "pod-resources"] {
                drop(timeout(PATIENCE, connect(&node.root().join(name).join("kubelet.sock"))).await.unwrap());
            }
        }
        node
    }

    async fn greet(&mut self) {
        let daemon = ToHelper::Daemon { version: VERSION, node: "n".into(), settings: self.settings.clone() };
        self.say(&daemon).await;
        assert_eq!(self.hear().await, FromHelper::Hello { version: VERSION });
    }

    /// Another daemon in place of this one.
    pub(crate) async fn restart_daemon(&mut self) {
        self.control = BufReader::new(connect(&self.socket).await);
        self.greet().await;
    }

    /// Another helper in place of this one.
    pub(crate) async fn restart_helper(&mut self) {
        self.end().await;
        self.helper = Some(start_helper(&self.socket));
        self.restart_daemon().await;
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("kubelet")
    }

    pub(crate) async fn say(&mut self, what: &ToHelper) {
        self.control.write_all(&line(what)).await.unwrap();
    }

    /// The next line but counters.
    pub(crate) async fn hear(&mut self) -> FromHelper {
        loop {
            let mut text = String::new();
            let length = timeout(PATIENCE, self.control.read_line(&mut text)).await.expect("a line").unwrap();
            assert!(length > 0, "the helper has gone");
            match serde_json::from_str(&text).unwrap() {
                FromHelper::Counters { .. } => {}
                line => return line,
            }
        }
    }

    /// The next line about devices or orders.
    pub(crate) async fn news(&mut self) -> FromHelper {
        if let Some(line) = self.passed.pop_front() {
            return line;
        }
        loop {
            match self.hear().await {
                FromHelper::Ready { .. } | FromHelper::Told {} => {}
                line => return line,
            }
        }
    }

    /// Waits until something is refused whose line has this text.
    pub(crate) async fn refused(&mut self, text: &str) {
        loop {
            match self.hear().await {
                FromHelper::Ready { refused } if refused.iter().any(|line| line.contains(text)) => return,
                FromHelper::Ready { .. } | FromHelper::Told {} => {}
                line => self.passed.push_back(line),
            }
        }
    }

    pub(crate) async fn allocate(&mut self, id: u64, resource: &str, free: &[&str], count: u32) -> FromHelper {
        let order = ToHelper::Allocate {
            id,
            resource: resource.into(),
            pod: "default/web".into(),
            container: "c".into(),
            had: Vec::new(),
            free: free.iter().map(|id| (*id).to_owned()).collect(),
            count,
        };
        self.say(&order).await;
        self.news().await
    }

    pub(crate) async fn end(&mut self) {
        self.say(&ToHelper::End {}).await;
        self.helper.take().unwrap().join().unwrap();
    }

    pub(crate) async fn register(&self, version: &str, endpoint: &str, resource: &str) -> Result<(), Status> {
        let message =
            [bytes(1, version.as_bytes()), bytes(2, endpoint.as_bytes()), bytes(3, resource.as_bytes())].concat();
        let mut kubelet = Client::new(self.root().join("device-plugins/kubelet.sock"));
        kubelet.call("/v1beta1.Registration/Register", &message, PATIENCE).await.map(drop)
    }
}

pub(crate) fn devices(resource: &str, all: &[(&str, bool)]) -> FromHelper {
    let device = |(id, healthy): &(&str, bool)| Device { id: (*id).to_owned(), healthy: *healthy, numa: Vec::new() };
    FromHelper::Devices { resource: resource.into(), all: all.iter().map(device).collect() }
}

pub(crate) fn gone(resource: &str) -> FromHelper {
    FromHelper::Gone { resource: resource.into() }
}

/// A field of bytes in a protobuf message.
pub(crate) fn bytes(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![(number << 3) | 2];
    let mut length = bytes.len();
    while length >= 128 {
        out.push(u8::try_from(length % 128).unwrap() | 0x80);
        length /= 128;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend(bytes);
    out
}

/// A `ListAndWatchResponse`.
pub(crate) fn list(all: &[(&str, bool)]) -> Vec<u8> {
    let device = |(id, healthy): &(&str, bool)| {
        let health = if *healthy { "Healthy" } else { "Unhealthy" };
        bytes(1, &[bytes(1, id.as_bytes()), bytes(2, health.as_bytes())].concat())
    };
    all.iter().flat_map(device).collect()
}

/// Answers a call of the helper.
pub(crate) type Answer = dyn Fn(&str, &[u8]) -> Result<Vec<u8>, Status>;
/// Method and message of each call.
pub(crate) type Calls = Rc<RefCell<Vec<(String, Vec<u8>)>>>;

/// A device plugin. Each odd connection has calls, each even one is a stream: the helper connects in this order.
pub(crate) struct Plugin {
    tasks: Rc<RefCell<Vec<AbortHandle>>>,
    stream: Rc<RefCell<Option<mpsc::UnboundedSender<Vec<u8>>>>>,
    first: Rc<RefCell<Vec<u8>>>,
    pub(crate) calls: Calls,
    _inner: TempDir,
}

/// Serves at this socket, with this list of devices, and with empty answers but for those that `answer` has.
pub(crate) fn plugin(socket: &Path, first: Vec<u8>, answer: Box<Answer>) -> Plugin {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).unwrap();
    let inner = tempfile::tempdir().unwrap();
    let served = inner.path().join("inner.sock");
    let (calls, waiting) = mpsc::channel(8);
    let plugin = Plugin {
        tasks: Rc::default(),
        stream: Rc::default(),
        first: Rc::new(RefCell::new(first)),
        calls: Calls::default(),
        _inner: inner,
    };
    let unary = spawn_local(serve(UnixListener::bind(&served).unwrap(), calls)).abort_handle();
    let answering = spawn_local(answers(waiting, Rc::clone(&plugin.calls), answer)).abort_handle();
    let tasks = Rc::clone(&plugin.tasks);
    let (stream, first) = (Rc::clone(&plugin.stream), Rc::clone(&plugin.first));
    let accepting = spawn_local(async move {
        for number in 0_u64.. {
            let (mut client, _) = listener.accept().await.unwrap();
            let task = if number % 2 == 0 {
                let served = served.clone();
                spawn_local(async move {
                    let mut server = UnixStream::connect(served).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                })
            } else {
                let (send, messages) = mpsc::unbounded_channel();
                send.send(first.borrow().clone()).unwrap();
                stream.replace(Some(send));
                spawn_local(streamed(client, messages))
            };
            tasks.borrow_mut().push(task.abort_handle());
        }
    })
    .abort_handle();
    plugin.tasks.borrow_mut().extend([unary, answering, accepting]);
    plugin
}

async fn answers(mut waiting: mpsc::Receiver<Call>, calls: Calls, answer: Box<Answer>) {
    while let Some(Call { path, message, reply, .. }) = waiting.recv().await {
        let method = path.rsplit('/').next().unwrap().to_owned();
        let answered = answer(&method, &message);
        calls.borrow_mut().push((method, message));
        let _ = reply.send(answered);
    }
}

async fn streamed(mut client: UnixStream, mut messages: mpsc::UnboundedReceiver<Vec<u8>>) {
    let mut heard = vec![0; 4_096];
    let _ = client.read(&mut heard).await;
    let fields = block(&[(":status", "200"), ("content-type", "application/grpc")]);
    let head = [frame(4, 0, 0, &[]), frame(4, 1, 0, &[]), frame(1, 4, 1, &fields)].concat();
    client.write_all(&head).await.unwrap();
    let (mut read, mut write) = client.into_split();
    // Window updates and the like.
    let reads = async { while read.read(&mut heard).await.is_ok_and(|length| length > 0) {} };
    let writes = async {
        while let Some(message) = messages.recv().await {
            let mut prefixed = vec![0];
            prefixed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
            prefixed.extend(message);
            for part in prefixed.chunks(16_384) {
                if write.write_all(&frame(0, 0, 1, part)).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = reads => {}
        () = writes => {}
    }
}

impl Plugin {
    /// Lists these devices from now on.
    pub(crate) fn lists(&self, list: Vec<u8>) {
        self.first.replace(list.clone());
        if let Some(stream) = &*self.stream.borrow() {
            let _ = stream.send(list);
        }
    }

    /// The calls of a method.
    pub(crate) fn messages(&self, method: &str) -> Vec<Vec<u8>> {
        let calls = self.calls.borrow();
        calls.iter().filter(|(name, _)| name == method).map(|(_, message)| message.clone()).collect()
    }
}

impl Drop for Plugin {
    /// As if its process ends; its socket stays.
    fn drop(&mut self) {
        for task in self.tasks.take() {
            task.abort();
        }
    }
}

/// Answers every call with an empty message.
pub(crate) fn empty() -> Box<Answer> {
    Box::new(|_, _| Ok(Vec::new()))
}

pub(crate) fn unimplemented() -> Status {
    Status::new(Code::Unimplemented, "no such method")
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Literal fields without indexing and without Huffman (RFC 7541 section 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.bytes());
        }
    }
    block
}
