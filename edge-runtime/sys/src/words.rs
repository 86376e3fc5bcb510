//! Words of a command line, before any program looks what they mean.

use std::ffi::OsString;

/// Puts a `--root` that stands before the verb behind it, as kubectl takes its global flags on either side.
#[must_use]
pub fn verb_first(mut args: Vec<OsString>) -> Vec<OsString> {
    let flags = match args.first().and_then(|first| first.to_str()) {
        Some("--root") => 2,
        Some(first) if first.starts_with("--root=") => 1,
        _ => return args,
    };
    if args.len() > flags {
        args[..=flags].rotate_right(1);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_may_precede_the_verb() {
        let order = |words: &[&str]| {
            let words = verb_first(words.iter().map(OsString::from).collect());
            words.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(order(&["--root", "/r", "ps", "-o", "json"]), "ps --root /r -o json");
        assert_eq!(order(&["--root=/r", "exec", "p", "--", "ls"]), "exec --root=/r p -- ls");
        for unchanged in ["ps --root /r", "--root", "--root /r", "--root=/r", "", "--help"] {
            let words: Vec<&str> = unchanged.split_whitespace().collect();
            assert_eq!(order(&words), unchanged);
        }
    }
}
