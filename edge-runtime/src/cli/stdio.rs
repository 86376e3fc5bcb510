//! Standard input, output and error of a verb: what it reads, a line that it prints, the log.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::error::CliError;
use crate::sys::from_json::from_json;

/// Most of what is read: a few pull secrets, the looks and questions of all pods.
const LONGEST: u64 = 4 << 20;

/// How a shell shows the end by SIGPIPE.
const NO_READER: u8 = 128 + 13;

/// A line on standard output.
///
/// # Errors
/// Standard output cannot be written. A closed pipe, as after `head`, is not an error.
pub fn print(text: &str) -> Result<(), CliError> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(CliError::Exit(NO_READER)),
        done => Ok(done?),
    }
}

/// What a file holds, or standard input for `-`: other users of the machine can read a command line.
///
/// # Errors
/// It cannot be read.
pub fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let done = match file.as_os_str() == "-" {
        true => std::io::stdin().take(LONGEST).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)),
    };
    done.map_err(|error| CliError::Failed(format!("{}: {error}", file.display())))?;
    Ok(bytes)
}

/// What the daemon asks of a helper.
pub(super) fn read_json<T: DeserializeOwned>() -> Result<T, CliError> {
    Ok(from_json(&read(Path::new("-"))?)?)
}

/// Starts the log on stderr at the level of `EDGE_RUNTIME_LOG` (error, warn, info, debug, trace; info if unset). Feature
/// `no-trace`, which binaries for boards have, leaves trace out.
pub fn start_log() {
    let level = std::env::var("EDGE_RUNTIME_LOG").ok().and_then(|level| level.parse().ok());
    let levels = simple_logger::SimpleLogger::new().with_level(level.unwrap_or(log::LevelFilter::Info));
    // Fails only when a logger is set already, which then stays.
    let _ = sampan_log::start(levels);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_or_login_comes_from_a_file_too() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("token");
        std::fs::write(&path, "smp1.abc\n").expect("written");
        assert_eq!(read(&path).expect("read"), b"smp1.abc\n");
        assert!(matches!(read(&folder.path().join("none")), Err(CliError::Failed(why)) if why.contains("none: ")));
    }
}
