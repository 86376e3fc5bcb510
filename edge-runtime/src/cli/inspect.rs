//! `edge-runtime inspect POD`: all that is known of a pod, as JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;

use super::CliError;

pub(super) fn run(mut args: lexopt::Parser) -> Result<ExitCode, CliError> {
    let mut root: Option<PathBuf> = None;
    let mut wanted: Option<String> = None;
    while let Some(arg) = args.next()? {
        match arg {
            Long("root") => root = Some(args.value()?.into()),
            Value(name) if wanted.is_none() => wanted = Some(name.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let wanted = wanted.ok_or_else(|| CliError::Usage("inspect needs a pod: NAME, NAMESPACE/NAME or a uid".into()))?;
    let pods = super::ps::stored_pods(root)?;
    let matches = |record: &&crate::pod::record::PodRecord| {
        record.uid == wanted || record.name == wanted || format!("{}/{}", record.namespace, record.name) == wanted
    };
    let found: Vec<_> = pods.iter().filter(matches).collect();
    match found.as_slice() {
        [] => Err(CliError::Failed(format!("no pod {wanted} on this node"))),
        [one] => super::version::print(&serde_json::to_string_pretty(one).map_err(CliError::failed)?),
        many => Err(CliError::Failed(format!("{} pods are called {wanted}: give NAMESPACE/NAME", many.len()))),
    }
}
