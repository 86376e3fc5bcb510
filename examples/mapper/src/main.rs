//! The program `edge-mapper`: arguments in, exit code out.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures::future::{LocalBoxFuture, select_all};
use log::LevelFilter;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sampan_mapper::drivers::Driver;
use sampan_mapper::drivers::gpio::Gpio;
use sampan_mapper::drivers::modbus::Modbus;
use sampan_mapper::drivers::onewire::OneWire;
use sampan_mapper::mapper::{Options, run};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

/// Files and sockets at once, and threads that wait for hardware.
const MAX_FILES: u64 = 1_024;
const MAX_THREADS: usize = 64;

const HELP: &str = "usage: edge-mapper --protocol gpio|onewire|modbus [OPTION]...

Drives devices for a node: reads what they measure, and writes what is desired.

  --protocol PROTOCOL  of the Devices to drive; may be given more than once
  --folder FOLDER      with the node's dmi.sock (/etc/kubeedge); this program's socket comes to be there
  --name NAME          of this mapper, and of its socket (edge-mapper); -PROTOCOL follows
  --onewire FOLDER     where the kernel shows thermometers (/sys/bus/w1/devices)
  --log LEVEL          error, warn, info, debug or trace (info)";

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { why, code }) => {
            // Without stderr an error cannot be reported.
            let _ = writeln!(std::io::stderr(), "edge-mapper: {why}");
            code.into()
        }
    }
}

struct Failed {
    why: String,
    code: u8,
}

fn wrong(why: impl ToString) -> Failed {
    Failed { why: format!("{}; see edge-mapper --help", why.to_string()), code: 2 }
}

fn failed(why: impl ToString) -> Failed {
    Failed { why: why.to_string(), code: 1 }
}

struct Arguments {
    protocols: Vec<String>,
    folder: PathBuf,
    name: String,
    onewire: PathBuf,
}

fn work() -> Result<(), Failed> {
    let mut level = LevelFilter::Info;
    let mut all = Arguments {
        protocols: Vec::new(),
        folder: "/etc/kubeedge".into(),
        name: "edge-mapper".into(),
        onewire: "/sys/bus/w1/devices".into(),
    };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next().map_err(wrong)? {
        let text = |value: std::ffi::OsString| value.into_string().map_err(|_| wrong("an argument is no UTF-8"));
        match argument {
            lexopt::Arg::Long("protocol") => all.protocols.push(text(arguments.value().map_err(wrong)?)?),
            lexopt::Arg::Long("folder") => all.folder = arguments.value().map_err(wrong)?.into(),
            lexopt::Arg::Long("name") => all.name = text(arguments.value().map_err(wrong)?)?,
            lexopt::Arg::Long("onewire") => all.onewire = arguments.value().map_err(wrong)?.into(),
            lexopt::Arg::Long("log") => {
                level = text(arguments.value().map_err(wrong)?)?
                    .parse()
                    .map_err(|_| wrong("--log is error, warn, info, debug or trace"))?;
            }
            lexopt::Arg::Long("version") | lexopt::Arg::Short('V') => {
                return print(concat!("edge-mapper ", env!("CARGO_PKG_VERSION")));
            }
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return print(HELP),
            other => return Err(wrong(other.unexpected())),
        }
    }
    check(&mut all)?;
    sampan_log::start(simple_logger::SimpleLogger::new().with_level(level)).map_err(failed)?;
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(MAX_FILES, |(_, hard)| hard.min(MAX_FILES));
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        log::warn!("as many files as the system allows: {error}");
    }
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(MAX_THREADS).thread_keep_alive(Duration::from_secs(2));
    let runtime = runtime.build().map_err(failed)?;
    let ended = LocalSet::new().block_on(&runtime, serve(&all));
    // Hardware that hangs must not delay the exit.
    runtime.shutdown_background();
    ended
}

fn check(all: &mut Arguments) -> Result<(), Failed> {
    if all.protocols.is_empty() {
        return Err(wrong("--protocol is missing"));
    }
    all.protocols.sort_unstable();
    all.protocols.dedup();
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if all.name.is_empty() || all.name.len() > 64 || !is_plain(&all.name) {
        return Err(wrong("--name has letters, digits, - and _"));
    }
    if !all.folder.is_absolute() {
        return Err(wrong("--folder is an absolute path"));
    }
    Ok(())
}

async fn serve(all: &Arguments) -> Result<(), Failed> {
    let mut mappers: Vec<LocalBoxFuture<'_, std::io::Result<()>>> = Vec::new();
    for protocol in &all.protocols {
        let options = Options { name: format!("{}-{protocol}", all.name), folder: all.folder.clone() };
        mappers.push(match protocol.as_str() {
            Gpio::PROTOCOL => Box::pin(run(options, Gpio::default())),
            OneWire::PROTOCOL => Box::pin(run(options, OneWire::new(all.onewire.clone()))),
            Modbus::PROTOCOL => Box::pin(run(options, Modbus::default())),
            other => return Err(wrong(format!("--protocol {other:?} is not gpio, onewire or modbus"))),
        });
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        (ended, ..) = select_all(mappers) => ended.map_err(failed),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

fn print(text: &str) -> Result<(), Failed> {
    writeln!(std::io::stdout(), "{text}").map_err(failed)
}
