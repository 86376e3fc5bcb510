//! `edge-runtime import FILE`: takes in an OCI layout or a docker archive, from a folder, a file or standard input.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::prelude::*;

use super::CliError;
use crate::image::archive::Source;
use crate::image::helper::Helper;
use crate::image::import::Import;
use crate::image::platform::Wanted;
use crate::image::{ImageError, ImageRecord, Reference};
use crate::paths::Paths;

/// # Errors
/// Called wrongly, or the archive cannot be taken in.
pub(super) fn run(mut args: lexopt::Parser) -> Result<ExitCode, CliError> {
    let (mut root, mut file, mut reference) = (None, None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("root") => root = Some(args.value()?.into()),
            Long("reference") => reference = Some(args.value()?.string()?),
            Value(path) if file.is_none() => file = Some(PathBuf::from(path)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let file = file.ok_or_else(|| CliError::Usage("import needs a file, a folder, or - for standard input".into()))?;
    super::start_log();
    let paths = super::paths(root)?;
    let records = import(&paths, &file, reference.as_deref()).map_err(CliError::failed)?;
    for record in records {
        let name = record.references.iter().find(|name| !name.contains('@')).unwrap_or(&record.id);
        super::version::print(&format!("{name} {}", record.id))?;
    }
    Ok(ExitCode::SUCCESS)
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
