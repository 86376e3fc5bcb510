//! The program `edge-plugins`: arguments in, exit code out. Started by the daemon, not by people.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use edge_protocol::build;
use log::LevelFilter;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Files and sockets at once: three for each of 64 plugins, and those of clients; three for each of 8 calls of 32 CSI
/// drivers. The process for fsGroup opens 500 folders.
const MAX_FILES: rlim_t = 1_536;

const HELP: &str = "usage: edge-plugins --socket PATH [--log LEVEL]
       edge-plugins version [-o json]

Talks to device plugins and CSI drivers for a node. Started by edge-runtime, which calls at the socket.";

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { why, code }) => {
            // Nothing is left to do when even stderr is gone.
            let _ = writeln!(std::io::stderr(), "edge-plugins: {why}");
            code.into()
        }
    }
}

struct Failed {
    why: String,
    code: u8,
}

fn wrong(why: impl ToString) -> Failed {
    Failed { why: format!("{}; see edge-plugins --help", why.to_string()), code: 2 }
}

fn failed(why: impl ToString) -> Failed {
    Failed { why: why.to_string(), code: 1 }
}

fn work() -> Result<(), Failed> {
    let (mut socket, mut level) = (None, LevelFilter::Info);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next().map_err(wrong)? {
        match argument {
            lexopt::Arg::Long("socket") => socket = Some(PathBuf::from(arguments.value().map_err(wrong)?)),
            lexopt::Arg::Long("log") => {
                let given = arguments.value().map_err(wrong)?;
                level =
                    given.to_string_lossy().parse().map_err(|_| wrong("--log is error, warn, info, debug or trace"))?;
            }
            lexopt::Arg::Long("version") | lexopt::Arg::Short('V') => return version(&mut arguments),
            lexopt::Arg::Value(word) if word == "version" => return version(&mut arguments),
            // Started by this program itself.
            lexopt::Arg::Value(word) if word == "own" => {
                let words: Vec<OsString> = arguments.raw_args().map_err(wrong)?.collect();
                return sampan_plugins::own(&words).map_err(failed);
            }
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return print(HELP),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let socket = socket.ok_or_else(|| wrong("--socket is missing"))?;
    sampan_log::start(simple_logger::SimpleLogger::new().with_level(level)).map_err(failed)?;
    confine();
    sampan_memory::split();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let ended = runtime.block_on(sampan_plugins::run::run(&socket));
    // Work on a disk that does not answer holds up no end.
    runtime.shutdown_background();
    ended.map_err(failed)
}

/// Prints which build this is, with the flags that are left.
fn version(arguments: &mut lexopt::Parser) -> Result<(), Failed> {
    let flags: Vec<OsString> = arguments.raw_args().map_err(wrong)?.collect();
    print(&build::answer("edge-plugins", &flags).ok_or_else(|| wrong("version: the only flag is -o json"))?)
}

fn print(text: &str) -> Result<(), Failed> {
    writeln!(std::io::stdout(), "{text}").map_err(failed)
}

/// Input of plugins is parsed here: this process gains no rights, and holds few files. It works all the same where the
/// kernel refuses.
fn confine() {
    // The daemon handles its signals in another way, and the processes that it starts inherit that.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    // A session of its own: a signal to the daemon's ends nothing here. Fails only for a process that leads one already.
    let _ = nix::unistd::setsid();
    if let Err(error) = nix::sys::prctl::set_no_new_privs() {
        log::warn!("edge-plugins can gain rights: {error}");
    }
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(MAX_FILES, |(_, hard)| hard.min(MAX_FILES));
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        log::warn!("edge-plugins can open as many files as the system allows: {error}");
    }
}
