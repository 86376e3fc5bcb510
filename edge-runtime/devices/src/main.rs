//! The program `edge-devices`: arguments in, exit code out. Started by the daemon, not by people.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use edge_protocol::build;
use log::LevelFilter;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use sampan_devices_control::{Settings, WRONG_SETTINGS};

/// Files and sockets at once.
const MAX_FILES: rlim_t = 512;

/// Bytes of the settings.
const MAX_SETTINGS: u64 = 1 << 20;

const HELP: &str = "usage: edge-devices --socket PATH [--log LEVEL]
       edge-devices --check-settings < SETTINGS
       edge-devices version [-o json]

Speaks with devices for a node. Started by edge-runtime, which calls at the socket.";

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { why, code }) => {
            // Nothing is left to do when even stderr is gone.
            let by = if code == WRONG_SETTINGS { "" } else { "edge-devices: " };
            let _ = writeln!(std::io::stderr(), "{by}{why}");
            code.into()
        }
    }
}

struct Failed {
    why: String,
    code: u8,
}

fn wrong(why: impl ToString) -> Failed {
    Failed { why: format!("{}; see edge-devices --help", why.to_string()), code: 2 }
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
            lexopt::Arg::Long("check-settings") => return check_settings(),
            lexopt::Arg::Long("version") | lexopt::Arg::Short('V') => return version(&mut arguments),
            lexopt::Arg::Value(word) if word == "version" => return version(&mut arguments),
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return print(HELP),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let socket = socket.ok_or_else(|| wrong("--socket is missing"))?;
    sampan_log::start(simple_logger::SimpleLogger::new().with_level(level)).map_err(failed)?;
    confine();
    // What goes on while devices only report is a quarter of the code, spread over all of it.
    sampan_memory::split();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let ended = runtime.block_on(sampan_devices::run::run(&socket)).map_err(failed);
    // A name lookup in progress, or a file that hangs, must not delay the exit.
    runtime.shutdown_background();
    ended
}

/// Prints which build this is, with the flags that are left.
fn version(arguments: &mut lexopt::Parser) -> Result<(), Failed> {
    let flags: Vec<OsString> = arguments.raw_args().map_err(wrong)?.collect();
    print(&build::answer("edge-devices", &flags).ok_or_else(|| wrong("version: the only flag is -o json"))?)
}

/// Checks the section for the daemon, which does not know its content.
fn check_settings() -> Result<(), Failed> {
    let mut text = Vec::new();
    std::io::stdin().take(MAX_SETTINGS).read_to_end(&mut text).map_err(failed)?;
    let typed = serde_json::from_slice(&text).map_err(failed)?;
    match Settings::read(&typed) {
        Ok(read) => print(&serde_json::to_string(&read).map_err(failed)?),
        Err(why) => Err(Failed { why, code: WRONG_SETTINGS }),
    }
}

fn print(text: &str) -> Result<(), Failed> {
    writeln!(std::io::stdout(), "{text}").map_err(failed)
}

/// What strangers say is read here: nothing that this process could start gets more rights than it, and it holds few files. It
/// works all the same where the kernel refuses.
fn confine() {
    // The daemon takes its signals otherwise, and what it starts inherits that.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    // A session of its own: what ends the daemon's ends nothing here. Fails only for one that leads one already.
    let _ = nix::unistd::setsid();
    if let Err(error) = nix::sys::prctl::set_no_new_privs() {
        log::warn!("rights may be gained: {error}");
    }
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(MAX_FILES, |(_, hard)| hard.min(MAX_FILES));
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        log::warn!("as many files as the system allows: {error}");
    }
}
