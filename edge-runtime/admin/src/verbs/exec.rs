//! `edge-runtime exec`: a command in a running container, by the OCI runtime in place of this process; the daemon
//! need not run.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{CONTAINER, Flag, Given, NAMESPACE, Operands, Verb};
use edge_runtime::config::{Config, Overrides};
use edge_runtime::launch::runtimes::Runtimes;
use edge_runtime::monitor::exec::terminal_process;

use crate::find;

pub(super) const VERB: Verb = Verb {
    name: "exec",
    about: "Run a command in a container and return its exit code",
    operands: Operands::Command("POD"),
    flags: &[
        NAMESPACE,
        CONTAINER,
        Flag::switch("stdin", "pass standard input to the command").short('i'),
        Flag::switch("tty", "with a terminal").short('t'),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    let (pod, name) = find::container(&given, &paths)?;
    let Some((id, _)) = pod.containers.get(&name).and_then(|container| container.state.process()) else {
        return Err(CliError::Failed(format!("container {name} of pod {} is not running", pod.name)));
    };
    let named = Overrides { node_name: Some("node".into()), joined: None };
    let config = Config::load_lenient(&paths.config_file(), paths.root(), &named)?.0;
    let runtime = Runtimes::new(&config).of_container(id, &paths);
    let node = std::env::current_exe().unwrap_or_default().with_file_name("edge-runtime");
    let mut words = runtime.beginning(&node);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).arg("--root").arg(&runtime.root).args(&runtime.args).arg("exec").args(runtime.cwd_args());
    let failed = |error| CliError::Failed(format!("{}: {error}", runtime.program.display()));
    if given.has("tty") {
        let argv: Vec<String> = given.operands[1..].iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let file = runtime.bundle.join(format!("process-{}.json", std::process::id()));
        terminal_process::write(&runtime.bundle, &argv, &file).map_err(failed)?;
        let status = command.arg("--process").arg(&file).arg(id).status();
        let _ = std::fs::remove_file(file);
        return match status.map_err(failed)?.code() {
            Some(0) => Ok(()),
            code => Err(CliError::Exit(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))),
        };
    }
    if !given.has("stdin") {
        command.stdin(Stdio::null());
    }
    Err(failed(command.arg(id).args(&given.operands[1..]).exec()))
}
