//! Files of volumes, also by hostile paths.

use super::*;

proptest::proptest! {
    #[test]
    fn any_path_that_is_taken_names_a_place_inside(path in "(\\.|/|a|\\.\\.|\\PC){0,12}") {
        if let Ok(clean) = clean_path(&path) {
            let parts: Vec<_> = Path::new(&clean).components().collect();
            proptest::prop_assert!(!parts.is_empty() && !clean.starts_with(".."), "{path:?} became {clean:?}");
            proptest::prop_assert!(parts.iter().all(|part| matches!(part, Component::Normal(_))));
            proptest::prop_assert_eq!(clean_path(&clean), Ok(clean.clone()));
        }
    }
}

#[test]
fn last_file_of_a_path_stays() {
    let file = |mode| File { data: Vec::new(), mode, owner: None };
    let files = [("b", 1), ("c", 2), ("a", 3), ("b", 4), ("a", 5)].map(|(path, mode)| (path.to_owned(), file(mode)));
    let payload = payload(files.to_vec());
    let left: Vec<_> = payload.iter().map(|(path, file)| (path.as_str(), file.mode)).collect();
    assert_eq!(left, [("a", 5), ("b", 4), ("c", 2)]);
}

#[test]
fn many_files_in_reverse_order_do_not_hold_up_the_node() {
    let names = (0..100_000).rev().map(|number| format!("{number:06}"));
    let files = names.map(|name| (name, File { data: Vec::new(), mode: 0, owner: None })).collect();
    assert_eq!(payload(files).len(), 100_000);
    // Inserted as they come, they would move 300 GB, which takes longer than a suite may.
}

#[test]
fn paths_stay_inside_the_volume() {
    assert_eq!(clean_path("./a//b").as_deref(), Ok("a/b"));
    assert_eq!(clean_path(".hidden").as_deref(), Ok(".hidden"));
    for bad in ["", ".", "/etc/passwd", "../x", "a/../../x", "..data", "..data/x"] {
        assert!(clean_path(bad).is_err(), "{bad}");
    }
    assert!(clean_path(&"x".repeat(256)).is_err());
}
