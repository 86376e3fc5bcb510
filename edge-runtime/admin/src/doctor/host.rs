//! What every look needs: which node is meant, its configuration as far as it can be read, and programs of the host, asked
//! within bounds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use edge_runtime::config::{Config, ConfigError, ConfigFile, Overrides};
use edge_runtime::link::identity::Identity;
use edge_runtime::paths::Paths;
use sampan_sys::program;

/// Timeout for a program that reports on itself or on the machine.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: usize = 4 << 20;

pub(crate) struct Host {
    pub(crate) paths: Paths,
    /// The configuration as the daemon reads it; defaults if it cannot be read.
    pub(crate) config: Option<Config>,
    /// The daemon's message about it: why it does not start, or keys that it ignores.
    pub(crate) config_error: Option<ConfigError>,
    pub(crate) left_out: Vec<String>,
}

impl Host {
    pub(crate) fn new(paths: &Paths) -> Self {
        let file = paths.config_file();
        let joined = Identity::load(paths).ok().flatten().map(|identity| identity.node);
        let overrides = Overrides { node_name: None, joined };
        let read = Config::load_lenient(&file, paths.root(), &overrides);
        let (config, config_error, left_out) = match read {
            Ok((config, left_out)) => (Some(config), None, left_out),
            Err(error) => {
                let default = Config::from_file(ConfigFile::default(), &file, paths.root(), &overrides);
                (default.ok(), Some(error), Vec::new())
            }
        };
        Self { paths: paths.clone(), config, config_error, left_out }
    }

    /// Whether this is the node of the machine, whose daemon systemd knows.
    pub(crate) fn is_machine(&self) -> bool {
        self.paths.root() == Path::new("/")
    }
}

/// Returns the output of a program, or a short reason why it failed.
pub(crate) fn ask(program: impl AsRef<Path>, args: &[&str]) -> Result<String, String> {
    let program = program.as_ref();
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C").env("SYSTEMD_PAGER", "");
    let output = program::ask(command, LONGEST, PATIENCE).map_err(|error| format!("{}: {error}", program.display()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{} ended with {}", program.display(), output.status)),
    }
}

/// Where a program is, as the daemon would find it.
pub(crate) fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.exists().then(|| program.to_path_buf());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Content of a kernel file; empty if it does not exist.
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The number behind `key` in lines of `key: value`.
pub(crate) fn number(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.trim_start_matches(':').split_ascii_whitespace().next()?.parse().ok()
}
