//! The identity of the node on its disk.

use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_disk_that_takes_no_identity_is_found_out_before() {
    let root = tempfile::tempdir().expect("temp dir");
    let paths = Paths::new(root.path());
    Identity::probe(&paths).expect("it can be written");
    assert_eq!(fs::read_dir(paths.identity()).expect("made").count(), 0, "nothing stays behind");
    fs::remove_dir(paths.identity()).expect("empty");
    fs::write(paths.identity(), "").expect("in its place");
    let error = Identity::probe(&paths).expect_err("no folder").to_string();
    assert!(error.contains("identity"), "{error}");
}

#[test]
fn g29_survives_the_disk_and_is_private() {
    let root = tempfile::tempdir().expect("temp dir");
    let paths = Paths::new(root.path());
    assert_eq!(Identity::load(&paths).expect("no file is no error"), None);
    let (certificate, ca) = (CertificateDer::from(vec![1; 100]), CertificateDer::from(vec![2; 100]));
    let bridges = vec!["https://b:1".parse().expect("address")];
    let identity = Identity::new("n".into(), "c".into(), bridges, &certificate, &ca, &[3; 50]);
    identity.save(&paths).expect("saved");
    identity.save(&paths).expect("saved again over the first");
    let again = Identity::load(&paths).expect("reads").expect("is there");
    assert_eq!(again, identity);
    assert_eq!(again.certificate().expect("pem"), certificate);
    assert_eq!(again.cas().expect("pem"), [ca]);
    assert_eq!(again.key().expect("pem").secret_der(), [3; 50]);
    let mode = |path: PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(paths.identity().join(FILE)), 0o600);
    assert_eq!(mode(paths.identity()), 0o700);
    assert!(!format!("{identity:?}").contains("PRIVATE"), "the key stays out of logs");
}

#[test]
fn g24_a_power_cut_at_any_step_of_a_renewal_leaves_a_usable_identity() {
    let root = tempfile::tempdir().expect("temp dir");
    let paths = Paths::new(root.path());
    let der = |byte| CertificateDer::from(vec![byte; 100]);
    let bridges = vec!["https://b:1".parse().expect("address")];
    let old = Identity::new("n".into(), "c".into(), bridges, &der(1), &der(2), &[3; 50]);
    let new = old.renewed(&der(4), &[der(5), der(2)], &[6; 50]);
    assert_eq!((new.node.as_str(), new.cas().expect("pem").len()), ("n", 2));
    let used = || Identity::load(&paths).expect("reads").expect("is there");
    old.save(&paths).expect("saved");
    // Cut while it is written: half a file under another name.
    let partial = paths.identity().join(".identity.next.json");
    fs::write(&partial, "{\"node\"").expect("written");
    assert_eq!((used(), Identity::load_next(&paths)), (old.clone(), None));
    // Cut before it is proven.
    new.save_next(&paths).expect("saved over the leftover");
    assert!(!partial.exists());
    assert_eq!((used(), Identity::load_next(&paths)), (old.clone(), Some(new.clone())));
    let mode = fs::metadata(paths.identity().join(NEXT)).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    // Cut after.
    Identity::promote_next(&paths).expect("promoted");
    assert_eq!((used(), Identity::load_next(&paths)), (new.clone(), None));
    // A join cancels a renewal in progress; a damaged leftover does not count as an identity.
    new.save_next(&paths).expect("saved");
    old.save(&paths).expect("joined again");
    assert_eq!((used(), Identity::load_next(&paths)), (old, None));
    fs::write(paths.identity().join(NEXT), "{").expect("written");
    assert_eq!(Identity::load_next(&paths), None);
}

#[test]
fn a_damaged_file_is_named() {
    let root = tempfile::tempdir().expect("temp dir");
    let paths = Paths::new(root.path());
    fs::create_dir_all(paths.identity()).expect("made");
    fs::write(paths.identity().join(FILE), "{\"node\":").expect("written");
    let error = Identity::load(&paths).expect_err("damaged").to_string();
    assert!(error.contains("identity.json"), "{error}");
}
