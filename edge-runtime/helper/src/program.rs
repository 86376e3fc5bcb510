//! A helper as a program: arguments in, exit code out.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use edge_protocol::build;
use lexopt::Arg;
use log::LevelFilter;
use nix::sys::resource::rlim_t;
use simple_logger::SimpleLogger;

use crate::confine::confine;

/// A helper's program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of its file.
    pub name: &'static str,
    /// Answer to `--help`.
    pub help: &'static str,
    /// Files and sockets at once.
    pub max_files: rlim_t,
    /// Its own flags.
    pub jobs: &'static [Job],
}

/// A flag, without its dashes, with which the program does something else than to serve.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub flag: &'static str,
    /// Returns what is printed.
    pub run: fn() -> Result<String, Failed>,
}

/// Why the program ends, and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed {
    why: String,
    code: u8,
    /// The name of the program is printed before the reason.
    is_named: bool,
}

impl Failed {
    /// Exit code 1.
    pub fn new(why: impl ToString) -> Self {
        Self { why: why.to_string(), code: 1, is_named: true }
    }

    /// An answer for the daemon: the text alone is printed.
    #[must_use]
    pub const fn answer(why: String, code: u8) -> Self {
        Self { why, code, is_named: false }
    }
}

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Serve { socket: PathBuf, level: LevelFilter },
    Print(String),
}

impl Program {
    /// Serves at the socket that the arguments of the process name, until `serve` ends.
    pub fn main<F: Future<Output = io::Result<()>>>(&self, serve: impl FnOnce(PathBuf) -> F) -> ExitCode {
        match self.work(serve) {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failed { why, code, is_named }) => {
                let (name, colon) = if is_named { (self.name, ": ") } else { ("", "") };
                // Nothing is left to do when even stderr is gone.
                let _ = writeln!(io::stderr(), "{name}{colon}{why}");
                code.into()
            }
        }
    }

    fn work<F: Future<Output = io::Result<()>>>(&self, serve: impl FnOnce(PathBuf) -> F) -> Result<(), Failed> {
        let (socket, level) = match self.asked(lexopt::Parser::from_env())? {
            Asked::Serve { socket, level } => (socket, level),
            Asked::Print(text) => return writeln!(io::stdout(), "{text}").map_err(Failed::new),
        };
        sampan_log::start(SimpleLogger::new().with_level(level)).map_err(Failed::new)?;
        confine(self.name, self.max_files);
        // What runs all the time is a small part of the code, spread over all of it.
        sampan_memory::split();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::new)?;
        let ended = runtime.block_on(serve(socket)).map_err(Failed::new);
        // A name lookup in progress, or a file that hangs, must not delay the exit.
        runtime.shutdown_background();
        ended
    }

    fn asked(&self, mut arguments: lexopt::Parser) -> Result<Asked, Failed> {
        let (mut socket, mut level) = (None, LevelFilter::Info);
        while let Some(argument) = arguments.next().map_err(|why| self.wrong(why))? {
            match argument {
                Arg::Long("socket") => {
                    socket = Some(PathBuf::from(arguments.value().map_err(|why| self.wrong(why))?));
                }
                Arg::Long("log") => {
                    let given = arguments.value().map_err(|why| self.wrong(why))?;
                    let known = given.to_string_lossy().parse();
                    level = known.map_err(|_| self.wrong("--log is error, warn, info, debug or trace"))?;
                }
                Arg::Long("version") | Arg::Short('V') => return self.version(&mut arguments),
                Arg::Value(word) if word == "version" => return self.version(&mut arguments),
                Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Print(self.help.to_owned())),
                other => return self.job(other),
            }
        }
        let socket = socket.ok_or_else(|| self.wrong("--socket is missing"))?;
        Ok(Asked::Serve { socket, level })
    }

    /// Does what only this helper has a flag for.
    fn job(&self, argument: Arg<'_>) -> Result<Asked, Failed> {
        let job = self.jobs.iter().find(|job| argument == Arg::Long(job.flag));
        let job = job.ok_or_else(|| self.wrong(argument.unexpected()))?;
        (job.run)().map(Asked::Print)
    }

    /// Says which build this is, with the flags that are left.
    fn version(&self, arguments: &mut lexopt::Parser) -> Result<Asked, Failed> {
        let flags: Vec<OsString> = arguments.raw_args().map_err(|why| self.wrong(why))?.collect();
        let text = build::answer(self.name, &flags).ok_or_else(|| self.wrong("version: the only flag is -o json"))?;
        Ok(Asked::Print(text))
    }

    fn wrong(&self, why: impl ToString) -> Failed {
        Failed { why: format!("{}; see {} --help", why.to_string(), self.name), code: 2, is_named: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        name: "edge-x",
        help: "usage: edge-x",
        max_files: 8,
        jobs: &[Job { flag: "check", run: || Err(Failed::answer("two words".to_owned(), 3)) }],
    };

    fn asked(line: &str) -> Result<Asked, Failed> {
        PROGRAM.asked(lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn socket_and_level_are_read() {
        let serve = |level| Ok(Asked::Serve { socket: "/run/x.sock".into(), level });
        assert_eq!(asked("--socket /run/x.sock"), serve(LevelFilter::Info));
        assert_eq!(asked("--log debug --socket=/run/x.sock"), serve(LevelFilter::Debug));
    }

    #[test]
    fn version_and_help_are_printed() {
        for line in ["version", "--version", "-V"] {
            assert_eq!(asked(line), Ok(Asked::Print(build::line("edge-x"))), "{line}");
        }
        assert_eq!(asked("version -o json"), Ok(Asked::Print(build::json("edge-x"))));
        assert_eq!(asked("--log debug --help"), Ok(Asked::Print("usage: edge-x".to_owned())));
    }

    #[test]
    fn wrong_arguments_name_the_help() {
        for (line, why) in [
            ("", "--socket is missing"),
            ("--log debug", "--socket is missing"),
            ("--log loud", "--log is error, warn, info, debug or trace"),
            ("version -o yaml", "version: the only flag is -o json"),
            ("--chec", "invalid option '--chec'"),
            ("run", "unexpected argument \"run\""),
        ] {
            let failed = asked(line).expect_err(line);
            assert_eq!((failed.code, failed.is_named), (2, true), "{line}");
            assert_eq!(failed.why, format!("{why}; see edge-x --help"), "{line}");
        }
    }

    #[test]
    fn own_flag_decides_the_exit_code() {
        let answer = Failed { why: "two words".to_owned(), code: 3, is_named: false };
        assert_eq!(asked("--check"), Err(answer));
    }
}
