//! A `ConfigUpdateJob` on this node: changes the file completely or not at all, and restores the earlier file if the
//! node does not start with the new one.

use std::collections::BTreeMap;

use edge_runtime::config::{Config, ConfigFile, Overrides, read_text};
use sampan_launcher::config_lock;
use sampan_launcher::versions::Subject;
use sampan_sys::files::unless_missing;

use super::fields;
use super::job::{End, Job};
use super::upgrade::trial_ended;
use crate::upgrade::begin::{What, begin, versions};

pub(super) fn work(job: &mut Job<'_>, wanted: &BTreeMap<String, String>) -> Result<End, String> {
    let versions = versions(job.paths);
    if job.progress.kept().awaits_trial(&versions.read()) {
        return trial_ended(job, &versions, Subject::Configuration, "Update");
    }
    job.check(0)?;
    job.progress.step("BackUp", Ok(()))?;
    let seconds = *job.upgrade_config()?.trial_seconds;
    let _lock = config_lock::take(&job.paths.config_file()).map_err(|error| error.to_string())?;
    let text = match candidate(job, wanted) {
        Ok(Some(text)) => text,
        // It is so already: a restart would be for nothing.
        Ok(None) => return job.progress.step("Update", Ok(())).map(|()| End::Done),
        Err(why) => return job.progress.step("Update", Err(why)).map(|()| End::Done),
    };
    job.progress.on_trial(versions.read())?;
    let uid = &job.order.job.uid;
    match begin(&What::Configuration(&text), seconds, Some(uid), job.paths, &versions) {
        Ok(()) => Ok(End::Later),
        Err(error) => job.progress.step("Update", Err(error.to_string())).map(|()| End::Done),
    }
}

/// The file as it would be; none if nothing would change.
fn candidate(job: &Job<'_>, wanted: &BTreeMap<String, String>) -> Result<Option<String>, String> {
    let file = job.paths.config_file();
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = unless_missing(read_text(&file)).map_err(|error| named(&error))?.unwrap_or_default();
    let Some(text) = fields::changed(&text, wanted)? else { return Ok(None) };
    // The checked text and the written text are identical, byte for byte.
    let text = format!(
        "# Written for ConfigUpdateJob {}; what was here before, comments too: versions/config.before.yaml\n{text}",
        job.order.job.name
    );
    let typed = ConfigFile::parse(&text, &file).map_err(|error| error.to_string())?;
    let overrides = Overrides { joined: Some("node".to_owned()), ..Overrides::default() };
    Config::from_file(typed, &file, job.paths.root(), &overrides).map_err(|error| error.to_string())?;
    Ok(Some(text))
}
