//! `edge-runtime import FILE`: takes in an OCI layout or a docker archive, from a folder, a file or standard input.

use std::path::{Path, PathBuf};

use super::admin::Progress;
use super::error::CliError;
use super::stdio::{print, start_log};
use super::verb::{Flag, Given, Operands, Verb};
use crate::image::archive::Source;
use crate::image::helper::Helper;
use crate::image::import::Import;
use crate::image::platform::Wanted;
use crate::image::{ImageError, Reference};
use crate::paths::Paths;
use crate::store::image_record::ImageRecord;

pub(super) const VERB: Verb = Verb {
    name: "import",
    about: "Import an image",
    operands: Operands::One("FILE"),
    // `edge-admin` has the words of these.
    flags: &[Flag::value("reference", "NAME", ""), Flag::switch("quiet", "")],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let (file, reference) =
        (given.operands.first().map(PathBuf::from).unwrap_or_default(), given.one::<String>("reference")?);
    start_log();
    let paths = given.paths()?;
    let progress = (!given.has("quiet")).then(|| Progress::show(&paths, file.as_os_str()));
    let records = import(&paths, &file, reference.as_deref());
    drop(progress);
    for record in records? {
        let name = record.references.iter().find(|name| !name.contains('@')).unwrap_or(&record.id);
        print(&format!("{name} {}", record.id))?;
    }
    Ok(())
}

fn import(paths: &Paths, file: &Path, reference: Option<&str>) -> Result<Vec<ImageRecord>, ImageError> {
    let name = reference.map(Reference::parse).transpose()?;
    let mut helper = Helper::begin(paths)?;
    let path = (file != Path::new("-")).then_some(file);
    let source = Source::open(path, helper.layers.incoming().dir(), &helper.limits)?;
    let records = Import {
        layers: &helper.layers,
        wanted: &Wanted::here(),
        limits: &helper.limits,
        name: name.as_ref(),
        now: super::pull::now(),
        wants: &helper.wants,
    }
    .run(&source)?;
    helper.commit(records)
}
