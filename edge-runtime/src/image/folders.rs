//! Folders in which a layer has files, but which it does not describe: `tmp/x` without `tmp`, as in layers of Bazel's
//! rules_oci or kaniko. Unpacked alone, such a folder belongs to root with mode 0755, and would hide the description in
//! a lower layer. So containers get it with owner and mode of the next lower layer that describes it (containerd's
//! archive/tar.go, `mkparent`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};

use crate::image::layers::Layers;
use crate::image::unpack::xattr::is_opaque;
use crate::store::image_record::Folder;
use crate::sys::gather::Gather;
use crate::sys::vec_map::VecMap;
use crate::sys::walk::FOLDER;

/// Folders of one image that are put right, so that a container's start stays quick.
const MOST: usize = 2048;
/// Folders that are looked at for that.
const MOST_LOOKS: usize = 1 << 16;

/// The folders of these layers (bottom to top) to create above them, parents first.
pub(super) fn of(layers: &Layers, chain: &[String]) -> Vec<Folder> {
    let undescribed: Vec<BTreeSet<String>> =
        chain.iter().map(|layer| layers.undescribed(layer).into_iter().into_set()).collect();
    // The lowest layer hides nothing.
    let named: BTreeSet<&String> = undescribed.iter().skip(1).flatten().into_set();
    if named.is_empty() {
        return Vec::new();
    }
    let open = |layer: &String| layers.folder(layer).ok().and_then(|dir| File::open(dir).ok()).map(OwnedFd::from);
    let Some(roots) = chain.iter().map(open).collect::<Option<Vec<_>>>() else { return Vec::new() };
    let mut found: VecMap<String, Folder> = VecMap::new();
    for path in named.into_iter().take(MOST_LOOKS) {
        let folders = look(&roots, &undescribed, path).unwrap_or_default();
        folders.into_iter().for_each(|folder| drop(found.insert(folder.path.clone(), folder)));
        if found.len() > MOST {
            log::warn!(
                "more than {MOST} folders of an image are in its layers without entries of their own: the rest are root's"
            );
            break;
        }
    }
    // A parent is the beginning of what is in it.
    found.into_values().collect()
}

/// The folder and its parents, as the layers below describe them; none if nothing needs correction.
fn look(roots: &[OwnedFd], undescribed: &[BTreeSet<String>], path: &str) -> Option<Vec<Folder>> {
    let top_down = roots.iter().enumerate().rev();
    let mut here: Vec<(usize, OwnedFd)> =
        top_down.map(|(layer, root)| Some((layer, root.try_clone().ok()?))).collect::<Option<_>>()?;
    let (mut folders, mut wrong, mut name) = (Vec::new(), false, String::new());
    for part in path.split('/') {
        name = if name.is_empty() { part.to_owned() } else { format!("{name}/{part}") };
        let mut inner = Vec::new();
        for (layer, parent) in &here {
            match fstatat(parent, part, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => continue,
                Ok(found) if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR => {
                    let folder = openat(parent, part, FOLDER, Mode::empty()).ok()?;
                    let last = is_opaque(folder.as_fd());
                    inner.push((*layer, folder, found));
                    if last {
                        break;
                    }
                }
                // Hides what is below it.
                Ok(_) => break,
                Err(_) => return None,
            }
        }
        let (top, _, shown) = inner.first()?;
        let described = inner.iter().find(|(layer, ..)| !undescribed[*layer].contains(&name));
        wrong = described.is_some_and(|(layer, ..)| layer != top);
        let like = described.map_or(shown, |(.., found)| found);
        folders.push(Folder { path: name.clone(), mode: like.st_mode & 0o7777, uid: like.st_uid, gid: like.st_gid });
        here = inner.into_iter().map(|(layer, folder, _)| (layer, folder)).collect();
    }
    wrong.then_some(folders)
}

/// Makes the folders in the new writable layer `upper` of a container; its root is the node's user `first`.
///
/// # Errors
/// One cannot be made.
pub fn lay(folders: &[Folder], upper: &Path, first: u32) -> io::Result<()> {
    for folder in folders {
        let path = Path::new(&folder.path);
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            continue;
        }
        let path = upper.join(path);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        lchown(&path, first.checked_add(folder.uid), first.checked_add(folder.gid))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(folder.mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layers::testing::{add_tar, node};

    /// A tar of folders (mode) and files (none).
    fn tar(entries: &[(&str, Option<u32>, u64)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, mode, owner) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(if mode.is_some() { tar::EntryType::Directory } else { tar::EntryType::Regular });
            header.set_mode(mode.unwrap_or(0o644));
            header.set_uid(*owner);
            header.set_gid(*owner);
            header.set_size(0);
            tar.append_data(&mut header, name, &b""[..]).unwrap();
        }
        tar.into_inner().unwrap()
    }

    #[test]
    fn folders_without_entries_look_as_below() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (temp, layers) = node();
        let below = add_tar(
            &layers,
            &tar(&[
                ("tmp", Some(0o1777), 0),
                ("srv", Some(0o750), 7),
                ("srv/app", Some(0o2770), 1000),
                ("gone", Some(0o700), 9),
            ]),
        );
        let middle = add_tar(&layers, &tar(&[("srv/app/one", None, 0), (".wh.gone", None, 0), ("new/x", None, 0)]));
        let above = add_tar(
            &layers,
            &tar(&[
                ("tmp/seed", None, 0),
                ("srv/app/.wh.two", None, 0),
                ("gone/x", None, 0),
                ("new/y", None, 0),
                ("own/z", None, 0),
                ("own", Some(0o711), 3),
            ]),
        );
        let found = of(&layers, &[below.clone(), middle, above.clone()]);
        let shown: Vec<_> = found.iter().map(|one| (one.path.as_str(), one.mode, one.uid, one.gid)).collect();
        assert_eq!(shown, [("srv", 0o750, 7, 7), ("srv/app", 0o2770, 1000, 1000), ("tmp", 0o1777, 0, 0)]);
        assert!(of(&layers, &[above]).is_empty() && of(&layers, &[below]).is_empty());
        let upper = temp.path().join("upper");
        fs::create_dir(&upper).unwrap();
        lay(&found, &upper, 100_000).unwrap();
        let made = fs::metadata(upper.join("srv/app")).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!((made.mode() & 0o7777, made.uid(), made.gid()), (0o2770, 101_000, 101_000));
    }
}
