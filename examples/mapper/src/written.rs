//! Desired values that were written to hardware, so that each is written once: a file beside the mapper's socket,
//! changed only after a write.
//!
//! It is valid while the system runs. After a reboot of the board it is unknown what the hardware has kept: then a
//! value is read before it is written.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::once::Once;
use crate::plan::Id;

const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Longest file that is read: more than all values of all devices.
const LONGEST: u64 = 16 << 20;

type Values = BTreeMap<Id, BTreeMap<String, String>>;

#[derive(Debug)]
pub struct Written {
    path: PathBuf,
    boot: String,
    values: RefCell<Values>,
    /// One write of the file at a time, so that the newest is the last one.
    file: Mutex<Once>,
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text).map(|_| text)
}

fn values(text: &str, boot: &str) -> Option<Values> {
    let all: Value = serde_json::from_str(text).ok()?;
    if all["boot"].as_str()? != boot {
        return None;
    }
    let device = |(id, held): (&String, &Value)| {
        let (namespace, name) = id.split_once('/')?;
        let text = |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.to_owned()));
        let held = held.as_object()?.iter().filter_map(text).collect();
        Some((Id { namespace: namespace.to_owned(), name: name.to_owned() }, held))
    };
    Some(all["devices"].as_object()?.iter().filter_map(device).collect())
}

impl Written {
    /// `keeps`: hardware keeps its values when a mapper restarts.
    #[must_use]
    pub fn load(path: PathBuf, keeps: bool) -> Self {
        let boot = read(BOOT.as_ref()).unwrap_or_default().trim().to_owned();
        let held = if keeps { read(&path).ok().and_then(|text| values(&text, &boot)) } else { None };
        Self { path, boot, values: RefCell::new(held.unwrap_or_default()), file: Mutex::default() }
    }

    /// The last value that was written.
    #[must_use]
    pub fn get(&self, id: &Id, property: &str) -> Option<String> {
        self.values.borrow().get(id)?.get(property).cloned()
    }

    /// It is on the medium when this is over.
    pub async fn put(&self, id: &Id, property: &str, value: &str) {
        self.values.borrow_mut().entry(id.clone()).or_default().insert(property.to_owned(), value.to_owned());
        self.save().await;
    }

    /// The desired value was removed: the next one is written, even if it is the same.
    pub async fn forget(&self, id: &Id, property: &str) {
        let gone = self.values.borrow_mut().get_mut(id).and_then(|held| held.remove(property));
        if gone.is_some() {
            self.save().await;
        }
    }

    /// Forgets devices that are not in `are`.
    pub async fn retain(&self, are: impl Fn(&Id) -> bool) {
        let before = self.values.borrow().len();
        self.values.borrow_mut().retain(|id, _| are(id));
        if self.values.borrow().len() != before {
            self.save().await;
        }
    }

    fn text(&self) -> String {
        let values = self.values.borrow();
        let held = values.iter().filter(|(_, held)| !held.is_empty());
        let devices: serde_json::Map<String, Value> = held.map(|(id, held)| (id.to_string(), json!(held))).collect();
        json!({ "boot": self.boot, "devices": devices }).to_string()
    }

    async fn save(&self) {
        let mut once = self.file.lock().await;
        let text = self.text();
        let path = self.path.clone();
        let saved = tokio::task::spawn_blocking(move || replace(&path, &text)).await;
        let saved = saved.unwrap_or_else(|error| Err(io::Error::other(error)));
        match saved {
            Ok(()) => once.over(&self.path.display(), "what was written"),
            Err(error) => once.warn(&self.path.display(), "what was written", &error.to_string()),
        }
    }
}

/// Replaces the file atomically, also on a power cut.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> Id {
        Id { namespace: "default".into(), name: "t1".into() }
    }

    fn run(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work);
    }

    #[test]
    fn written_values_are_known_to_the_next_process() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("m.written");
        run(async {
            let written = Written::load(path.clone(), true);
            assert_eq!(written.get(&id(), "led"), None);
            written.put(&id(), "led", "ON").await;
            written.put(&id(), "fan", "7").await;
            written.forget(&id(), "fan").await;
            let next = Written::load(path.clone(), true);
            assert_eq!((next.get(&id(), "led").as_deref(), next.get(&id(), "fan")), (Some("ON"), None));
            // Lines of a chip are let go with the process.
            assert_eq!(Written::load(path.clone(), false).get(&id(), "led"), None);
            next.retain(|_| false).await;
            assert_eq!(Written::load(path.clone(), true).get(&id(), "led"), None);
        });
    }

    #[test]
    fn another_boot_and_a_broken_file_know_nothing() {
        let text = r#"{"boot":"b","devices":{"default/t1":{"led":"ON","odd":7},"odd":{"a":"b"},"a/b":7}}"#;
        let held = values(text, "b").expect("of this boot");
        assert_eq!(held, [(id(), [("led".to_owned(), "ON".to_owned())].into())].into());
        for (text, boot) in [(text, "c"), ("", "b"), ("[]", "b"), (r#"{"boot":"b"}"#, "b"), (&text[..40], "b")] {
            assert_eq!(values(text, boot), None, "{text}");
        }
    }
}
