//! `edge-runtime upgrade`: another version of these programs, from a file or an image.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::config::ConfigFile;
use edge_runtime::paths::Paths;
use sampan_duration::Typed;
use sampan_launcher::start::use_packaged;
use sampan_launcher::versions::{Ended, State, Versions};

use crate::output::{Form, JSON, OUTPUT};
use crate::progress::print::beside;
use crate::takes;
use crate::upgrade::begin::{What, begin, give_up, versions, wait};
use crate::upgrade::{Installed, bundle, image, signature};

/// Bytes of a signature and what is around it.
const MAX_SIGNATURE: u64 = 4 << 10;
/// Timeout for pulling an image, over any line.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

pub(super) const VERB: Verb = Verb {
    name: "upgrade",
    about: "Run another version of these programs on trial",
    operands: Operands::Words("[FILE|IMAGE@DIGEST]"),
    flags: &[
        Flag::value("signature", "FILE", "base64 of an Ed25519 signature over the digest (default FILE.sig)"),
        Flag::value("trial", "DURATION", "duration of the trial (default upgrade.trial-seconds)"),
        Flag::switch("back", "return to the version before; ends a trial"),
        Flag::switch("status", "show the version in force and the last trial"),
        Flag::switch("no-wait", "do not wait for the end of the trial"),
        OUTPUT,
        JSON,
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    if given.operands.len() + usize::from(given.has("back")) + usize::from(given.has("status")) > 1 {
        return Err(CliError::Usage("upgrade takes one of FILE, IMAGE@DIGEST, --back and --status".to_owned()));
    }
    let (what, used): (_, &[&str]) = match (given.has("status"), given.has("back")) {
        (true, _) => ("upgrade --status", &["status", "output", "json"]),
        (_, true) => ("upgrade --back", &["back", "trial", "no-wait"]),
        _ => ("upgrade FILE or IMAGE@DIGEST", &["signature", "trial", "no-wait"]),
    };
    takes::only(&given, VERB.flags, what, used)?;
    let paths = given.paths()?;
    let versions = versions(&paths);
    if given.has("status") {
        return status(&versions.read(), Form::of(&given)?);
    }
    let config = ConfigFile::read(&paths.config_file())?.upgrade;
    let seconds = given.one::<Typed>("trial")?.map_or(*config.trial_seconds, |typed| typed.0.as_secs());
    let mut installed = None;
    let name = match given.operands.first() {
        None if given.has("back") => {
            if give_up(&versions, "ended by hand")? {
                return print("the trial is over: what was there before is in force");
            }
            match before(&versions.read())? {
                Some(name) => name,
                None => return packaged(&versions),
            }
        }
        None => return Err(CliError::Usage("upgrade needs a FILE or an IMAGE@DIGEST".to_owned())),
        Some(source) => {
            let source = source.to_string_lossy();
            let said = given.path("signature").map(|file| read(&file)).transpose()?;
            let here = arrive(&source, said, &config.keys, &paths, &versions)?;
            installed.insert(here).name.clone()
        }
    };
    begin(&What::Programs(&name), seconds, None, &paths, &versions)?;
    drop(installed);
    print(&format!("version {name} is on trial for {seconds} s"))?;
    if given.has("no-wait") { Ok(()) } else { follow(&versions) }
}

/// What there is to come, once it is here.
fn arrive(
    source: &str,
    signed: Option<String>,
    keys: &[String],
    paths: &Paths,
    versions: &Versions,
) -> Result<Installed, CliError> {
    let file = Path::new(source);
    let arrived = if file.exists() {
        let beside = Path::new(&format!("{source}.sig")).to_path_buf();
        let signed =
            signed.map_or_else(|| beside.exists().then(|| read(&beside)).transpose(), |text| Ok(Some(text)))?;
        let arrived = bundle::unpack(file, versions)?;
        signature::verify(keys, &arrived.digest, signed.as_deref())?;
        arrived
    } else if source.contains('@') {
        // Before anything is fetched.
        signature::verify(keys, image::digest_of(source)?, signed.as_deref())?;
        beside(paths, source, || image::fetch(source, PATIENCE, paths, versions))?
    } else {
        return Err(CliError::Failed(format!("{source}: no such file, and no image with a digest (NAME@sha256:...)")));
    };
    Ok(arrived.install(paths, versions)?)
}

fn read(file: &Path) -> Result<String, CliError> {
    sampan_file::read_text(file, MAX_SIGNATURE)
        .map_err(|error| CliError::Failed(format!("{}: {error}", file.display())))
}

/// The version to go back to; none: the package's.
fn before(state: &State) -> Result<Option<String>, CliError> {
    if state.current.is_none() {
        return Err(CliError::Failed("the package's version is in force: there is none before it".to_owned()));
    }
    Ok(state.last.as_ref().filter(|last| last.good && last.version == state.current).and_then(|last| last.from.clone()))
}

/// What the package has brought needs no trial.
fn packaged(versions: &Versions) -> Result<(), CliError> {
    use_packaged(versions)?;
    if let Some(daemon) = sampan_launcher::main_process::MainProcess::find(versions) {
        daemon.end();
    }
    print("the package's version is in force")
}

fn follow(versions: &Versions) -> Result<(), CliError> {
    let mut last = u64::MAX;
    let ended = wait(versions, &mut |left| {
        // Once in half a minute: this may go to a log.
        if last.saturating_sub(left) >= 30 || last == u64::MAX {
            last = left;
            let _ = writeln!(std::io::stderr(), "{left} s of the trial are left");
        }
    })?;
    match ended {
        Some(Ended { good: true, version, .. }) => {
            print(&format!("version {} is in force", version.as_deref().unwrap_or("of the package")))
        }
        Some(Ended { reason, from, .. }) => Err(CliError::Failed(format!(
            "version {} is in force again: {reason}",
            from.as_deref().unwrap_or("of the package")
        ))),
        None => Err(CliError::Failed("nothing is known of the trial any more".to_owned())),
    }
}

fn status(state: &State, form: Form) -> Result<(), CliError> {
    form.print(state, |_| table(state), || vec![shown(state.current.as_deref()).to_owned()])
}

fn shown(version: Option<&str>) -> &str {
    version.unwrap_or("of the package")
}

fn table(state: &State) -> String {
    let mut out = format!("in force    {}\n", shown(state.current.as_deref()));
    if let Some(trial) = &state.trial {
        out.push_str(&format!("on trial    for {} s, started {} times\n", trial.seconds, trial.starts));
    }
    match &state.last {
        Some(last) if last.good => out.push_str(&format!("last trial  {} stayed\n", shown(last.version.as_deref()))),
        Some(last) => {
            out.push_str(&format!("last trial  {} did not stay: {}\n", shown(last.version.as_deref()), last.reason))
        }
        None => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thing_is_asked_at_once() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().to_str().unwrap();
        for words in [["a.tar", "b.tar"], ["a.tar", "--back"], ["--status", "--back"]] {
            let words = words.into_iter().chain(["--root", root]);
            let refused = run(VERB.parse(lexopt::Parser::from_args(words)).unwrap());
            assert!(matches!(refused, Err(CliError::Usage(why)) if why.contains("one of")));
        }
    }
}
