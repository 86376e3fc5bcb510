//! The Container Device Interface: names of devices become changes of a container, as files of the device's vendor say
//! (<https://github.com/cncf-tags/container-device-interface>, `SPEC.md`). Only JSON is read.
//!
//! | file | owns |
//! |---|---|
//! | `spec` | one specification: no I/O |
//! | `files` | the folders with specifications |
//! | `resolve` | names to changes: no I/O |

mod files;
mod resolve;
mod spec;

use std::path::PathBuf;

use crate::edits::Source;

/// Changes by these devices, in order. Reads the folders, so that a device of a moment ago is found.
///
/// # Errors
/// A device does not exist, or its specification cannot be used; the text names the device, and the file.
pub(crate) fn resolve(folders: &[PathBuf], names: &[&str]) -> Result<Vec<Source>, String> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    resolve::resolve(&files::read(folders), names)
}
