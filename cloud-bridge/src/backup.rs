//! `cloud-bridge backup` and `cloud-bridge restore`: the state of a standalone bridge as one file. Owns the flags, the
//! question before a restore, and what is printed.

mod files;
mod restore;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use apimachinery::meta::rfc3339;
use apiserver::backup::{self, Contents};
use clap::Args;
use jiff::Timestamp;

use crate::output::print;
use crate::reach::state_folder;
use crate::state_folder::ensure_whole;
use restore::Present;

/// Names of nodes that are printed at most.
const SHOWN: usize = 20;

/// `backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
    /// File to write. An earlier backup of this name is replaced.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: PlaceFlags,
}

/// `restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// File that `cloud-bridge backup` wrote.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: PlaceFlags,
    /// Restore. Absent: only print what a restore would bring back.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct PlaceFlags {
    /// State folder of the standalone bridge [default: $CLOUD_BRIDGE_STATE, else /var/lib/cloud-bridge].
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

/// Writes a backup; the bridge may run.
pub(crate) fn back_up(options: BackupOptions) -> anyhow::Result<()> {
    let (state, to) = (state_folder(options.place.state)?, options.file);
    ensure_whole(&state)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = |path: &Path| path.canonicalize().with_context(|| path.display().to_string());
    ensure!(
        !real(folder)?.starts_with(real(&state)?),
        "{}: a backup in the state folder is lost with it; choose another folder",
        to.display()
    );
    let files = files::read(&state)?;
    let made = rfc3339(Timestamp::now());
    let found = backup::write(&state.join("api.db"), &files, &made, &to)?;
    print(&format!(
        "{}: backup of {} with {} nodes. It contains Secrets and the key of the authority: anyone who has it controls the nodes.\n",
        to.display(),
        state.display(),
        found.nodes.len()
    ))
}

/// Restores a backup, or prints what that would do.
pub(crate) fn bring_back(options: RestoreOptions) -> anyhow::Result<()> {
    let (state, from) = (state_folder(options.place.state)?, options.file);
    let found = backup::inspect(&from)?;
    files::check(&found.files).with_context(|| from.display().to_string())?;
    let made = found.made.parse::<Timestamp>().with_context(|| format!("{}: time of the backup", from.display()))?;
    let present = Present::look(&state, &found.files);
    print(&warning(&found, present, &state))?;
    if !options.yes {
        bail!("nothing was changed: repeat the command with --yes to restore");
    }
    restore::ensure_folder(&state)?;
    let _lock = restore::lock(&state)?;
    let replaced = restore::run(&state, &from, &found.files, made, present)?;
    print(&next_steps(&state, replaced.as_deref()))
}

/// What a restore of this backup into a folder loses and brings back.
fn warning(found: &Contents, present: Present, state: &Path) -> String {
    let (made, nodes, tokens) = (&found.made, found.nodes.len(), found.tokens);
    let mut text = format!("The backup is of {made}. Objects are as they were then; later changes are lost.\n");
    match present {
        Present::SameBridge => text.push_str(
            "Nodes that were deleted since then, and tokens that were used or deleted, do not come back: this state folder lists them.\n\
             Other deleted objects come back. A node that was revoked with the annotation since then may connect again.\n",
        ),
        Present::OtherBridge | Present::Nothing => {
            let shown: Vec<&str> = found.nodes.iter().take(SHOWN).map(String::as_str).collect();
            let more = if nodes > SHOWN { format!(" and {} more", nodes - SHOWN) } else { String::new() };
            let names = if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join(", ")) };
            text.push_str(&format!(
                "{nodes} nodes come back{names}.\n\
                 Those that were deleted or revoked since then may connect again: nothing here lists them. Delete them afterwards.\n\
                 {tokens} join tokens and claim tokens are removed: they may have been used or deleted since then.\n"
            ));
        }
    }
    if present == Present::OtherBridge {
        text.push_str(&format!(
            "{} has the state of another bridge: its nodes and users have to join the restored one.\n",
            state.display()
        ));
    }
    text
}

fn next_steps(state: &Path, replaced: Option<&Path>) -> String {
    let mut text = format!("Restored into {}.\n", state.display());
    if let Some(replaced) = replaced {
        text.push_str(&format!(
            "The previous state is in {}: delete it when you do not need it.\n",
            replaced.display()
        ));
    }
    text + "Next: add --restore to the arguments of the bridge (CLOUD_BRIDGE_OPTIONS in /etc/default/cloud-bridge) and start it.\n\
            While it runs with --restore, nodes end no pod because it is missing in the backup. Check the objects, then remove\n\
            --restore and restart it: docs/backup.md\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(nodes: usize) -> Contents {
        let nodes = (0..nodes).map(|n| format!("edge-{n}")).collect();
        Contents { made: "2026-11-29T12:00:00Z".to_owned(), files: Vec::new(), nodes, tokens: 2 }
    }

    #[test]
    fn restore_names_what_comes_back() {
        let text = |nodes, present| warning(&contents(nodes), present, Path::new("/s"));
        let elsewhere = text(22, Present::Nothing);
        assert!(elsewhere.contains("22 nodes come back: edge-0,") && elsewhere.contains("and 2 more"), "{elsewhere}");
        assert!(elsewhere.contains("2 join tokens and claim tokens are removed"), "{elsewhere}");
        assert!(text(0, Present::Nothing).contains("0 nodes come back.\n"));
        let same = text(22, Present::SameBridge);
        assert!(!same.contains("edge-0") && same.contains("do not come back"), "{same}");
        assert!(text(1, Present::OtherBridge).contains("/s has the state of another bridge"));
    }

    #[test]
    fn next_steps_withhold_lists_and_name_the_previous_state() {
        let text = next_steps(Path::new("/s"), Some(Path::new("/s/replaced-1")));
        assert!(text.contains("--restore") && text.contains("/s/replaced-1"), "{text}");
        assert!(!next_steps(Path::new("/s"), None).contains("previous"));
    }
}
