//! Helper processes of the daemon beside the monitor. Each does what the daemon must not wait for, must not keep in
//! memory, or cannot do with its second thread. Not for people.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::error::CliError;
use super::stdio::{print, read_json, start_log};
use super::verb::{Flag, Given, Operands, Verb};
use crate::eviction::walk::{self, Question};
use crate::image::gc::Sweep;
use crate::image::helper::Helper;
use crate::image::limits::{Limits, confine_memory, confine_process};
use crate::launch::look::{Answer, Look};
use crate::net::namespaces::kind_of;
use crate::store::Store;
use crate::sys::{oom, signal, trash};
use crate::volume::Owning;

/// `as-container BUNDLE PROGRAM [ARGUMENT]...`
pub(super) const AS_CONTAINER: Verb = Verb::helper("as-container", Operands::Raw, &[], as_container);
pub(super) const COLLECT: Verb = Verb::helper("collect", Operands::One("HOW"), &[], collect);
pub(super) const COPY: Verb = Verb::helper("copy", Operands::None, &[], copy);
pub(super) const LOOK: Verb = Verb::helper("look", Operands::None, &[], look);
pub(super) const OWN: Verb = Verb::helper("own", Operands::One("FOLDER"), OWN_FLAGS, own);
const OWN_FLAGS: &[Flag] = &[Flag::value("group", "GID", ""), Flag::value("mark", "FILE", "")];
pub(super) const PAUSE: Verb = Verb::helper("pause", Operands::Raw, &[], pause);
pub(super) const SWEEP: Verb = Verb::helper("sweep", Operands::None, &[], sweep);
pub(super) const USAGE: Verb = Verb::helper("usage", Operands::None, &[], usage);
pub(super) const USERNS: Verb = Verb::helper("userns", Operands::Raw, &[], userns);

/// Becomes a program with the `oom_score_adj` of a container and no signal blocked.
fn as_container(given: Given) -> Result<(), CliError> {
    let mut words = given.operands.into_iter();
    let (Some(bundle), Some(program)) = (words.next().map(PathBuf::from), words.next()) else {
        return Err(CliError::Usage("as-container: BUNDLE and PROGRAM are missing".into()));
    };
    if let Err(error) = oom::become_as_container(&bundle) {
        // Where the kernel does not let it, containers have no value below this either.
        log::debug!("{}: {error}", bundle.display());
        oom::give_up_protection();
    }
    signal::unmask_self()?;
    let error = Command::new(&program).args(words).exec();
    Err(CliError::Failed(format!("{}: {error}", PathBuf::from(program).display())))
}

/// Deletes layers that no image needs. The operand says how short the disk is.
fn collect(given: Given) -> Result<(), CliError> {
    let how = match given.operand()?.as_str() {
        "usual" => Sweep::USUAL,
        "short" => Sweep::SHORT,
        "shortest" => Sweep::SHORTEST,
        other => return Err(CliError::Usage(format!("collect: HOW is usual, short or shortest, not {other}"))),
    };
    start_log();
    let Err(error) = Helper::open(&given.paths()?).and_then(|helper| helper.sweep(how)) else {
        return Ok(());
    };
    // The daemon makes an event of it.
    print(&error.to_string())?;
    Err(CliError::Exit(1))
}

/// Makes the second copy of the store: the daemon waits for no disk.
fn copy(given: Given) -> Result<(), CliError> {
    let bytes = Store::open_shared(&given.paths()?.store())?.copy()?;
    print(&format!("copied {bytes} bytes"))
}

/// Looks at paths behind which a foreign file system may lie: a line of JSON with looks at a time on standard input, a line
/// of JSON for each look on standard output, up to the first of a line that fails. Ends with its input.
fn look(_: Given) -> Result<(), CliError> {
    for line in std::io::stdin().lines() {
        for look in serde_json::from_str::<Vec<Look>>(&line?)? {
            let answer = look.run();
            print(&serde_json::to_string(&answer)?)?;
            if answer != Answer::Done {
                break;
            }
        }
    }
    Ok(())
}

/// Gives all of a volume to a pod's group.
fn own(given: Given) -> Result<(), CliError> {
    let (group, mark) = (given.one("group")?, given.path("mark"));
    let (Some(group), Some(mark), Some(path)) = (group, mark, given.operands.first().map(Into::into)) else {
        return Err(CliError::Usage("own needs --group, --mark and a folder".into()));
    };
    confine_memory();
    Ok(Owning { path, group, mark }.run()?)
}

/// The first process of a shared pid namespace: reaps orphans until a signal ends it.
fn pause(_: Given) -> Result<(), CliError> {
    // Containers of the pod can see this process and may have the same uid. They must not trace it, write its memory or
    // follow its root (ptrace_access_mode).
    nix::sys::prctl::set_dumpable(false)?;
    let signals = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block()?;
    while signals.wait()? == Signal::SIGCHLD {
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive) {}
    }
    Ok(())
}

/// Deletes what pods left. Ends when nothing is left.
fn sweep(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    let volumes = trash::sweep(&paths.volumes_trash());
    Ok(trash::sweep(&paths.trash()).and(volumes)?)
}

/// How much disk pods hold: questions as JSON on standard input, a line of JSON for each on standard output.
fn usage(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    confine_process(&Limits::default());
    walk::answer(&paths, &read_json::<Vec<Question>>()?, |used| print(&serde_json::to_string(used)?))
}

/// Makes a user namespace and others that it owns, and holds them until its input ends: only a process with a single
/// thread may. The daemon maps the ids and pins the namespaces.
fn userns(given: Given) -> Result<(), CliError> {
    let mut flags = CloneFlags::CLONE_NEWUSER;
    for name in &given.operands {
        let name = name.to_string_lossy();
        flags |= kind_of(&name).ok_or_else(|| CliError::Usage(format!("{name} is no kind of namespace")))?;
    }
    unshare(flags)?;
    let mut out = std::io::stdout();
    out.write_all(b"\n").and_then(|()| out.flush())?;
    // Ignores the input, and waits for its end.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
