//! `edge-runtime page`: this one node in a browser, read-only, from the daemon's answers and its store. A separate
//! program that runs as long as a user needs it: the daemon knows nothing of it.
//!
//! | file | owns |
//! |---|---|
//! | `look` | one look at the node |
//! | `board`, `pods`, `problems`, `tables` | what is told of it, and what has changed (pure) |
//! | `access` | who may look (pure) |
//! | `serve` | connections, limits |
//! | `place` | the socket and its lock |
//!
//! The files for a browser are here (`index.html`, `device.js`) and, those that the bridge's page has too, in `sampan_page`.

mod access;
mod board;
mod look;
mod place;
mod pods;
mod problems;
mod serve;
mod tables;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::paths::Paths;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ring::rand::{SecureRandom, SystemRandom};
use sampan_sys::tasks::Tasks;
use smol::Async;
use smol::channel::{Sender, bounded};

use self::access::Door;
use self::board::{Board, LOOKS};
use self::look::Lookout;
use self::place::Place;
use self::serve::Live;

/// What is told: parts of the page by name.
type News = Vec<(&'static str, String)>;

pub(crate) const VERB: Verb = Verb {
    name: "page",
    about: "Show this node in a browser",
    operands: Operands::None,
    flags: &[Flag::value("listen", "ADDRESS", "also listen on this loopback address and port; prints a token")],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    let address: Option<SocketAddr> = given.one("listen")?;
    if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
        let why =
            format!("--listen {address}: only a loopback address, like 127.0.0.1:8080: the page is not encrypted");
        return Err(CliError::Usage(why));
    }
    // Before there are threads.
    let signals = signals()?;
    let (place, socket) = Place::take(&paths)?;
    let port = match address {
        Some(address) => Some((listen(address)?, token()?)),
        None => None,
    };
    print(&format!("this node is shown at {}", place.socket().display()))?;
    print(&format!(
        "  from your desk: ssh -L 8080:{} root@HOST, then http://localhost:8080",
        place.socket().display()
    ))?;
    match &port {
        Some((listener, token)) => print(&format!("http://{}/#{token}", listener.get_ref().local_addr()?))?,
        None => print(
            "  if root may not log in: ssh -t -L 8080:127.0.0.1:8080 USER@HOST sudo edge-runtime page --listen 127.0.0.1:8080",
        )?,
    }
    let tasks = Tasks::default();
    smol::block_on(tasks.run(serve(tasks.clone(), &paths, socket, port, signals)))
}

async fn serve(
    tasks: Tasks,
    paths: &Paths,
    socket: Async<UnixListener>,
    port: Option<(Async<TcpListener>, String)>,
    signals: Async<SignalFd>,
) -> Result<(), CliError> {
    let watched = Arc::new(AtomicUsize::new(0));
    let (wake, woken) = mpsc::channel();
    let (tell, told) = bounded(1);
    let (counted, of_node) = (Arc::clone(&watched), paths.clone());
    thread::Builder::new().name("look".into()).spawn(move || look_on(&of_node, &counted, &woken, &tell))?;
    let live = Rc::new(Live::new(move |listeners| {
        watched.store(listeners, Ordering::Relaxed);
        // It looks for as long as this runs.
        let _ = wake.send(());
    }));
    let socket = Rc::new(socket);
    let accept = move || {
        let socket = Rc::clone(&socket);
        async move { socket.accept().await.map(|(stream, _)| Box::new(stream) as _) }
    };
    tasks.spawn(serve::serve(tasks.clone(), Door::Socket, Rc::clone(&live), accept)).detach();
    if let Some((listener, token)) = port {
        let listener = Rc::new(listener);
        let accept = move || {
            let listener = Rc::clone(&listener);
            async move { listener.accept().await.map(|(stream, _)| Box::new(stream) as _) }
        };
        tasks.spawn(serve::serve(tasks.clone(), Door::Port(token), Rc::clone(&live), accept)).detach();
    }
    let telling = async {
        while let Ok(news) = told.recv().await {
            live.tell(news);
        }
        Err(CliError::Failed("the part that looks at the node has ended".into()))
    };
    let ended = async { Ok(signals.readable().await?) };
    smol::future::or(ended, telling).await
}

/// Updates periodically, slowly without viewers, so that the timeline has no gaps.
fn look_on(paths: &Paths, watched: &AtomicUsize, woken: &mpsc::Receiver<()>, tell: &Sender<News>) {
    let (mut board, mut looker) = (Board::default(), Lookout::new(paths));
    loop {
        let news = board.take(looker.look());
        if tell.send_blocking(news).is_err() {
            return;
        }
        let pause = if watched.load(Ordering::Relaxed) > 0 { LOOKS.0 } else { LOOKS.1 };
        // A new viewer needs an update.
        match woken.recv_timeout(pause) {
            Ok(()) => while woken.try_recv().is_ok() {},
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn listen(address: SocketAddr) -> Result<Async<TcpListener>, CliError> {
    let listener = TcpListener::bind(address).and_then(Async::new);
    listener.map_err(|error| CliError::Failed(format!("--listen {address}: {error}")))
}

/// Another one at each start.
fn token() -> Result<String, CliError> {
    let mut bytes = [0; 16];
    let made = SystemRandom::new().fill(&mut bytes);
    made.map_err(|_| CliError::Failed("the kernel gives no randomness for a token".into()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What ends it, read instead of delivered.
fn signals() -> Result<Async<SignalFd>, CliError> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(Async::new(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)?)
}
