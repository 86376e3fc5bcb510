//! Clients that count answers, in a pod's network or the host's, and their DNS questions.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sampan_tests::{EdgeNode, Kubectl, get};

/// The network namespace of a pod, while the file is open.
pub(super) fn network(kubectl: &Kubectl, pod: &str) -> File {
    let uid = kubectl.wait_ready(pod)["metadata"]["uid"].as_str().expect("has one").to_owned();
    let named = [uid.replace('-', "_"), uid];
    let pids = std::fs::read_dir("/proc").expect("processes").flatten().map(|entry| entry.path());
    let in_it = |process: &PathBuf| {
        let groups = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        named.iter().any(|uid| groups.contains(uid))
    };
    let process = pids.into_iter().find(in_it).expect("a process of the pod");
    File::open(process.join("ns/net")).expect("the pod's network")
}

/// Runs on a separate thread in the network, or in the host's.
pub(super) fn inside<T: Send + 'static>(
    network: Option<&File>,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let network = network.map(|file| file.try_clone().expect("a file can be cloned"));
    std::thread::spawn(move || {
        if let Some(network) = network {
            nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).expect("entered");
        }
        work()
    })
}

/// Result of a client: the number of answers, and when and why there was none.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) answers: usize,
    pub(super) failures: Vec<(Instant, String)>,
}

/// A client that calls `once` repeatedly until it is stopped.
pub(super) struct Client {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Client {
    pub(super) fn start(network: Option<&File>, once: impl Fn() -> Result<(), String> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = inside(network, move || {
            let mut seen = Seen::default();
            while !told.load(Relaxed) {
                let began = Instant::now();
                match once() {
                    Ok(()) => seen.answers += 1,
                    Err(why) => seen.failures.push((began, why)),
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            seen
        });
        Self { stop, thread }
    }

    /// Requests `/` from the address.
    pub(super) fn of_http(network: Option<&File>, at: SocketAddr) -> Self {
        Self::start(network, move || get(at).map(drop))
    }

    pub(super) fn stop(self) -> Seen {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("the client lives")
    }
}

/// The answer of the name server at `server`: its code, and the number of records. One datagram, no retry.
pub(super) fn look_up(server: IpAddr, name: &str, patience: Duration) -> Result<(u8, u16), Error> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((server, 53))?;
    socket.set_read_timeout(Some(patience))?;
    socket.send(&question(name))?;
    let mut answer = [0; 2_048];
    let length = socket.recv(&mut answer)?;
    match answer.get(..length) {
        Some([_, _, _, flags, _, _, high, low, ..]) => Ok((flags & 0x0f, u16::from_be_bytes([*high, *low]))),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// The bytes of a question for the address of a name.
pub(super) fn question(name: &str) -> Vec<u8> {
    let mut packet = vec![0x5a, 0xa5, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).expect("a label"));
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

/// Succeeds if the name resolves to one address; a wrong answer is an error too.
pub(super) fn leads_somewhere(server: IpAddr, name: &str) -> Result<(), String> {
    match look_up(server, name, Duration::from_secs(2)) {
        Ok((0, 1..)) => Ok(()),
        Ok((code, count)) => Err(format!("wrong answer: code {code}, {count} records")),
        Err(error) => Err(error.to_string()),
    }
}

/// Name server of a pod.
pub(super) fn name_server(node: &EdgeNode, pod: &str) -> IpAddr {
    let file = node.edge_ok(&["exec", pod, "--", "cat", "/etc/resolv.conf"]);
    let server = file.lines().find_map(|line| line.strip_prefix("nameserver "));
    server.and_then(|ip| ip.trim().parse().ok()).unwrap_or_else(|| panic!("no server in {file}"))
}
