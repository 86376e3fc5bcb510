use super::super::answer::example;
use super::*;
use crate::pods::sha256;

const ACCOUNT: &str = "ns/sa";

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn open(folder: &Path) -> Cache {
    Cache::open(folder, 1 << 20, false)
}

fn put(cache: &mut Cache, path: &str, body: &[u8], seconds: u64) {
    let page = example(ACCOUNT, body).pages.remove(0);
    let secret = path.contains("secrets");
    cache.put(sha256(path.as_bytes()), ACCOUNT, (page, Next::End), secret, (at(seconds), seconds * 1_000));
}

fn get(cache: &mut Cache, path: &str) -> Option<(Vec<u8>, u64)> {
    let (answer, read_ms) = cache.get(&sha256(path.as_bytes()), ACCOUNT)?;
    Some((answer.page("")?.body.clone(), read_ms))
}

fn files(folder: &Path) -> usize {
    let inside = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let accounts = FOLDERS.iter().flat_map(|name| inside(&folder.join(name)));
    accounts.map(|account| inside(&account).count()).sum()
}

#[test]
fn answer_outlives_the_process_and_is_nobody_elses() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = open(folder.path());
    put(&mut cache, "/api/v1/pods", b"{}", 5);
    let mut again = open(folder.path());
    assert_eq!(get(&mut again, "/api/v1/pods"), Some((b"{}".to_vec(), 5_000)));
    assert_eq!(again.get(&sha256(b"/api/v1/pods"), "ns/other"), None);
    assert_eq!(get(&mut again, "/api/v1/nodes"), None);
}

#[test]
fn file_is_written_once_in_ten_minutes_and_only_if_changed() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = open(folder.path());
    put(&mut cache, "p", b"1", 0);
    put(&mut cache, "p", b"2", 10);
    assert_eq!(get(&mut cache, "p"), Some((b"2".to_vec(), 10_000)), "the newest answer");
    cache.flush(at(20));
    assert_eq!(get(&mut open(folder.path()), "p"), Some((b"1".to_vec(), 0)), "not yet on disk");
    cache.flush(at(600));
    assert_eq!(get(&mut open(folder.path()), "p"), Some((b"2".to_vec(), 10_000)));
    put(&mut cache, "p", b"2", 2_000);
    assert_eq!(get(&mut cache, "p"), Some((b"2".to_vec(), 2_000_000)), "read again");
    assert_eq!(get(&mut open(folder.path()), "p"), Some((b"2".to_vec(), 10_000)), "the same: not written");
}

#[test]
fn least_recently_used_answer_goes() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = Cache::open(folder.path(), 3_000, false);
    // Each in a window of its own: the allowance is half the room.
    for (path, seconds) in [("a", 0), ("b", 600), ("c", 1_200)] {
        put(&mut cache, path, &[1; 600], seconds);
    }
    assert!(get(&mut cache, "a").is_some());
    put(&mut cache, "d", &[1; 600], 1_800);
    assert!(get(&mut cache, "b").is_none() && get(&mut cache, "a").is_some() && get(&mut cache, "d").is_some());
    assert_eq!(files(folder.path()), 3);
    put(&mut cache, "a", &[1; 4_000], 0);
    assert!(get(&mut cache, "a").is_none(), "an answer larger than all room takes the older one with it");
}

#[test]
fn secrets_stay_in_memory_where_that_is_set() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = Cache::open(folder.path(), 1 << 20, true);
    put(&mut cache, "/secrets", b"s", 0);
    put(&mut cache, "/pods", b"p", 0);
    cache.flush(at(10_000));
    assert_eq!(files(folder.path()), 1);
    assert!(get(&mut cache, "/secrets").is_some());
    let mut again = Cache::open(folder.path(), 1 << 20, true);
    assert!(get(&mut again, "/secrets").is_none() && get(&mut again, "/pods").is_some());
    put(&mut open(folder.path()), "/secrets", b"s", 0);
    assert_eq!(files(folder.path()), 1);
    Cache::open(folder.path(), 1 << 20, true);
    assert_eq!(files(folder.path()), 0, "the setting counts for what is there, too");
}

#[test]
fn damaged_files_are_none() {
    let folder = tempfile::tempdir().expect("temp dir");
    put(&mut open(folder.path()), "p", b"1", 0);
    let inside = folder.path().join(FOLDERS[0]).join(account_name(ACCOUNT));
    let file = inside.join(hex(&sha256(b"p")));
    fs::write(&file, b"edgeapi1 and more").expect("written");
    fs::write(inside.join(".partial"), b"x").expect("written");
    let mut cache = open(folder.path());
    assert_eq!(get(&mut cache, "p"), None);
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn accounts_without_pods_are_forgotten_after_a_week() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = open(folder.path());
    put(&mut cache, "p", b"1", 0);
    let week = SystemTime::now() - Duration::from_secs(8 * 86_400);
    cache.disk.touch(ACCOUNT, week);
    cache.forget_accounts([ACCOUNT].into_iter());
    assert!(get(&mut cache, "p").is_some());
    cache.forget_accounts(["ns/other"].into_iter());
    assert!(get(&mut cache, "p").is_none());
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn without_room_there_is_no_cache() {
    let folder = tempfile::tempdir().expect("temp dir");
    put(&mut open(folder.path()), "p", b"1", 0);
    let mut cache = Cache::open(folder.path(), 0, false);
    put(&mut cache, "q", b"1", 0);
    assert!(!cache.is_on() && get(&mut cache, "p").is_none() && get(&mut cache, "q").is_none());
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn pod_with_many_paths_wears_no_flash_and_takes_no_room_of_others() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = open(folder.path());
    put(&mut cache, "quiet", b"1", 0);
    for path in 0..2_000 {
        let page = example("ns/loud", b"x").pages.remove(0);
        let key = sha256(format!("loud{path}").as_bytes());
        cache.put(key, "ns/loud", (page, Next::End), false, (at(1), 1_000));
    }
    assert!(files(folder.path()) <= 129, "{} files", files(folder.path()));
    assert!(cache.entries.len() <= MAX_ANSWERS);
    assert!(get(&mut cache, "quiet").is_some());
}

#[test]
fn answer_that_waited_is_written_when_it_is_read_again() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = open(folder.path());
    put(&mut cache, "p", b"1", 0);
    put(&mut cache, "p", b"2", 10);
    assert!(cache.has_unwritten());
    put(&mut cache, "p", b"2", 700);
    assert!(!cache.has_unwritten());
    assert_eq!(get(&mut open(folder.path()), "p").map(|(body, _)| body), Some(b"2".to_vec()));
}

#[test]
fn folder_that_cannot_be_written_leaves_answers_in_memory() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = open(folder.path());
    fs::write(folder.path().join(FOLDERS[0]), b"in the way").expect("written");
    put(&mut cache, "p", b"1", 0);
    assert!(cache.is_failing && cache.has_unwritten() && get(&mut cache, "p").is_some());
    fs::remove_file(folder.path().join(FOLDERS[0])).expect("removed");
    cache.flush(at(600));
    assert!(!cache.is_failing && !cache.has_unwritten());
}

#[test]
fn clock_that_jumps_neither_keeps_nor_deletes_an_account() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut cache = open(folder.path());
    put(&mut cache, "p", b"1", 5);
    let now = SystemTime::now();
    let later = |days: u64| now + Duration::from_secs(days * 86_400);
    cache.disk.touch(ACCOUNT, SystemTime::UNIX_EPOCH);
    assert!(cache.disk.forget(SystemTime::UNIX_EPOCH, |_| false).is_empty());
    assert!(cache.disk.forget(later(1), |_| false).is_empty(), "a clock that is not set leaves no mark");
    cache.disk.touch(ACCOUNT, later(3_650));
    assert!(cache.disk.forget(now, |_| false).is_empty());
    assert_eq!(cache.disk.forget(later(8), |_| false).len(), 1, "its week began when the clock was right again");
    put(&mut cache, "q", b"1", 5_000);
    put(&mut cache, "q", b"1", 7);
    assert_eq!(get(&mut cache, "q").map(|(_, read_ms)| read_ms), Some(7_000), "the clock was set back");
}

#[test]
fn answer_that_many_read_is_in_memory_once() {
    let folder = tempfile::tempdir().expect("temp dir");
    put(&mut open(folder.path()), "p", b"1", 0);
    let mut cache = open(folder.path());
    let mut read = || cache.get(&sha256(b"p"), ACCOUNT).expect("kept").0;
    let one = read();
    assert!(Rc::ptr_eq(&one, &read()));
    put(&mut cache, "p", b"2", 0);
    assert_eq!(get(&mut cache, "p").map(|(body, _)| body), Some(b"2".to_vec()));
}
