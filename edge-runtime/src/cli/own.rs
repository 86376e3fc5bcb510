//! `edge-runtime own`: gives all of a volume to a pod's group, as a helper of the daemon.

use std::process::ExitCode;

use lexopt::ValueExt;

use super::CliError;
use crate::volume::Owning;

pub(super) fn run(mut parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let (mut group, mut mark, mut path) = (None, None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("root") => drop(parser.value()?),
            lexopt::Arg::Long("group") => group = Some(parser.value()?.parse()?),
            lexopt::Arg::Long("mark") => mark = Some(parser.value()?.into()),
            lexopt::Arg::Value(value) if path.is_none() => path = Some(value.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let (Some(group), Some(mark), Some(path)) = (group, mark, path) else {
        return Err(CliError::Usage("own needs --group, --mark and a folder".into()));
    };
    Owning { path, group, mark }.run().map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
