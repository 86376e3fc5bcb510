//! Each fault of a state folder is found; a healthy folder passes.

use std::time::UNIX_EPOCH;

use super::*;
use crate::doctor::finding::Severity;
use crate::doctor::finding::tests::assert_found;

fn days(count: u64) -> Duration {
    Duration::from_secs(count * 86_400)
}

fn well() -> Facts {
    let now = UNIX_EPOCH + days(30_000);
    Facts {
        folder: "/s".into(),
        now,
        space: Some((100 << 30, 50 << 30)),
        inodes: Some((1000, 500)),
        refused: None,
        database: Ok((1 << 30, now - days(1))),
        copied: Some(now - days(2)),
        keeps_damaged: false,
        authority: Ok(now + days(5000)),
        kubeconfig: Ok(now + days(364)),
    }
}

#[test]
fn healthy_folder_has_no_findings() {
    let found = judge(&well());
    assert!(found.iter().all(|one| one.severity == Severity::Ok), "{found:#?}");
    assert!(judge(&Facts { inodes: Some((0, 0)), ..well() }).iter().all(|one| one.severity == Severity::Ok));
}

#[test]
fn full_disk_is_found_before_the_copy_does_not_fit() {
    let at = |free| judge(&Facts { space: Some((100 << 30, free)), ..well() });
    assert_found(&at(10 << 20), "disk", Severity::Error, "du -xh");
    assert_found(&at(900 << 20), "disk", Severity::Warning, "du -xh");
    assert_found(&at(9 << 30), "disk", Severity::Warning, "du -xh");
    let read_only = Facts { refused: Some("Read-only file system".into()), ..well() };
    assert_found(&judge(&read_only), "disk", Severity::Error, "remount");
    let used_up = Facts { inodes: Some((1000, 10)), ..well() };
    assert_found(&judge(&used_up), "inodes", Severity::Warning, "--inodes");
}

#[test]
fn lost_database_and_late_copy_are_found() {
    let lost = Facts { database: Err("it is empty or cut off".into()), ..well() };
    assert_found(&judge(&lost), "database", Severity::Error, "--restore");
    let all_lost = Facts { copied: None, ..lost };
    assert_found(&judge(&all_lost), "database", Severity::Error, "backup");
    let late = Facts { copied: Some(well().now - days(4)), ..well() };
    assert_found(&judge(&late), "copy", Severity::Warning, "room");
    assert_found(&judge(&Facts { copied: None, ..well() }), "copy", Severity::Warning, "room");
    assert_found(&judge(&Facts { keeps_damaged: true, ..well() }), "database-damaged", Severity::Info, "");
}

#[test]
fn certificates_near_their_end_are_found() {
    let now = well().now;
    let authority = |authority| judge(&Facts { authority, ..well() });
    assert_found(&authority(Err("gone".into())), "authority", Severity::Error, "pki");
    assert_found(&authority(Ok(now - days(1))), "authority", Severity::Error, "clock");
    assert_found(&authority(Ok(now + days(300))), "authority", Severity::Warning, "authority rotate");
    let kubeconfig = |kubeconfig| judge(&Facts { kubeconfig, ..well() });
    assert_found(&kubeconfig(Err("gone".into())), "kubeconfig", Severity::Error, "restart");
    assert_found(&kubeconfig(Ok(now - days(1))), "kubeconfig", Severity::Error, "restart");
    assert_found(&kubeconfig(Ok(now + days(20))), "kubeconfig", Severity::Warning, "restart");
}

#[test]
fn folder_is_read_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (facts, authority) = look(folder.path());
    assert!(authority.is_none() && facts.authority.is_err() && facts.database.is_err() && facts.kubeconfig.is_err());
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing was made");

    let made = keep::in_folder(folder.path()).unwrap();
    fs::write(folder.path().join("api.db"), [&MAGIC[..], b"page"].concat()).unwrap();
    let (facts, authority) = look(folder.path());
    assert_eq!(authority.map(|authority| authority.fingerprint()), Some(made.fingerprint()));
    assert!(facts.authority.unwrap() > clock::now() && facts.refused.is_none() && facts.space.is_some());
    assert_eq!(facts.database.unwrap().0, 20);
    fs::write(folder.path().join("api.db"), b"SQLite").unwrap();
    assert!(look(folder.path()).0.database.unwrap_err().contains("cut off"));
}

#[test]
fn test_file_follows_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    fs::write(&other, "kept").unwrap();
    let link = folder.path().join(format!(".doctor-{}", std::process::id()));
    std::os::unix::fs::symlink(&other, &link).unwrap();
    assert!(look(folder.path()).0.refused.is_some());
    assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
}

#[cfg(feature = "standalone")]
#[test]
fn end_of_the_kubeconfig_is_that_of_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = keep::in_folder(folder.path()).unwrap();
    let path = folder.path().join("kubeconfig");
    crate::kubeconfig::write(&path, &authority, "127.0.0.1:6443".parse().unwrap()).unwrap();
    let left = kubeconfig(&path).unwrap().duration_since(clock::now()).unwrap();
    assert!(left > days(364) && left <= days(365), "{left:?}");
}
