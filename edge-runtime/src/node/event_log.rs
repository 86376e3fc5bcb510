//! The last events of this boot, for `edge-runtime events`: lines of JSON below `/run`, which is not on a disk. The
//! outbox drops an event after the bridge has it; here a few hundred stay.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;

use crate::paths::Paths;

/// Maximum size of each of the two files, in bytes. An event has some 600 bytes.
const LONGEST: u64 = 64 << 10;

pub(super) struct EventLog {
    file: PathBuf,
    old: PathBuf,
}

impl EventLog {
    pub(super) fn new(paths: &Paths) -> Self {
        Self { file: paths.events(), old: paths.old_events() }
    }

    /// That it cannot be written must not stop the node.
    pub(super) fn add(&self, event: &Value) {
        if let Err(error) = self.append(event) {
            log::debug!("{}: {error}", self.file.display());
        }
    }

    fn append(&self, event: &Value) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let mut file = File::options().create(true).append(true).open(&self.file)?;
        if file.metadata()?.len() >= LONGEST {
            std::fs::rename(&self.file, &self.old)?;
            file = File::options().create(true).append(true).open(&self.file)?;
        }
        // At once, so that a reader finds whole lines.
        file.write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_are_there_and_there_are_not_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::new(folder.path());
        let log = EventLog::new(&paths);
        log.add(&json!({"lost": "there is no folder yet"}));
        std::fs::create_dir_all(paths.run()).unwrap();
        for number in 0..2000 {
            log.add(&json!({"number": number, "message": "x".repeat(300)}));
        }
        let read = |path| std::fs::read_to_string(path).unwrap();
        let (old, new) = (read(paths.old_events()), read(paths.events()));
        assert!(old.len() as u64 + (new.len() as u64) < 2 * LONGEST + 1000);
        let numbers: Vec<u64> = [old, new]
            .concat()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap())
            .collect();
        assert!(numbers.len() >= 200 && numbers.last() == Some(&1999));
        assert!(numbers.windows(2).all(|two| two[0] + 1 == two[1]), "none is missing among them");
    }
}
