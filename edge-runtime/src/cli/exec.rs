//! `edge-runtime exec`: a command in a running container, by the OCI runtime in place of this process; the daemon
//! need not run.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use lexopt::prelude::*;

use super::CliError;
use super::find::Wanted;
use crate::config::{Config, Overrides};
use crate::launch::runtimes::Runtimes;
use crate::monitor::exec::terminal_process;
use crate::pod::record::ContainerState;

#[derive(Default)]
struct Args {
    root: Option<PathBuf>,
    namespace: Option<String>,
    pod: String,
    container: Option<String>,
    stdin: bool,
    tty: bool,
    command: Vec<OsString>,
}

/// `exec [NAMESPACE/]POD [-n NAMESPACE] [-c CONTAINER] [-i] [-t] -- COMMAND...`. Ends with the command's exit code.
pub(super) fn run(parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let args = parse(parser)?;
    let wanted = Wanted { namespace: args.namespace.as_deref(), pod: &args.pod, container: args.container.as_deref() };
    let (pod, name) = wanted.find(args.root.clone())?;
    let state = pod.containers.get(&name).map(|container| &container.state);
    let Some(ContainerState::Running { id, .. } | ContainerState::Stopping { id, pid: 1.., .. }) = state else {
        return Err(CliError::Failed(format!("container {name} of pod {} is not running", pod.name)));
    };
    let paths = super::paths(args.root)?;
    let config = Config::load_lenient(&paths.config_file(), paths.root(), &Overrides::default(), Some("node"))
        .map_err(CliError::failed)?
        .0;
    let runtime = Runtimes::new(&config).of_container(id, &paths);
    let mut words = runtime.beginning();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).arg("--root").arg(&runtime.root).args(&runtime.args).arg("exec").args(runtime.cwd_args());
    let failed = |error| CliError::Failed(format!("{}: {error}", runtime.program.display()));
    if args.tty {
        let argv: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let file = runtime.bundle.join(format!("process-{}.json", std::process::id()));
        terminal_process::write(&runtime.bundle, &argv, &file).map_err(failed)?;
        let status = command.arg("--process").arg(&file).arg(id).status();
        let _ = std::fs::remove_file(file);
        let code = status.map_err(failed)?.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
    }
    if !args.stdin {
        command.stdin(Stdio::null());
    }
    Err(failed(command.arg(id).args(args.command).exec()))
}

fn parse(mut parser: lexopt::Parser) -> Result<Args, CliError> {
    let mut args = Args::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("root") => args.root = Some(PathBuf::from(parser.value()?)),
            Short('n') | Long("namespace") => args.namespace = Some(parser.value()?.string()?),
            Short('c') | Long("container") => args.container = Some(parser.value()?.string()?),
            Short('i') | Long("stdin") => args.stdin = true,
            Short('t') | Long("tty") => args.tty = true,
            Value(pod) if args.pod.is_empty() => args.pod = pod.string()?,
            Value(word) => {
                args.command.push(word);
                args.command.extend(parser.raw_args()?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    match (args.pod.is_empty(), args.command.is_empty()) {
        (true, _) => Err(CliError::Usage("exec: a pod is missing".to_owned())),
        (_, true) => Err(CliError::Usage("exec: a command is missing: -- COMMAND".to_owned())),
        _ => Ok(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_command_are_its_own() {
        let words = ["kube-system/p", "-c", "c", "-it", "--", "ls", "-l", "--", "x"];
        let args = parse(lexopt::Parser::from_args(words)).unwrap();
        assert!(args.stdin && args.tty && args.pod == "kube-system/p" && args.container.as_deref() == Some("c"));
        assert_eq!(args.command, ["ls", "-l", "--", "x"]);
        assert!(parse(lexopt::Parser::from_args(["p"])).is_err_and(|e| e.to_string().contains("a command is missing")));
    }
}
