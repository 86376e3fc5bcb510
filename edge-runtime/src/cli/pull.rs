//! `edge-runtime pull IMAGE`: fetches an image. Also the helper process of the daemon (`--helper`), which gets its
//! request by standard input and answers with a line of JSON, after lines that tell its progress.

use std::cell::RefCell;
use std::time::Instant;

use super::admin::Progress as Shown;
use super::error::CliError;
use super::stdio::{print, read, read_json, start_log};
use super::verb::{Flag, Given, Operands, Verb};
use crate::config::ConfigFile;
use crate::image::auth::Keyring;
use crate::image::helper::Helper;
use crate::image::platform::Wanted;
use crate::image::progress::{Pace, Progress};
use crate::image::pull::Pull;
use crate::image::registry_config::registry_for;
use crate::image::spawn::{Answer, Request};
use crate::image::{ImageError, Reference};
use crate::net::proxy::Use;
use crate::paths::Paths;
use crate::store::image_record::ImageRecord;

/// Bytes of a file with logins.
const MAX_LOGINS: u64 = 1 << 20;

pub(super) const VERB: Verb = Verb {
    name: "pull",
    about: "Pull an image",
    // `edge-admin` has the words of these.
    operands: Operands::One("IMAGE"),
    flags: &[
        Flag::value("auth", "FILE", ""),
        Flag::switch("quiet", ""),
        Flag::switch("helper", ""),
        Flag::switch("check", ""),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let (image, auth) = (given.operand()?, given.path("auth"));
    start_log();
    let paths = given.paths()?;
    if given.has("helper") {
        return answer(&paths, &image, given.has("check"));
    }
    let config = ConfigFile::read(&paths.config_file())?;
    let auth = auth.as_deref().map(read).transpose()?.map(String::from_utf8).transpose()?;
    let request = Request {
        auth,
        secrets: Vec::new(),
        registries: config.registry,
        auth_file: config.pull.auth_file,
        bytes_per_second: config.pull.bytes_per_second,
        proxy: config.proxy.of(Use::Pull),
    };
    let progress = (!given.has("quiet")).then(|| Shown::show(&paths, image.as_ref()));
    let record = pull(&paths, &image, &request, &|_| {});
    drop(progress);
    let record = record?;
    print(&format!("{image} {}", record.id))
}

/// The contract with `image::spawn`: whatever happens, the last line says it.
fn answer(paths: &Paths, image: &str, only_check: bool) -> Result<(), CliError> {
    let request: Request = read_json()?;
    let (began, pace) = (Instant::now(), RefCell::new(Pace::default()));
    let tell = |progress| {
        if pace.borrow_mut().is_due(began.elapsed()) {
            // A daemon that is gone does not hear it, and the pull goes on.
            let _ = print(&serde_json::to_string(&Answer::Progress(progress)).unwrap_or_default());
        }
    };
    let done = if only_check { check(paths, image, &request) } else { pull(paths, image, &request, &tell).map(Some) };
    let answer = match &done {
        Ok(Some(record)) => Answer::Image(record.id.clone()),
        Ok(None) => Answer::Stale,
        Err(error) => Answer::Error { reason: error.reason().to_owned(), message: error.to_string() },
    };
    print(&serde_json::to_string(&answer)?)?;
    if done.is_ok() { Ok(()) } else { Err(CliError::Exit(1)) }
}

fn pull(paths: &Paths, image: &str, request: &Request, tell: &dyn Fn(Progress)) -> Result<ImageRecord, ImageError> {
    let reference = Reference::parse(image)?;
    let keyring = keyring(image, &reference, request)?;
    let mut helper = Helper::begin(paths)?;
    helper.limits.bytes_per_second = request.bytes_per_second;
    let record = work(&helper, request, &keyring, tell, |pull| pull.run(&reference))?;
    let records = helper.commit(vec![record])?;
    Ok(records.into_iter().next().unwrap_or_else(|| unreachable!("one record was committed")))
}

/// Nothing is written where nothing new was learned: a restart of a container costs the card nothing.
fn check(paths: &Paths, image: &str, request: &Request) -> Result<Option<ImageRecord>, ImageError> {
    let reference = Reference::parse(image)?;
    let keyring = keyring(image, &reference, request)?;
    let mut helper = Helper::open(paths)?;
    let Some(record) = work(&helper, request, &keyring, &|_| {}, |pull| pull.check(&reference))? else {
        return Ok(None);
    };
    let known = helper.known(&record.id);
    if known.is_some_and(|known| known.access == record.access && known.references == record.references) {
        return Ok(Some(record));
    }
    Ok(helper.commit(vec![record])?.into_iter().next())
}

fn work<T>(
    helper: &Helper,
    request: &Request,
    keyring: &Keyring,
    tell: &dyn Fn(Progress),
    job: impl FnOnce(&Pull<'_>) -> T,
) -> T {
    job(&Pull {
        layers: &helper.layers,
        wanted: &Wanted::here(),
        limits: &helper.limits,
        registries: &request.registries,
        proxy: &request.proxy,
        keyring,
        known: &|key| helper.known(key),
        may_share: &|layer, keys| helper.may_share(layer, keys),
        wants: &helper.wants,
        tell,
        now: now(),
    })
}

fn keyring(image: &str, reference: &Reference, request: &Request) -> Result<Keyring, ImageError> {
    let mut keyring = Keyring::default();
    let mut add = |document: &[u8], from: &str, secret: Option<&str>| {
        let broken = |why| ImageError::Broken { image: image.to_owned(), what: from.to_owned(), why };
        keyring.add(document, secret).map_err(broken)
    };
    for login in request.secrets.iter().filter(|login| !login.document.is_empty()) {
        add(login.document.as_bytes(), "pull secret", Some(&login.key))?;
    }
    if let Some(document) = &request.auth {
        add(document.as_bytes(), "pull secret", None)?;
    }
    let own = registry_for(&request.registries, &reference.registry).auth_file;
    for path in own.into_iter().chain(request.auth_file.clone()) {
        let document = sampan_file::read(&path, MAX_LOGINS).map_err(|source| ImageError::Io {
            path: path.clone(),
            what: "cannot read the auth-file",
            source,
        })?;
        add(&document, &path.display().to_string(), None)?;
    }
    Ok(keyring)
}

pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
