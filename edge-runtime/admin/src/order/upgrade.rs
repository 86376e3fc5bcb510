//! A `NodeUpgradeJob` on this node: the programs come as an image, and are in force when the launcher has found them good.

use edge_protocol::message::Work;
use sampan_launcher::versions::{Ended, State, Subject, Versions};

use super::job::{End, Job};
use crate::upgrade::age::compare;
use crate::upgrade::begin::{What, begin, versions, wait};
use crate::upgrade::check::architecture;
use crate::upgrade::{image, signature};

/// What programs take on the disk, compressed and unpacked.
const BYTES: u64 = 32 << 20;
/// Seconds between two words of a trial.
const WORD: u64 = 60;
const OWN: &str = env!("CARGO_PKG_VERSION");

pub(super) fn work(job: &mut Job<'_>) -> Result<End, String> {
    let order = job.order;
    let Work::Upgrade { version, image: name, digests, signatures } = &order.work else { return Ok(End::Done) };
    let versions = versions(job.paths);
    if job.progress.kept().awaits_trial(&versions.read()) {
        return trial_ended(job, &versions, Subject::Programs, "Upgrade");
    }
    job.progress.versions(&in_force(&versions.read()), "");
    job.check(BYTES)?;
    if !job.is_confirmed() || !job.is_window_open()? {
        return Ok(End::Later);
    }
    // The version that runs stays where it is.
    job.progress.step("BackUp", Ok(()))?;
    let here = architecture();
    let begun = digests.get(here).ok_or_else(|| format!("the job names no image for {here}")).and_then(|digest| {
        let reference = format!("{name}@{digest}");
        let config = job.upgrade_config()?;
        image::digest_of(&reference).map_err(|error| error.to_string())?;
        signature::verify(&config.keys, digest, signatures.get(here).map(String::as_str))
            .map_err(|error| error.to_string())?;
        let arrived = image::fetch(&reference, job.left()?, job.paths, &versions).map_err(|error| error.to_string())?;
        let installed = arrived.install(job.paths, &versions).map_err(|error| error.to_string())?;
        let holds = &installed.manifest.version;
        if holds.trim_start_matches('v') != version.trim_start_matches('v') {
            return Err(format!("the image holds version {holds}, the job names {version}"));
        }
        match too_old(!config.keys.is_empty(), holds, without_digest(&versions.read())) {
            Some(why) => Err(why),
            None => Ok((installed, *config.trial_seconds)),
        }
    });
    let (installed, seconds) = match begun {
        Ok(begun) => begun,
        Err(why) => return job.progress.step("Upgrade", Err(why)).map(|()| End::Done),
    };
    let historic = in_force(&versions.read());
    job.progress.versions(&installed.name, &historic);
    job.progress.on_trial(versions.read())?;
    let uid = &job.order.job.uid;
    match begin(&What::Programs(&installed.name), seconds, Some(uid), job.paths, &versions) {
        Ok(()) => Ok(End::Later),
        Err(error) => {
            job.progress.versions(&historic, "");
            job.progress.step("Upgrade", Err(error.to_string())).map(|()| End::Done)
        }
    }
}

/// Waits for the launcher's word, and passes it on.
pub(super) fn trial_ended(
    job: &mut Job<'_>,
    versions: &Versions,
    subject: Subject,
    action: &str,
) -> Result<End, String> {
    let uid = job.order.job.uid.clone();
    let is_its = |ended: &Ended| ended.job.as_deref() == Some(&*uid) && ended.subject == subject;
    // The bridge gives up an order whose state does not change within the job's timeout.
    let mut said = u64::MAX;
    let ended = wait(versions, &mut |left| {
        if said.saturating_sub(left) >= WORD {
            said = left;
            job.progress.wait_because(&format!("on trial, {left} s are left"));
        }
    });
    let ended = ended.map_err(|error| error.to_string())?;
    if subject == Subject::Programs {
        let historic = job.progress.kept().status.historic_version.clone();
        job.progress.versions(&in_force(&versions.read()), &historic);
    }
    match ended.filter(is_its) {
        Some(ended) if ended.good => job.progress.step(action, Ok(())).map(|()| End::Done),
        Some(ended) => {
            let failed = job.progress.step(action, Err(ended.reason));
            job.progress.step("RollBack", Ok(()))?;
            failed.map(|()| End::Done)
        }
        // A user has activated another version by hand.
        None => Err("the trial ended without a word: what was before is in force, or what came by hand".to_owned()),
    }
}

/// Why a job may not install version `holds` where `runs` is active; `None` if it may. A signature does not expire: with an
/// old one a job could bring back a vulnerable version.
fn too_old(has_keys: bool, holds: &str, runs: &str) -> Option<String> {
    let is_older = has_keys && compare(holds, runs).is_lt();
    is_older.then(|| {
        format!(
            "version {holds} is older than {runs}, which runs here: where upgrade.keys are set a job cannot bring back \
             an older version; use edge-runtime upgrade on the node"
        )
    })
}

/// Version in force as its manifest has it: a folder's name ends in a part of the digest.
fn without_digest(state: &State) -> &str {
    let name = state.current.as_deref().and_then(|name| name.rsplit_once('-'));
    name.map_or(OWN, |(version, _)| version)
}

fn in_force(state: &State) -> String {
    state.current.clone().unwrap_or_else(|| OWN.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_version_is_named_as_its_manifest_names_it() {
        let state = |current: &str| State { current: Some(current.into()), ..State::default() };
        assert_eq!(without_digest(&state("0.1.2-rc1-0123456789ab")), "0.1.2-rc1");
        assert_eq!(without_digest(&State::default()), OWN);
    }

    #[test]
    fn signed_job_brings_back_no_older_version() {
        assert_eq!(too_old(true, "0.2.0", "0.1.9"), None);
        assert_eq!(too_old(true, "v0.1.9", "0.1.9"), None, "the same again");
        assert_eq!(too_old(false, "0.1.0", "0.1.9"), None, "without keys any version may come");
        let why = too_old(true, "0.1.0~rc1", "0.1.0").unwrap();
        assert!(why.contains("older than 0.1.0,"), "{why}");
    }
}
