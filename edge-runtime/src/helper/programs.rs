//! The helpers that there are. A new one needs a line here: `reset` and the metrics go by this list.

use std::path::PathBuf;

use crate::counters::{self, Counter};
use crate::paths::Paths;
use crate::sys::helper;

/// Line that a helper answers.
pub(super) const PING: &[u8] = b"{\"ping\":{}}\n";
/// Line at which a helper ends.
const END: &[u8] = b"{\"end\":{}}\n";

/// A helper's program, and where it listens.
pub struct Program {
    /// Name of its file.
    pub name: &'static str,
    /// Its name in metrics.
    pub label: &'static str,
    /// Its name in messages.
    pub called: &'static str,
    /// Version of the protocol; a helper with another one is replaced.
    pub version: u32,
    /// Longest line in either direction, bytes without the line feed.
    pub max_line: usize,
    pub socket: fn(&Paths) -> PathBuf,
    /// How often it had ended unasked.
    pub lost: &'static Counter,
}

pub static DEVICES: Program = Program {
    name: "edge-devices",
    label: "devices",
    called: "the helper for devices",
    version: sampan_devices_control::VERSION,
    max_line: sampan_devices_control::MAX_LINE,
    socket: Paths::devices,
    lost: &counters::LOST_DEVICES,
};

pub static API: Program = Program {
    name: "edge-api",
    label: "api",
    called: "edge-api",
    version: sampan_api_control::VERSION,
    max_line: sampan_api_control::MAX_LINE,
    socket: Paths::api_socket,
    lost: &counters::LOST_API,
};

pub static PLUGINS: Program = Program {
    name: "edge-plugins",
    label: "plugins",
    called: "edge-plugins",
    version: sampan_plugins_control::VERSION,
    max_line: sampan_plugins_control::MAX_LINE,
    socket: Paths::plugins_socket,
    lost: &counters::LOST_PLUGINS,
};

pub static ALL: [&Program; 3] = [&DEVICES, &API, &PLUGINS];

impl Program {
    /// Returns the path of the program: beside the daemon's, also when that was replaced while it runs.
    pub fn path(&self) -> PathBuf {
        let own = std::env::current_exe().unwrap_or_default();
        own.with_file_name(self.name)
    }

    /// Ends a helper that an earlier daemon has left; no error without one.
    pub fn end(&self, paths: &Paths) {
        helper::end(&(self.socket)(paths), END);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use sampan_devices_control::{FromHelper, ToHelper};

    use super::*;
    use crate::helper::lines::{check_greeting, line};

    #[test]
    fn helpers_share_no_name_and_no_socket() {
        let paths = Paths::new(Path::new("/srv/node"));
        let of = |each: &dyn Fn(&Program) -> String| ALL.iter().map(|one| each(one)).collect::<BTreeSet<_>>().len();
        assert_eq!(of(&|one| one.name.to_owned()), ALL.len());
        assert_eq!(of(&|one| one.label.to_owned()), ALL.len());
        assert_eq!(of(&|one| (one.socket)(&paths).display().to_string()), ALL.len());
        assert!(ALL.iter().all(|one| one.path().ends_with(one.name)));
    }

    #[test]
    fn common_lines_are_those_of_each_protocol() {
        assert_eq!(line(&ToHelper::Ping {}), PING);
        assert_eq!(line(&ToHelper::End {}), END);
        assert!(check_greeting(&line(&FromHelper::Hello { version: DEVICES.version }), DEVICES.version).is_ok());
        assert_eq!(line(&sampan_api_control::ToHelper::Ping {}), PING);
        assert_eq!(line(&sampan_api_control::ToHelper::End {}), END);
        let hello = sampan_api_control::FromHelper::Hello { version: API.version };
        assert!(check_greeting(&line(&hello), API.version).is_ok());
        assert_eq!(line(&sampan_plugins_control::ToHelper::Ping {}), PING);
        assert_eq!(line(&sampan_plugins_control::ToHelper::End {}), END);
        let hello = sampan_plugins_control::FromHelper::Hello { version: PLUGINS.version };
        assert!(check_greeting(&line(&hello), PLUGINS.version).is_ok());
    }
}
