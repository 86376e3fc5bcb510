//! `edge-admin man DIR`: writes the manual pages. For packagers.

use std::path::PathBuf;

use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};

use super::shown;
use crate::man::pages;

pub(super) const VERB: Verb = Verb {
    name: "man",
    // People read what it makes.
    about: "",
    operands: Operands::One("DIR"),
    flags: &[],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let folder = PathBuf::from(given.operand()?);
    std::fs::create_dir_all(&folder).map_err(|error| CliError::Failed(format!("{}: {error}", folder.display())))?;
    for (name, text) in pages(&shown()).map_err(|error| CliError::Failed(error.to_string()))? {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(|error| CliError::Failed(format!("{}: {error}", file.display())))?;
        print(&file.display().to_string())?;
    }
    Ok(())
}
